"""Who this process is: a machine id that no other process has, and the ids made with it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from dagmaster.clocks import SyncedClock
from dagmaster.errors import DatabaseUnavailable, OwnershipLost
from dagmaster.snowflakes import Snowflakes
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
        self.clock = SyncedClock()
        self.ids = Snowflakes(self.clock)

    async def lease(self) -> None:
        """Become somebody."""
        given = {"holder": self._holder, "seconds": LEASE_SECONDS}
        for _ in range(_TRIES):
            row = await self._session.row(queries("orchestrator")["lease_machine"], given)
            if row is not None:
                self._name = row["name"]
                self.clock.sync(row["now"])
                self.ids = Snowflakes(self.clock, int(self._name.removeprefix("machine:")))
                return
        raise DatabaseUnavailable("all 1,024 machine ids are leased: stop some processes, or wait a minute")

    async def renew(self) -> None:
        """Stay somebody. `OwnershipLost` if another process is that one by now."""
        given = {"name": self._name, "holder": self._holder, "seconds": LEASE_SECONDS}
        row = await self._session.row(queries("orchestrator")["renew_machine"], given)
        if row is None:
            raise OwnershipLost("the lease of this process ran out: it was paused, or the database was away")
        self.clock.sync(row["now"])

    async def release(self) -> None:
        """Be nobody."""
        given = {"name": self._name, "holder": self._holder}
        await self._session.fetch(queries("orchestrator")["release_machine"], given)
