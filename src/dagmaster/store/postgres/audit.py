"""The audit of a database: checks invariants on its rows, in plain SQL that shares nothing with the engine.

An audit takes batches of jobs, then of queued tasks, then of reports. Each batch is checked in a snapshot of its own:
an audit of many jobs does not keep the server from removing dead rows, and needs no more memory than a batch.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from dagmaster.store.postgres.connection import CONNECT_SECONDS, DRIVER_ERRORS, translate_error
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.named_queries import Query

_JOBS = queries("audit")
_QUEUE = queries("audit_queue")
_RESULTS = queries("audit_results")
_JOB_INVARIANTS: Final = [
    "events_have_no_gaps", "events_are_in_order", "only_the_owner_writes", "node_states_match_events",
    "nodes_complete_once", "only_completed_nodes_have_outputs", "tasks_are_stored_once", "attempts_have_no_gaps",
    "attempts_match_events", "attempt_counters_match_attempts", "open_nodes_can_progress", "claims_can_expire",
    "finished_jobs_are_consistent", "fan_outs_have_their_children", "child_jobs_match_events",
    "idempotency_keys_are_unique", "no_orphaned_rows", "commands_are_processed", "jobs_are_claimed",
]  # fmt: skip
_QUEUE_INVARIANTS: Final = [
    "queued_tasks_match_nodes", "claims_can_expire", "finished_jobs_are_consistent", "no_orphaned_rows",
]  # fmt: skip
_RESULT_INVARIANTS: Final = ["results_are_processed", "finished_jobs_are_consistent", "no_orphaned_rows"]
INVARIANTS: Final = list(dict.fromkeys([*_JOB_INVARIANTS, *_QUEUE_INVARIANTS, *_RESULT_INVARIANTS]))
MAX_VIOLATIONS: Final = 100
"""How many violations of one invariant are listed."""

STALL_SECONDS: Final = 60.0
JOBS_AT_ONCE: Final = 1_000
EVENTS_AT_ONCE: Final = 100_000
"""How many events the jobs of a batch have at most, unless it is one job."""

TASKS_AT_ONCE: Final = 10_000
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
# Joined by hashing, every plan takes time in proportion to its batch, whatever statistics say. The events of a job of
# 100,000 nodes are sorted several times.
_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_nestloop": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "work_mem": "'64MB'",
}


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
    config: DatabaseConfig,
    *,
    job_id: str | None,
    lease_seconds: float,
    worker_lease_seconds: float,
    on_progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Audit a database on a connection of its own, because an audit of many jobs takes long."""
    try:
        connection = await asyncpg.connect(
            config.dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0 if config.is_pooled else 100,
            server_settings={} if config.is_pooled else {"application_name": "dagmaster audit"},
        )
        try:
            return await audit(
                connection,
                job_id=job_id,
                lease_seconds=lease_seconds,
                worker_lease_seconds=worker_lease_seconds,
                on_progress=on_progress,
            )
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise translate_error(error, "audit") from error


async def audit(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    job_id: str | None = None,
    lease_seconds: float = 15.0,
    worker_lease_seconds: float = 6.0,
    jobs_at_once: int = JOBS_AT_ONCE,
    on_progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Check all jobs, or one; services may keep running. Call `on_progress` with the jobs checked so far, and all.

    In an open transaction, its snapshot is the one of all batches.
    """
    leases = {
        "lease_seconds": lease_seconds,
        "worker_lease_seconds": worker_lease_seconds,
        "stall_seconds": max(STALL_SECONDS, 4 * lease_seconds),
    }
    auditor = _Auditor(connection, leases)
    low, high = (_SMALLEST, _LARGEST) if job_id is None else (int(job_id), int(job_id))
    await auditor.check_jobs(low, high, jobs_at_once, on_progress)
    await auditor.check_tasks(_QUEUE, _QUEUE_INVARIANTS, low, high)
    await auditor.check_tasks(_RESULTS, _RESULT_INVARIANTS, low, high)
    return auditor.result()


class _Auditor:
    """Checks batches, and keeps the violations."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], leases: Mapping[str, float]) -> None:
        self._connection = connection
        self._leases = leases
        self._violations: dict[str, list[Violation]] = {name: [] for name in INVARIANTS}
        self._jobs = self._nodes = self._events = 0

    def result(self) -> Audit:
        """Return what was checked, with the violations by invariant."""
        violations = [violation for name in INVARIANTS for violation in self._violations[name]]
        return Audit(self._jobs, self._nodes, self._events, tuple(violations))

    async def check_jobs(
        self, low: int, high: int, at_once: int, on_progress: Callable[[int, int], None] | None
    ) -> None:
        """Check the jobs whose ids are in a range."""
        total = await self._value(_JOBS["total"], {}) if on_progress is not None and low < high else 1
        while low <= high:
            async with self._snapshot():
                params = {"low": low, "jobs": at_once, "events": EVENTS_AT_ONCE}
                last = high if low == high else await self._value(_JOBS["batch"], params)
                last = high if last is None else last
                await self._check_batch_of_jobs(low, last)
            low = last + 1
            if on_progress is not None:
                on_progress(self._jobs, max(total, self._jobs))

    async def _check_batch_of_jobs(self, low: int, high: int) -> None:
        span = {"low": low, "high": high}
        extent = _JOBS["extent"]
        ((jobs, has_open_jobs, nodes, events),) = await self._connection.fetch(extent.sql, *extent.arguments(span))
        self._jobs, self._nodes, self._events = self._jobs + jobs, self._nodes + nodes, self._events + events
        await self._check(_JOBS, _JOB_INVARIANTS, {**span, "has_open_jobs": has_open_jobs})

    async def check_tasks(self, checks: Mapping[str, Query], invariants: Iterable[str], low: int, high: int) -> None:
        """Check the rows of the queue, or of the results, of the jobs in a range."""
        after: int | None = _SMALLEST
        # The tasks of one job are not found by their ids: the table is read once.
        size = _LARGEST if low == high else TASKS_AT_ONCE
        while after is not None:
            async with self._snapshot():
                last = await self._value(checks["batch"], {"after": after, "size": size})
                if last is not None:
                    await self._check(checks, invariants, {"low": low, "high": high, "after": after, "last": last})
            after = last

    async def _check(self, checks: Mapping[str, Query], invariants: Iterable[str], params: Mapping[str, Any]) -> None:
        for name in invariants:
            known, query = self._violations[name], checks[name]
            if len(known) < MAX_VIOLATIONS:
                limit = MAX_VIOLATIONS - len(known)
                rows = await self._connection.fetch(
                    query.sql, *query.arguments({**self._leases, **params, "limit": limit})
                )
                known += [
                    Violation(name, query.description, str(job_id), node_id, message)
                    for job_id, node_id, message in rows
                ]

    @contextlib.asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[None]:
        if self._connection.is_in_transaction():
            yield
            return
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            await self._connection.execute(
                "; ".join(f"SET LOCAL {name} = {value}" for name, value in _SETTINGS.items())
            )
            yield

    async def _value(self, query: Query, params: Mapping[str, Any]) -> Any:
        return await self._connection.fetchval(query.sql, *query.arguments(params))
