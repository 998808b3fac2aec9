"""The fleet as a server knows it: what the database says, or soon what it said last."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.application.queries.fleet import fleet
from dagmaster.application.shared_calls import SharedCalls
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.tenants import ALL_TENANTS
from dagmaster.text_format import format_seconds

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.records.fleet import FleetRecord

ANSWER_SECONDS: Final = 1.2
"""How long the database may take. Who asks waits as long for the check of its key before, at most."""


class FleetSnapshot(NamedTuple):
    """The fleet, how long it took to read it, and how old it is: 0.0 if it was read now."""

    record: FleetRecord
    database_seconds: float
    stale_seconds: float


class _Reading(NamedTuple):
    record: FleetRecord
    database_seconds: float
    at: float
    monotonic_at: float


class FleetMonitor:
    """Reads the fleet, once at a time, and remembers it for when the database does not answer.

    Of each tenant: no caller gets what another one may see.
    """

    def __init__(self, app: Application, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._app = app
        self._answer_seconds = answer_seconds
        self._last: dict[str, _Reading] = {}
        self._reads: SharedCalls[_Reading] = SharedCalls()

    async def snapshot(self, app: Application | None = None) -> FleetSnapshot:
        """Return the fleet as the caller of an application sees it; by default all of it.

        If the database does not answer, it is an earlier reading, with its time. Raise `DatabaseUnavailable`
        without one.
        """
        app = app or self._app
        tenant = ALL_TENANTS if app.caller is None else app.caller.sees
        try:
            async with asyncio.timeout(self._answer_seconds):
                reading = await self._reads.run(tenant, partial(self._read, app, tenant))
        except TimeoutError as error:
            return self._stale(
                tenant,
                DatabaseUnavailable(
                    f"the database did not answer within {format_seconds(self._answer_seconds)}"
                ),
                error,
            )
        except DatabaseUnavailable as error:
            return self._stale(tenant, error, error.__cause__)
        return FleetSnapshot(reading.record, reading.database_seconds, 0.0)

    async def _read(self, app: Application, tenant: str) -> _Reading:
        began = time.monotonic()
        record = await fleet(app)
        now = time.monotonic()
        reading = self._last[tenant] = _Reading(record, now - began, time.time(), now)
        return reading

    def _stale(self, tenant: str, error: DatabaseUnavailable, cause: BaseException | None) -> FleetSnapshot:
        last = self._last.get(tenant)
        if last is None:
            raise error from cause
        record = replace(last.record, read_at=last.at)
        return FleetSnapshot(record, last.database_seconds, time.monotonic() - last.monotonic_at)
