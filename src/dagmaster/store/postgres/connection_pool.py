"""Small pools of connections, opened when they are needed: to read, and to write on behalf of tenants."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.tenant_session import TenantReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import asyncpg

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.connection import Copy
    from dagmaster.store.postgres.named_queries import Query
    from dagmaster.store.postgres.tenant_session import Session, Statements, TenantSession

MAX_CONNECTIONS: Final = 4
MAX_TENANT_CONNECTIONS: Final = 8
STATEMENT_TIMEOUT_SECONDS: Final = 30.0


class ConnectionPool:
    """Lends connections, up to `max_connections`; further callers wait for a free one."""

    def __init__(self, make: Callable[[], Connection], *, max_connections: int) -> None:
        self._make = make
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[Connection] = []
        self.connections: list[Connection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection."""
        async with self._slots:
            # The last one used comes first, so that a single caller needs a single connection.
            connection = self._idle.pop() if self._idle else self._new_connection()
            try:
                yield connection
            finally:
                self._idle.append(connection)

    def _new_connection(self) -> Connection:
        connection = self._make()
        self.connections.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()


class ReadOnlyPool(ConnectionPool):
    """Runs queries in parallel, each in a separate transaction."""

    def __init__(
        self,
        config: DatabaseConfig,
        name: str,
        *,
        statement_timeout_seconds: float,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        super().__init__(
            lambda: Connection(config, name, reads=True, statement_timeout_seconds=statement_timeout_seconds),
            max_connections=max_connections,
        )

    async def fetch(
        self, query: Query, params: Mapping[str, Any], *, tenant: str | None = None
    ) -> list[asyncpg.Record]:
        async with self.connection() as connection:
            return await connection.fetch(query, params, tenant=tenant)

    async def row(
        self, query: Query, params: Mapping[str, Any], *, tenant: str | None = None
    ) -> asyncpg.Record | None:
        rows = await self.fetch(query, params, tenant=tenant)
        return rows[0] if rows else None

    def for_tenant(self, tenant: str) -> TenantReader:
        """Return the pool on behalf of a tenant, or of all tenants."""
        return TenantReader(self, tenant)


class TenantConnections:
    """Connections for the changes of tenants.

    Changes of one tenant wait for one another, and not for changes of other tenants: a tenant whose rows are
    locked holds one connection.
    """

    def __init__(
        self, config: DatabaseConfig, name: str, *, max_connections: int = MAX_TENANT_CONNECTIONS
    ) -> None:
        self._pool = ConnectionPool(lambda: Connection(config, name), max_connections=max_connections)
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def session(self, tenant: str) -> AsyncIterator[TenantSession]:
        """Lend a connection to a tenant, which has no other one."""
        async with self._locks.setdefault(tenant, asyncio.Lock()), self._pool.connection() as connection:
            yield connection.for_tenant(tenant)

    async def close(self) -> None:
        await self._pool.close()


class PooledSession:
    """Statements that see, and write, the rows of one tenant, on a connection that they borrow."""

    def __init__(self, connections: TenantConnections, tenant: str) -> None:
        self._connections, self._tenant = connections, tenant

    async def fetch(self, query: Query, params: Mapping[str, Any]) -> list[asyncpg.Record]:
        async with self._connections.session(self._tenant) as session:
            return await session.fetch(query, params)

    async def row(self, query: Query, params: Mapping[str, Any]) -> asyncpg.Record | None:
        async with self._connections.session(self._tenant) as session:
            return await session.row(query, params)

    async def execute_in_transaction(
        self, statements: Statements, *, guards: int = 0
    ) -> list[asyncpg.Record]:
        async with self._connections.session(self._tenant) as session:
            return await session.execute_in_transaction(statements, guards=guards)

    async def copy_in_transaction(
        self,
        before: Statements,
        copies: Sequence[Copy],
        after: Statements = (),
        *,
        is_flushed: bool = False,
    ) -> list[asyncpg.Record]:
        async with self._connections.session(self._tenant) as session:
            return await session.copy_in_transaction(before, copies, after, is_flushed=is_flushed)


if TYPE_CHECKING:

    def _is_session(session: PooledSession) -> Session:
        return session
