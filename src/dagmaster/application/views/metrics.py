"""Reports about what finished jobs show."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.records.metrics import (
    FailureRecord,
    NodeMetricsRecord,
    PeriodRecord,
    ThroughputBucketRecord,
    WorkflowMetricsRecord,
)
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowMetricsReport(Record):
    """The metrics of workflows. `pending_jobs`: finished jobs that are not counted yet."""

    since: Timestamp
    until: Timestamp
    pending_jobs: int
    workflows: tuple[WorkflowMetricsRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetricsReport(Record):
    """The metrics of the nodes of a workflow. `pending_jobs`: finished jobs that are not counted yet."""

    workflow_id: str
    since: Timestamp
    until: Timestamp
    pending_jobs: int
    nodes: tuple[NodeMetricsRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowHistoryReport(Record):
    """The finished jobs of a workflow over time, oldest period first, also those without jobs."""

    workflow_id: str
    since: Timestamp
    until: Timestamp
    pending_jobs: int
    period_seconds: float
    periods: tuple[PeriodRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationBucketView(Record):
    """Executions that took at most `up_to_seconds` and longer than the bucket before; null: any longer."""

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
    failures: tuple[FailureRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputReport(Record):
    """Jobs over time, oldest bucket first. The last bucket is not over yet."""

    since: Timestamp
    until: Timestamp
    pending_jobs: int
    bucket_minutes: int
    buckets: tuple[ThroughputBucketRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRebuildView(Record):
    """How many jobs one call of a rebuild counted, and how many are queued.

    `next_cursor`: null after the last call.
    """

    counted_jobs: int
    pending_jobs: int
    next_cursor: str | None
