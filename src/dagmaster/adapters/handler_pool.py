"""The pool of database connections for handlers: psycopg's, opened on first use.

Plain functions share one pool in their process. Coroutines have one on each event loop, because a connection
belongs to the loop that opened it; it is closed with that loop. A pool keeps no connection open that was not
asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import DatabaseUnavailable, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from psycopg import AsyncConnection, Connection
    from psycopg.rows import DictRow
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

WAIT_SECONDS: Final = 30.0
"""How long a handler waits for a connection, while others use all or the server does not answer."""

CLOSE_SECONDS: Final = 1.0


class DatabasePool:
    """Connections to one database, at most `size` for plain functions, and as many on each event loop."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._size = size
        self._lock = threading.Lock()
        self._blocking: ConnectionPool[Connection[DictRow]] | None = None
        self._on_loops: dict[asyncio.AbstractEventLoop, AsyncConnectionPool[AsyncConnection[DictRow]]] = {}

    def connection(self) -> PooledConnection:
        """Return a connection, for `with` in a plain function and for `async with` in a coroutine.

        Its block is one transaction: committed at the end, rolled back by an exception.
        """
        return PooledConnection(self)

    def for_threads(self) -> ConnectionPool[Connection[DictRow]]:
        with self._lock, _name_extra():
            from psycopg_pool import ConnectionPool

            if self._blocking is None:
                check = ConnectionPool.check_connection
                self._blocking = ConnectionPool(self._url, check=check, open=True, **self._options())
            return self._blocking

    async def for_loop(self) -> AsyncConnectionPool[AsyncConnection[DictRow]]:
        with _name_extra():
            from psycopg_pool import AsyncConnectionPool
        loop = asyncio.get_running_loop()
        pool = self._on_loops.get(loop)
        if pool is None:
            check = AsyncConnectionPool.check_connection
            pool = self._on_loops[loop] = AsyncConnectionPool(
                self._url, check=check, open=False, **self._options()
            )
            await pool.open()
        return pool

    def _options(self) -> dict[str, Any]:
        from psycopg.rows import dict_row

        return {
            "min_size": 0,
            "max_size": self._size,
            "timeout": WAIT_SECONDS,
            "num_workers": 1,
            "kwargs": {"row_factory": dict_row, "application_name": "dagmaster handler"},
        }

    def unavailable(self) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"ctx.pool had no connection within {WAIT_SECONDS:g} s: the server of DAGMASTER_HANDLER_POOL_URL"
            " does not answer (see the log of the task), or other handlers of this process use all"
            f" {self._size} (DAGMASTER_HANDLER_POOL_SIZE)"
        )

    async def close_on_loop(self) -> None:
        """Close the connections that were opened on the running event loop."""
        pool = self._on_loops.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close(CLOSE_SECONDS)

    def close(self) -> None:
        """Close the connections of plain functions."""
        with self._lock:
            pool, self._blocking = self._blocking, None
        if pool is not None:
            pool.close(CLOSE_SECONDS)


class PooledConnection:
    """A connection that is taken from the pool when its block begins, and returned at its end."""

    def __init__(self, pool: DatabasePool) -> None:
        self._pool = pool
        self._lent: Any = None

    def __enter__(self) -> Connection[DictRow]:
        lent = self._lent = self._pool.for_threads().connection()
        with _explain(self._pool):
            connection: Connection[DictRow] = lent.__enter__()
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lent.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncConnection[DictRow]:
        lent = self._lent = (await self._pool.for_loop()).connection()
        with _explain(self._pool):
            connection: AsyncConnection[DictRow] = await lent.__aenter__()
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lent.__aexit__(kind, error, trace)


@contextlib.contextmanager
def _explain(pool: DatabasePool) -> Iterator[None]:
    from psycopg_pool import PoolTimeout

    try:
        yield
    except PoolTimeout as error:
        raise pool.unavailable() from error


@contextlib.contextmanager
def _name_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise PermanentError(
            f"ctx.pool needs {error.name}, which is not installed: pip install 'dagmaster[pool]'",
            kind="missing_extra",
        ) from error
