"""Reads metrics: sums of roll-ups, and exact percentiles while there are few enough rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.ids import EPOCH_MS
from dagmaster.ports.metrics import MAX_EXACT, MAX_EXACT_NODES
from dagmaster.records.metrics import (
    DurationBin,
    Durations,
    FailureRecord,
    MetricWindow,
    NodeMetricsRecord,
    Percentiles,
    PeriodRecord,
    ThroughputBucketRecord,
    WorkflowMetricsRecord,
)
from dagmaster.store.metric_rules import bin_seconds
from dagmaster.store.postgres.job_list import is_storable
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from asyncpg import Record

    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("metrics")
MAX_PENDING: Final = 10_000
"""While more finished jobs are not counted yet, percentiles are read from the histogram: a rebuild, or a
backlog."""


class PostgresMetricReader:
    """Metrics in PostgreSQL."""

    def __init__(self, pool: Reader) -> None:
        self._pool = pool

    async def window(self, seconds: float, step_seconds: float) -> MetricWindow:
        (row,) = await self._pool.fetch(_SQL["window"], {"limit": MAX_EXACT})
        since = (row["now"] - seconds) // step_seconds * step_seconds
        return MetricWindow(since, row["now"], row["pending"])

    async def workflows(self, since: float, *, workflow_id: str | None = None) -> list[WorkflowMetricsRecord]:
        if workflow_id is not None and not is_storable(workflow_id):
            return []
        params = {
            "since": since,
            "workflow_id": workflow_id,
            "max_exact": MAX_EXACT,
            "max_pending": MAX_PENDING,
        }
        return [
            WorkflowMetricsRecord(
                workflow_id=row["workflow_id"],
                completed=row["completed"],
                failed=row["failed"],
                cancelled=row["cancelled"],
                **_durations(row, row["completed"], row["exact_count"]),
            )
            for row in await self._pool.fetch(_SQL["workflows"], params)
        ]

    async def nodes(self, workflow_id: str, since: float) -> list[NodeMetricsRecord]:
        if not is_storable(workflow_id):
            return []
        params = {
            "workflow_id": workflow_id,
            "since": since,
            "max_exact": MAX_EXACT_NODES,
            "max_pending": MAX_PENDING,
        }
        return [
            NodeMetricsRecord(
                node_id=row["node_id"],
                completed=row["completed"],
                failed=row["failed"],
                skipped=row["skipped"],
                cancelled=row["cancelled"],
                total_retries=row["retries"],
                **_durations(row, row["timed"], row["exact_count"]),
            )
            for row in await self._pool.fetch(_SQL["nodes"], params)
        ]

    async def history(self, workflow_id: str, since: float) -> list[PeriodRecord]:
        if not is_storable(workflow_id):
            return []
        rows = await self._pool.fetch(_SQL["history"], {"workflow_id": workflow_id, "since": since})
        return [
            PeriodRecord(
                at=row["at"],
                completed=row["completed"],
                failed=row["failed"],
                cancelled=row["cancelled"],
                **_durations(row, row["completed"], None),
            )
            for row in rows
        ]

    async def node_durations(self, since: float, *, workflow_id: str | None = None) -> list[DurationBin]:
        if workflow_id is not None and not is_storable(workflow_id):
            return []
        rows = await self._pool.fetch(_SQL["node_durations"], {"workflow_id": workflow_id, "since": since})
        return [DurationBin(bin_seconds(row["bin"]), row["completed"], row["failed"]) for row in rows]

    async def failures(
        self, since: float, *, workflow_id: str | None = None, per_workflow: int | None = None, limit: int
    ) -> list[FailureRecord]:
        if workflow_id is not None and not is_storable(workflow_id):
            return []
        params = {"since": since, "workflow_id": workflow_id, "per_workflow": per_workflow, "limit": limit}
        rows = await self._pool.fetch(_SQL["failures"], params)
        return [
            FailureRecord(**{**dict(row), "job_id": str(row["job_id"]), "node_id": row["node_id"] or None})
            for row in rows
        ]

    async def throughput(
        self, since: float, until: float, step_seconds: float
    ) -> list[ThroughputBucketRecord]:
        params = {"since": since, "until": until, "step": step_seconds}
        sums = {row["step"]: row for row in await self._pool.fetch(_SQL["throughput"], params)}
        ids = {
            "first_id": _first_id(since),
            "end_id": _first_id(until),
            "epoch_ms": EPOCH_MS,
            "step_ms": round(step_seconds * 1000),
        }
        submitted = {row["step"]: row["submitted"] for row in await self._pool.fetch(_SQL["submitted"], ids)}
        first, end = int(since // step_seconds), int(-(-until // step_seconds))
        return [
            _bucket(step * step_seconds, sums.get(step), submitted.get(step, 0)) for step in range(first, end)
        ]


def _durations(row: Record, count: int, exact_count: int | None) -> Durations:
    if not count:
        return {}
    average = row["seconds"] / count
    # Rows of jobs that were deleted or resumed since are missing: then they do not show what was counted.
    if exact_count == count:
        return {"avg_duration": average, "p50_duration": row["exact_p50"], "p95_duration": row["exact_p95"]}
    return {
        "avg_duration": average,
        "p50_duration": bin_seconds(row["p50"]),
        "p95_duration": bin_seconds(row["p95"]),
        "percentiles": Percentiles.HISTOGRAM,
    }


def _bucket(at: float, row: Any, submitted: int) -> ThroughputBucketRecord:
    if row is None:
        return ThroughputBucketRecord(at=at, submitted=submitted)
    completed = row["completed"]
    return ThroughputBucketRecord(
        at=at,
        submitted=submitted,
        completed=completed,
        failed=row["failed"],
        cancelled=row["cancelled"],
        avg_duration=row["seconds"] / completed if completed else None,
    )


def _first_id(at: float) -> int:
    return max(0, int(at * 1000) - EPOCH_MS) << 22
