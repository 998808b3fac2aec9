"""Counts finished jobs: batch by batch as a chore of orchestrators, or all of them again."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.metric_rebuild import CountedJobs
from dagmaster.ports.metrics import MAX_EXACT
from dagmaster.ports.tenants import ALL_TENANTS
from dagmaster.store.metric_rules import ROLL_UP_JOBS
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.tenant_session import Session

_SQL = queries("metrics")
LEASE_SECONDS: Final = 15.0
PRUNE_PERIODS: Final = 100
"""How many periods of workflows one prune deletes at most."""
REBUILD_BATCHES: Final = 25
"""How many batches one call of a rebuild counts: about a second of work, far less than the lease."""


class MetricRollups:
    """Counts under a lease that one process holds at a time."""

    def __init__(self, connection: Session) -> None:
        self._connection = connection

    async def roll_up(self, holder: int, limit: int = ROLL_UP_JOBS) -> int:
        """Count up to `limit` finished jobs; return how many, 0 while another process counts."""
        params = {"holder": holder, "limit": limit, "lease_seconds": LEASE_SECONDS}
        row = await self._connection.row(_SQL["roll_up"], params)
        return 0 if row is None else int(row["taken"])

    async def prune(self, holder: int, retention_seconds: float, limit: int = PRUNE_PERIODS) -> int:
        """Delete up to `limit` old periods of workflows; return how many, 0 while another process counts."""
        params = {
            "holder": holder,
            "limit": limit,
            "lease_seconds": LEASE_SECONDS,
            "retention": retention_seconds,
        }
        row = await self._connection.row(_SQL["prune"], params)
        return 0 if row is None else int(row["periods"])

    async def count_pending(self, limit: int = MAX_EXACT) -> int:
        """Return how many finished jobs are not counted yet, up to `limit`."""
        row = await self._connection.row(_SQL["window"], {"limit": limit})
        return 0 if row is None else int(row["pending"])

    async def requeue(self, holder: int) -> None:
        """Delete all sums and queue every finished job again, in one statement: all of it or nothing."""
        params = {"holder": holder, "lease_seconds": LEASE_SECONDS}
        await self._connection.fetch(_SQL["take_lease"], params)
        if await self._connection.row(_SQL["requeue"], params) is None:
            raise DatabaseUnavailable(
                "another process took the lease of the roll-up: start the rebuild again"
            )

    async def release(self, holder: int) -> None:
        """Let other processes count."""
        await self._connection.fetch(_SQL["release_lease"], {"holder": holder})


class PostgresMetricRebuilder:
    """Counts all finished jobs again. It connects when it is first used."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._connection = Connection(config, "dagmaster metrics rebuild")
        # It counts the jobs of all tenants.
        session = self._connection if config.role is None else self._connection.for_tenant(ALL_TENANTS)
        self._rollups = MetricRollups(session)

    async def start(self) -> int:
        """Delete all sums and queue every finished job; return the rebuild's number (its lease holder)."""
        holder = secrets.randbits(62)
        await self._rollups.requeue(holder)
        return holder

    async def count(self, rebuild: int) -> CountedJobs:
        counted = batch = 0
        for _ in range(REBUILD_BATCHES):
            batch = await self._rollups.roll_up(rebuild)
            counted += batch
            if not batch:
                await self._rollups.release(rebuild)
                break
        return CountedJobs(counted, await self._rollups.count_pending(), is_last=not batch)

    async def close(self) -> None:
        await self._connection.close()
