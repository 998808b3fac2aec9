"""Views of metrics.

Durations are in seconds, of what completed; `percentiles` says how exact p50 and p95 are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dagmaster.records.record import Record, Timestamp


class Percentiles(StrEnum):
    """EXACT: from every duration. HISTOGRAM: at most 1 % (or 1 ms) from the exact value."""

    EXACT = "exact"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView(Record):
    """Failed jobs with the same message, in which numbers, ids, paths and URIs are replaced.

    `node_id` is null if no node caused the failure. `job_id`: the last of these jobs.
    """

    workflow_id: str
    node_id: str | None
    message: str
    count: int
    job_id: str
    last_at: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowMetricsView(Record):
    """The jobs of a workflow that finished. `success_rate`: completed of completed and failed, from 0 to 1.

    A job that was resumed counts each time it finished. `avg_duration`, `p50_duration` and `p95_duration`:
    seconds.
    """

    workflow_id: str
    total_jobs: int
    completed: int
    failed: int
    cancelled: int
    success_rate: float | None
    avg_duration: float | None
    p50_duration: float | None
    p95_duration: float | None
    percentiles: Percentiles
    common_failures: tuple[FailureView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowMetricsReport(Record):
    """The metrics of workflows. `pending_jobs`: finished jobs that are not counted yet."""

    since: Timestamp
    until: Timestamp
    pending_jobs: int
    workflows: tuple[WorkflowMetricsView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetricsView(Record):
    """The executions of a node in jobs that finished. Children of a fan-out count for the fan-out.

    `success_rate`: completed of completed and failed, from 0 to 1. `avg_duration`, `p50_duration` and `p95_duration`:
    seconds of the last attempt.
    """

    node_id: str
    total_executions: int
    completed: int
    failed: int
    skipped: int
    cancelled: int
    total_retries: int
    success_rate: float | None
    avg_duration: float | None
    p50_duration: float | None
    p95_duration: float | None
    percentiles: Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetricsReport(Record):
    """The metrics of the nodes of a workflow. `pending_jobs`: finished jobs that are not counted yet."""

    workflow_id: str
    since: Timestamp
    until: Timestamp
    pending_jobs: int
    nodes: tuple[NodeMetricsView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodView(Record):
    """The jobs of a workflow that finished within `period_seconds` from `at` on; seconds of the completed ones."""

    at: Timestamp
    completed: int
    failed: int
    cancelled: int
    avg_duration: float | None
    p50_duration: float | None
    p95_duration: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowHistoryReport(Record):
    """The finished jobs of a workflow over time, oldest period first, also those without jobs."""

    workflow_id: str
    since: Timestamp
    until: Timestamp
    pending_jobs: int
    period_seconds: float
    periods: tuple[PeriodView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationBucketView(Record):
    """Executions of nodes that took at most `up_to_seconds` and longer than the bucket before; null: any longer."""

    up_to_seconds: float | None
    completed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationReport(Record):
    """How long nodes took in jobs that finished, of all workflows (`workflow_id` is null) or of one."""

    workflow_id: str | None
    since: Timestamp
    until: Timestamp
    pending_jobs: int
    buckets: tuple[DurationBucketView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport(Record):
    """The most frequent failures. `pending_jobs`: finished jobs that are not counted yet."""

    since: Timestamp
    until: Timestamp
    pending_jobs: int
    failures: tuple[FailureView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputBucketView(Record):
    """The jobs of a period: submitted in it, finished in it.

    `avg_duration`: seconds of the completed ones.
    """

    at: Timestamp
    submitted: int
    completed: int
    failed: int
    cancelled: int
    avg_duration: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputReport(Record):
    """Jobs over time, oldest bucket first. The last bucket is not over yet."""

    since: Timestamp
    until: Timestamp
    pending_jobs: int
    bucket_minutes: int
    buckets: tuple[ThroughputBucketView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRebuildView(Record):
    """How many jobs one call of a rebuild counted, and how many are queued.

    `next_cursor`: null after the last call.
    """

    counted_jobs: int
    pending_jobs: int
    next_cursor: str | None
