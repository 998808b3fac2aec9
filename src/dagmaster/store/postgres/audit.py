"""The audit of a database: checks invariants on its rows, in plain SQL that shares nothing with the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from dagmaster.store.postgres.connection import CONNECT_SECONDS, DRIVER_ERRORS, translate_error
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.database_config import DatabaseConfig

_SQL = queries("audit")
INVARIANTS: Final = [
    "events_have_no_gaps", "events_are_in_order", "only_the_owner_writes", "node_states_match_events",
    "nodes_complete_once", "only_completed_nodes_have_outputs", "tasks_are_stored_once", "attempts_have_no_gaps",
    "attempts_match_events", "attempt_counters_match_attempts", "queued_tasks_match_nodes", "open_nodes_can_progress",
    "claims_can_expire", "finished_jobs_are_consistent", "fan_outs_have_their_children", "child_jobs_match_events",
    "idempotency_keys_are_unique", "no_orphaned_rows", "commands_are_processed", "results_are_processed",
    "jobs_are_claimed",
]  # fmt: skip
MAX_VIOLATIONS: Final = 100
"""How many violations of one invariant are listed."""

STALL_SECONDS: Final = 60.0
_WORK_MEM: Final = "64MB"


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that violates an invariant; `rule` describes the invariant."""

    invariant: str
    rule: str
    job_id: str
    node_id: str | None
    message: str

    @property
    def place(self) -> str:
        """Return the job, and the node if there is one, as text."""
        return f"job {self.job_id}, node {self.node_id}" if self.node_id else f"job {self.job_id}"

    def __str__(self) -> str:
        return f"{self.invariant}: {self.place} {self.message}"


@dataclass(frozen=True, slots=True)
class Audit:
    """How many rows were checked, and the violations."""

    jobs: int
    nodes: int
    events: int
    violations: tuple[Violation, ...]
    invariants: int = len(INVARIANTS)


async def audit_at(
    config: DatabaseConfig, *, job_ids: Sequence[str] | None, lease_seconds: float, worker_lease_seconds: float
) -> Audit:
    """Audit a database on a connection of its own, because an audit of many jobs takes long."""
    leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
    try:
        connection = await asyncpg.connect(
            config.dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0,
            server_settings={} if config.is_pooled else {"application_name": "dagmaster audit"},
        )
        try:
            return await audit(connection, job_ids=job_ids, **leases)
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise translate_error(error, "audit") from error


async def audit(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    job_ids: Sequence[str] | None = None,
    lease_seconds: float = 15.0,
    worker_lease_seconds: float = 6.0,
) -> Audit:
    """Check all jobs, or some, in one snapshot: services may keep running."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        # The events of a job of 100,000 nodes are sorted several times.
        await connection.execute(f"SET LOCAL work_mem = '{_WORK_MEM}'; SET LOCAL jit = off")
        return await check_invariants(
            connection, job_ids=job_ids, lease_seconds=lease_seconds, worker_lease_seconds=worker_lease_seconds
        )


async def check_invariants(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    job_ids: Sequence[str] | None = None,
    lease_seconds: float = 15.0,
    worker_lease_seconds: float = 6.0,
) -> Audit:
    """Check the invariants within the open transaction."""
    params = {
        "job_ids": None if job_ids is None else [int(job_id) for job_id in job_ids],
        "limit": MAX_VIOLATIONS,
        "lease_seconds": lease_seconds,
        "worker_lease_seconds": worker_lease_seconds,
        "stall_seconds": max(STALL_SECONDS, 4 * lease_seconds),
    }
    violations: list[Violation] = []
    for name in INVARIANTS:
        query = _SQL[name]
        rows = await connection.fetch(query.sql, *query.arguments(params))
        violations += [
            Violation(name, query.description, str(job_id), node_id, message) for job_id, node_id, message in rows
        ]
    extent = _SQL["extent"]
    row = await connection.fetchrow(extent.sql, *extent.arguments(params))
    jobs, nodes, events = row or (0, 0, 0)
    return Audit(jobs, nodes, events, tuple(violations))
