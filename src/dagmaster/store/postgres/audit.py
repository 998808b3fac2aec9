"""The auditor: whether the rows of a database are as promised. Plain SQL, which shares nothing with the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from dagmaster.store.postgres.connection import CONNECT_SECONDS, DRIVER_ERRORS, translated
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.database_config import DatabaseConfig

_SQL = queries("audit")
PROMISES: Final = [
    "trail_has_no_gaps", "trail_is_in_order", "only_the_owner_writes", "states_are_explained", "nodes_complete_once",
    "outputs_are_of_the_completed", "tasks_are_in_one_place", "attempts_are_numbered", "attempts_are_told",
    "budgets_are_what_was_used", "what_is_queued_is_wanted", "open_nodes_can_move", "owners_can_be_replaced",
    "over_means_over", "fan_outs_have_their_children", "child_jobs_are_wanted", "keys_are_of_one_job",
    "nothing_is_without_its_job", "commands_are_answered", "results_are_taken", "jobs_are_claimed",
]  # fmt: skip
MOST: Final = 100
"""Rows that are given for one promise: whoever broke it oftener broke it."""

STALL_SECONDS: Final = 60.0
_WORK_MEM: Final = "64MB"


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that is not as promised."""

    promise: str
    sentence: str
    job_id: str
    node_id: str | None
    says: str

    @property
    def place(self) -> str:
        """Return its location."""
        return f"job {self.job_id}, node {self.node_id}" if self.node_id else f"job {self.job_id}"

    def __str__(self) -> str:
        return f"{self.promise}: {self.place} {self.says}"


@dataclass(frozen=True, slots=True)
class Audit:
    """What was looked at, and what was found."""

    jobs: int
    nodes: int
    events: int
    violations: tuple[Violation, ...]
    promises: int = len(PROMISES)


async def audit_at(
    address: DatabaseConfig, *, job_ids: Sequence[str] | None, lease_seconds: float, worker_lease_seconds: float
) -> Audit:
    """Look at a database on a connection of its own: an audit of many jobs takes its time."""
    leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
    try:
        connection = await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0,
            server_settings={} if address.is_pooled else {"application_name": "dagmaster audit"},
        )
        try:
            return await audit(connection, job_ids=job_ids, **leases)
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise translated(error, "audit") from error


async def audit(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    job_ids: Sequence[str] | None = None,
    lease_seconds: float = 15.0,
    worker_lease_seconds: float = 6.0,
) -> Audit:
    """Look at all jobs, or at some, as they are at one moment: services may go on meanwhile."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        # The events of a job of 100,000 nodes are sorted several times.
        await connection.execute(f"SET LOCAL work_mem = '{_WORK_MEM}'; SET LOCAL jit = off")
        return await look(
            connection, job_ids=job_ids, lease_seconds=lease_seconds, worker_lease_seconds=worker_lease_seconds
        )


async def look(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    job_ids: Sequence[str] | None = None,
    lease_seconds: float = 15.0,
    worker_lease_seconds: float = 6.0,
) -> Audit:
    """Look within the transaction that is open."""
    given = {
        "job_ids": None if job_ids is None else [int(job_id) for job_id in job_ids],
        "most": MOST,
        "lease_seconds": lease_seconds,
        "worker_lease_seconds": worker_lease_seconds,
        "stall_seconds": max(STALL_SECONDS, 4 * lease_seconds),
    }
    found: list[Violation] = []
    for name in PROMISES:
        query = _SQL[name]
        rows = await connection.fetch(query.sql, *query.arguments(given))
        found += [Violation(name, query.sentence, str(job_id), node_id, says) for job_id, node_id, says in rows]
    extent = _SQL["extent"]
    row = await connection.fetchrow(extent.sql, *extent.arguments(given))
    jobs, nodes, events = row or (0, 0, 0)
    return Audit(jobs, nodes, events, tuple(found))
