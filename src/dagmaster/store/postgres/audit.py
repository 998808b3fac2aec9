"""The audit of a database: checks invariants on its rows, in plain SQL that shares nothing with the engine.

An audit takes batches of jobs, then of queued tasks, then of reports. Each batch is checked in a snapshot of
its own: an audit of many jobs does not keep the server from removing dead rows, and needs no more memory than
a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, assert_never

import asyncpg

from dagmaster.ports.invariant_audit import AuditBatch, AuditedRows, AuditPosition, Violation
from dagmaster.ports.tenants import ALL_TENANTS
from dagmaster.store.postgres.connection import CONNECT_SECONDS
from dagmaster.store.postgres.connection_errors import DRIVER_ERRORS, translate_error
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.tenant_session import set_tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.output_names import OutputName
    from dagmaster.store.postgres.named_queries import Query

_JOBS = queries("audit")
_QUEUE = queries("audit_queue")
_RESULTS = queries("audit_results")
_JOB_INVARIANTS: Final = [
    "events_have_no_gaps", "events_are_in_order", "only_the_owner_writes", "node_states_match_events",
    "nodes_complete_once", "only_completed_nodes_have_outputs", "tasks_are_stored_once",
    "attempts_have_no_gaps", "attempts_match_events", "attempt_counters_match_attempts",
    "open_nodes_can_progress", "claims_can_expire", "finished_jobs_are_consistent",
    "fan_outs_have_their_children", "child_jobs_match_events", "idempotency_keys_are_unique",
    "no_orphaned_rows", "commands_are_processed", "jobs_are_claimed",
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
# Joined by hashing, every plan takes time in proportion to its batch, whatever statistics say: merged by the
# id of the job alone, 10,000 nodes were compared with 10,000 attempts each (2026-11: 47 s instead of 0.5).
# The events of a job of 100,000 nodes are sorted several times.
SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_nestloop": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "work_mem": "'64MB'",
}


async def audit(
    connection: asyncpg.Connection[asyncpg.Record],
    *,
    job_id: str | None = None,
    lease_seconds: float = 15.0,
    worker_lease_seconds: float = 6.0,
    jobs_at_once: int = JOBS_AT_ONCE,
    on_progress: Callable[[int, int], None] | None = None,
) -> AuditBatch:
    """Check all jobs, or one; services may keep running.

    Call `on_progress` with the jobs checked so far, and all.

    In an open transaction, its snapshot is the one of all batches.
    """
    auditor = _Auditor(connection, _leases(lease_seconds, worker_lease_seconds))
    low, high = _range(job_id)
    total = 1 if on_progress is None or job_id is not None else await auditor.count_jobs()
    position: AuditPosition | None = AuditPosition(AuditedRows.JOBS, low)
    while position is not None:
        rows, position = position.rows, await auditor.check_batch(position, low, high, jobs_at_once)
        if on_progress is not None and rows is AuditedRows.JOBS:
            on_progress(auditor.jobs, max(total, auditor.jobs))
    return auditor.result()


class PostgresInvariantAuditor:
    """Audits a database on a separate connection, opened for the first batch and closed after the last."""

    def __init__(self, config: DatabaseConfig, *, lease_seconds: float, worker_lease_seconds: float) -> None:
        self._config = config
        self._leases = _leases(lease_seconds, worker_lease_seconds)
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        # Audits of several callers take turns, batch by batch.
        self._lock = asyncio.Lock()

    async def count_jobs(self) -> int:
        async with self._opened() as connection:
            return await _Auditor(connection, self._leases).count_jobs()

    async def check(self, position: AuditPosition | None = None, *, job_id: str | None = None) -> AuditBatch:
        low, high = _range(job_id)
        async with self._opened() as connection:
            auditor = _Auditor(connection, self._leases)
            position = position or AuditPosition(AuditedRows.JOBS, low)
            position = await auditor.check_batch(position, low, high, JOBS_AT_ONCE)
            while job_id is not None and position is not None:
                position = await auditor.check_batch(position, low, high, JOBS_AT_ONCE)
            if position is None:
                await self.close()
        return auditor.result(position)

    async def newer_outputs(self, outputs: Sequence[OutputName]) -> list[Violation]:
        """Look the names up, all of them in one query."""
        query = queries("audit_outputs")["outputs_have_rows"]
        columns = {
            "job_ids": [int(output.job_id) for output in outputs],
            "paths": [output.path for output in outputs],
            "numbers": [output.number for output in outputs],
            "sequences": [output.sequence for output in outputs],
            "of_attempts": [output.is_attempt for output in outputs],
        }
        async with self._opened() as connection:
            rows = await connection.fetch(query.sql, *query.arguments(columns))
        return [
            Violation("outputs_have_rows", query.description, str(job), path, text)
            for job, path, text in rows
        ]

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with contextlib.suppress(*DRIVER_ERRORS):
                await connection.close(timeout=2)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        async with self._lock:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
                yield self._connection
            except DRIVER_ERRORS as error:
                await self.close()
                raise translate_error(error, "audit") from error

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        is_pooled = self._config.is_pooled
        return await asyncpg.connect(
            self._config.dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0 if is_pooled else 100,
            server_settings={} if is_pooled else {"application_name": "dagmaster audit"},
        )


def _leases(lease_seconds: float, worker_lease_seconds: float) -> dict[str, float]:
    return {
        "lease_seconds": lease_seconds,
        "worker_lease_seconds": worker_lease_seconds,
        "stall_seconds": max(STALL_SECONDS, 4 * lease_seconds),
    }


def _range(job_id: str | None) -> tuple[int, int]:
    return (_SMALLEST, _LARGEST) if job_id is None else (int(job_id), int(job_id))


class _Auditor:
    """Checks batches, and keeps the violations."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], leases: Mapping[str, float]) -> None:
        self._connection = connection
        self._leases = leases
        self._violations: dict[str, list[Violation]] = {name: [] for name in INVARIANTS}
        self.jobs = self._nodes = self._events = 0

    def result(self, next_position: AuditPosition | None = None) -> AuditBatch:
        return AuditBatch(
            jobs=self.jobs,
            nodes=self._nodes,
            events=self._events,
            invariants=len(INVARIANTS),
            violations=tuple(violation for name in INVARIANTS for violation in self._violations[name]),
            next_position=next_position,
        )

    async def count_jobs(self) -> int:
        return int(await self._value(_JOBS["total"], {}))

    async def check_batch(
        self, position: AuditPosition, low: int, high: int, jobs: int
    ) -> AuditPosition | None:
        """Check one batch of rows of the jobs whose ids are in a range; return where the next one begins."""
        match position.rows:
            case AuditedRows.JOBS:
                following = await self._check_jobs(max(low, position.start), high, jobs)
                return following or AuditPosition(AuditedRows.QUEUE, _SMALLEST)
            case AuditedRows.QUEUE:
                following = await self._check_tasks(position, _QUEUE, _QUEUE_INVARIANTS, low, high)
                return following or AuditPosition(AuditedRows.RESULTS, _SMALLEST)
            case AuditedRows.RESULTS:
                return await self._check_tasks(position, _RESULTS, _RESULT_INVARIANTS, low, high)
            case _:
                assert_never(position.rows)

    async def _check_jobs(self, low: int, high: int, at_once: int) -> AuditPosition | None:
        async with self._snapshot():
            params = {"low": low, "jobs": at_once, "events": EVENTS_AT_ONCE}
            last = None if low == high else await self._value(_JOBS["batch"], params)
            await self._check_batch_of_jobs(low, high if last is None else last)
        return None if last is None or last >= high else AuditPosition(AuditedRows.JOBS, last + 1)

    async def _check_tasks(
        self,
        position: AuditPosition,
        checks: Mapping[str, Query],
        invariants: Iterable[str],
        low: int,
        high: int,
    ) -> AuditPosition | None:
        # The tasks of one job are not found by their ids: the table is read once.
        params = {"after": position.start, "size": _LARGEST if low == high else TASKS_AT_ONCE}
        async with self._snapshot():
            last = await self._value(checks["batch"], params)
            if last is not None:
                span = {"low": low, "high": high, "after": position.start, "last": last}
                await self._check(checks, invariants, span)
        return None if last is None else AuditPosition(position.rows, last)

    async def _check_batch_of_jobs(self, low: int, high: int) -> None:
        span = {"low": low, "high": high}
        extent = _JOBS["extent"]
        ((jobs, has_open_jobs, nodes, events),) = await self._connection.fetch(
            extent.sql, *extent.arguments(span)
        )
        self.jobs, self._nodes, self._events = self.jobs + jobs, self._nodes + nodes, self._events + events
        await self._check(_JOBS, _JOB_INVARIANTS, {**span, "has_open_jobs": has_open_jobs})

    async def _check(
        self, checks: Mapping[str, Query], invariants: Iterable[str], params: Mapping[str, Any]
    ) -> None:
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
            settings = [f"SET LOCAL {name} = {value}" for name, value in SETTINGS.items()]
            # An audit is of the installation. A server's role sees nothing without a tenant.
            await self._connection.execute("; ".join([*settings, set_tenant(ALL_TENANTS)]))
            yield

    async def _value(self, query: Query, params: Mapping[str, Any]) -> Any:
        return await self._connection.fetchval(query.sql, *query.arguments(params))
