"""Counts finished jobs: batch by batch as a chore of orchestrators, or all of them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.errors import StatementFailed
from dagmaster.store.metric_rules import ROLL_UP_JOBS
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from dagmaster.store.postgres.connection import Connection

_SQL = queries("metrics")
LEASE_SECONDS: Final = 15.0
PRUNE_PERIODS: Final = 100
"""How many periods of workflows one prune deletes at most."""


class MetricRollups:
    """Counts under a lease that one process holds at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def roll_up(self, holder: int, limit: int = ROLL_UP_JOBS) -> int:
        """Count up to `limit` finished jobs; return how many, 0 while another process counts."""
        params = {"holder": holder, "limit": limit, "lease_seconds": LEASE_SECONDS}
        row = await self._connection.row(_SQL["roll_up"], params)
        return 0 if row is None else int(row["taken"])

    async def prune(self, holder: int, retention_seconds: float, limit: int = PRUNE_PERIODS) -> int:
        """Delete up to `limit` old periods of workflows; return how many, 0 while another process counts."""
        params = {"holder": holder, "limit": limit, "lease_seconds": LEASE_SECONDS, "retention": retention_seconds}
        row = await self._connection.row(_SQL["prune"], params)
        return 0 if row is None else int(row["periods"])

    async def rebuild(self, holder: int) -> int:
        """Count all finished jobs again; return how many. If it is interrupted, orchestrators count the rest."""
        params = {"holder": holder, "lease_seconds": LEASE_SECONDS}
        await self._connection.fetch(_SQL["take_lease"], params)
        if await self._connection.row(_SQL["requeue"], params) is None:
            raise StatementFailed("metrics.requeue: another process took the lease of the roll-up; start it again")
        counted = 0
        while batch := await self.roll_up(holder):
            counted += batch
        await self._connection.fetch(_SQL["release_lease"], {"holder": holder})
        return counted
