"""The lease of a machine id, which makes the ids of this process unique, and the database's clock."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DatabaseUnavailable, OwnershipLost
from dagmaster.host.clocks import SyncedClock
from dagmaster.host.snowflakes import Snowflakes
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from dagmaster.store.postgres.connection import Connection

LEASE_SECONDS: Final = 60.0
_TRIES: Final = 20


class Identity:
    """A leased machine id, and the database's clock."""

    def __init__(self, session: Connection) -> None:
        self._session = session
        self._holder = secrets.randbits(62)
        self._name = ""
        self._renewed_at = 0.0
        self.clock = SyncedClock()
        self.ids = Snowflakes(self.clock)

    async def lease(self) -> None:
        params = {"holder": self._holder, "seconds": LEASE_SECONDS}
        for _ in range(_TRIES):
            began = time.monotonic()
            row = await self._session.row(queries("orchestrator")["lease_machine"], params)
            if row is not None:
                self._name, self._renewed_at = row["name"], began
                self.clock.sync(row["now"])
                self.ids = Snowflakes(self.clock, int(self._name.removeprefix("machine:")))
                return
        raise DatabaseUnavailable("all 960 machine ids are leased: stop some processes, or wait a minute")

    async def ensure_leased(self) -> None:
        if self._name and time.monotonic() - self._renewed_at < LEASE_SECONDS / 2:
            return
        if self._name:
            with contextlib.suppress(OwnershipLost):
                await self.renew()
                return
        await self.lease()

    async def renew(self) -> None:
        """Renew the lease; raise `OwnershipLost` if it expired and may belong to another process."""
        began = time.monotonic()
        params = {"name": self._name, "holder": self._holder, "seconds": LEASE_SECONDS}
        row = await self._session.row(queries("orchestrator")["renew_machine"], params)
        if row is None:
            raise OwnershipLost(
                "the lease of this process expired: it was paused, or the database was unreachable"
            )
        self._renewed_at = began
        self.clock.sync(row["now"])

    async def release(self) -> None:
        if not self._name:
            return
        params = {"name": self._name, "holder": self._holder}
        await self._session.fetch(queries("orchestrator")["release_machine"], params)
