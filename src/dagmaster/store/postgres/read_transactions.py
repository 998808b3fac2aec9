"""The transaction of a connection's last read, which stays open for a moment.

A transaction has the tenant of its reads, so that each would cost a round trip before it and one after it. A
request that reads several times pays for them once; each statement still sees what is committed by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.store.postgres.connection_errors import DRIVER_ERRORS

if TYPE_CHECKING:
    import asyncpg

LINGER_SECONDS: Final = 0.002
"""How long a transaction waits for the next read of the same tenant."""
MAX_SECONDS: Final = 0.05
"""How long it is continued: readers without a pause would never end it."""


class _Open(NamedTuple):
    connection: asyncpg.Connection[asyncpg.Record]
    begin: str
    began_at: float
    timer: asyncio.TimerHandle


class ReadTransactions:
    """Ends the transactions of reads. Called under the lock of their connection."""

    def __init__(self) -> None:
        self._open: _Open | None = None
        self._ending: asyncio.Task[str] | None = None

    def resume(self, connection: asyncpg.Connection[asyncpg.Record] | None, begin: str) -> float | None:
        """Take over the open transaction if it began like this; return when it did, else None."""
        last = self._open
        if last is None or last.connection is not connection or last.connection.is_closed():
            return None
        if last.begin != begin or time.monotonic() - last.began_at > MAX_SECONDS:
            return None
        last.timer.cancel()
        self._open = None
        return last.began_at

    def end_soon(self, connection: asyncpg.Connection[asyncpg.Record], begin: str, began_at: float) -> None:
        """End the transaction in a moment: who reads does not wait for it, the next statement does."""
        timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._commit)
        self._open = _Open(connection, begin, began_at, timer)

    async def end(self) -> None:
        """Wait until the transaction has ended."""
        self._commit()
        ending, self._ending = self._ending, None
        if ending is not None:
            with contextlib.suppress(*DRIVER_ERRORS):
                # A caller that is cancelled here does not cancel the end of what another one read.
                await asyncio.shield(ending)

    def _commit(self) -> None:
        last, self._open = self._open, None
        if last is not None:
            last.timer.cancel()
            self._ending = asyncio.create_task(last.connection.execute("COMMIT"))
