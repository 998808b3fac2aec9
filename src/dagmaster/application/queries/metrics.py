"""Queries about what finished jobs show: success, durations, failures, throughput."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from dagmaster.application.secret_inputs import RedactorCache
from dagmaster.application.views.metrics import (
    DurationBucketView,
    DurationReport,
    FailureReport,
    FailureView,
    NodeMetricsReport,
    NodeMetricsView,
    Percentiles,
    PeriodView,
    ThroughputBucketView,
    ThroughputReport,
    WorkflowHistoryReport,
    WorkflowMetricsReport,
    WorkflowMetricsView,
)
from dagmaster.application.workflow_lookup import workflow_not_found
from dagmaster.ports.metrics import PERIOD_SECONDS, DurationMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.metrics import (
        FailureGroup,
        NodeMetrics,
        PeriodMetrics,
        ThroughputBucket,
        WorkflowMetrics,
    )

MAX_DAYS: Final = 90
MAX_HOURS: Final = 31 * 24
MAX_BUCKETS: Final = 2_000
MAX_FAILURES: Final = 200
COMMON_FAILURES: Final = 3
_MAX_COMMON: Final = 1_000
DURATION_BOUNDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0)
"""The upper bounds, in seconds, of a histogram of durations."""
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR


async def workflow_metrics(
    app: Application, *, workflow_id: str | None = None, days: int = 7
) -> WorkflowMetricsReport:
    """Return the metrics of every workflow with jobs that finished within so many days.

    `workflow_id`: only of this one; raise `WorkflowNotFound` if no such workflow is known.
    """
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    workflows = await reader.workflows(window.since, workflow_id=workflow_id)
    if not workflows:
        await _check_workflow(app, workflow_id)
    groups = await reader.failures(
        window.since, workflow_id=workflow_id, per_workflow=COMMON_FAILURES, limit=_MAX_COMMON
    )
    failures = await _failure_views(app, groups)
    return WorkflowMetricsReport(
        since=window.since,
        until=window.until,
        pending_jobs=window.pending,
        workflows=tuple(_workflow_view(record, failures) for record in workflows),
    )


async def node_metrics(app: Application, workflow_id: str, *, days: int = 7) -> NodeMetricsReport:
    """Return the metrics of the nodes of a workflow; raise `WorkflowNotFound` if no such workflow is known."""
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    nodes = await reader.nodes(workflow_id, window.since)
    if not nodes:
        await _check_workflow(app, workflow_id)
    return NodeMetricsReport(
        workflow_id=workflow_id,
        since=window.since,
        until=window.until,
        pending_jobs=window.pending,
        nodes=tuple(map(_node_view, nodes)),
    )


async def workflow_history(app: Application, workflow_id: str, *, days: int = 7) -> WorkflowHistoryReport:
    """Return the finished jobs of a workflow by period; raise `WorkflowNotFound` if no such workflow is known."""
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    periods = {record.at: record for record in await reader.history(workflow_id, window.since)}
    if not periods:
        await _check_workflow(app, workflow_id)
    starts = [
        window.since + number * PERIOD_SECONDS
        for number in range(math.ceil(days * _DAY / PERIOD_SECONDS) + 1)
    ]
    return WorkflowHistoryReport(
        workflow_id=workflow_id,
        since=window.since,
        until=window.until,
        pending_jobs=window.pending,
        period_seconds=PERIOD_SECONDS,
        periods=tuple(_period_view(at, periods.get(at)) for at in starts if at < window.until),
    )


async def node_durations(
    app: Application, *, workflow_id: str | None = None, days: int = 7
) -> DurationReport:
    """Return how long nodes took in jobs that finished within so many days, as a histogram."""
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    bins = await reader.node_durations(window.since, workflow_id=workflow_id)
    places = [bisect_left(DURATION_BOUNDS, one.seconds) for one in bins]
    return DurationReport(
        workflow_id=workflow_id,
        since=window.since,
        until=window.until,
        pending_jobs=window.pending,
        buckets=tuple(
            DurationBucketView(
                up_to_seconds=bound,
                completed=sum(one.completed for one, at in zip(bins, places, strict=True) if at == place),
                failed=sum(one.failed for one, at in zip(bins, places, strict=True) if at == place),
            )
            for place, bound in enumerate((*DURATION_BOUNDS, None))
        ),
    )


async def failure_metrics(
    app: Application, *, workflow_id: str | None = None, days: int = 7, limit: int = 20
) -> FailureReport:
    """Return the most frequent failures of jobs that finished within so many days.

    `workflow_id`: only of this one; raise `WorkflowNotFound` if no such workflow is known.
    """
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    failures = await _failure_views(
        app, await reader.failures(window.since, workflow_id=workflow_id, limit=limit)
    )
    if not failures:
        await _check_workflow(app, workflow_id)
    return FailureReport(
        since=window.since, until=window.until, pending_jobs=window.pending, failures=tuple(failures)
    )


async def throughput(app: Application, *, hours: int = 24, bucket_minutes: int = 60) -> ThroughputReport:
    """Return the jobs of each period of so many minutes.

    Longer periods are used if there would be too many.
    """
    reader = app.read.metrics
    bucket_minutes = max(bucket_minutes, -(-hours * 60 // MAX_BUCKETS))
    step = bucket_minutes * 60.0
    window = await reader.window(hours * _HOUR, step)
    buckets = await reader.throughput(window.since, window.until, step)
    return ThroughputReport(
        since=window.since,
        until=window.until,
        pending_jobs=window.pending,
        bucket_minutes=bucket_minutes,
        buckets=tuple(map(_bucket_view, buckets)),
    )


async def _check_workflow(app: Application, workflow_id: str | None) -> None:
    """Raise `WorkflowNotFound` if a workflow is named that is not published: its metrics are not just empty."""
    if workflow_id is not None and not await app.read.versions(workflow_id, limit=1):
        raise await workflow_not_found(app, workflow_id)


def _workflow_view(record: WorkflowMetrics, failures: Sequence[FailureView]) -> WorkflowMetricsView:
    durations = record.durations
    return WorkflowMetricsView(
        workflow_id=record.workflow_id,
        total_jobs=record.completed + record.failed + record.cancelled,
        completed=record.completed,
        failed=record.failed,
        cancelled=record.cancelled,
        success_rate=_success_rate(record.completed, record.failed),
        avg_duration=durations.average,
        p50_duration=durations.p50,
        p95_duration=durations.p95,
        percentiles=Percentiles.EXACT if durations.is_exact else Percentiles.HISTOGRAM,
        common_failures=tuple(failure for failure in failures if failure.workflow_id == record.workflow_id),
    )


def _node_view(record: NodeMetrics) -> NodeMetricsView:
    durations = record.durations
    return NodeMetricsView(
        node_id=record.node_id,
        total_executions=record.completed + record.failed + record.skipped + record.cancelled,
        completed=record.completed,
        failed=record.failed,
        skipped=record.skipped,
        cancelled=record.cancelled,
        total_retries=record.retries,
        success_rate=_success_rate(record.completed, record.failed),
        avg_duration=durations.average,
        p50_duration=durations.p50,
        p95_duration=durations.p95,
        percentiles=Percentiles.EXACT if durations.is_exact else Percentiles.HISTOGRAM,
    )


def _period_view(at: float, record: PeriodMetrics | None) -> PeriodView:
    durations = DurationMetrics() if record is None else record.durations
    return PeriodView(
        at=at,
        completed=0 if record is None else record.completed,
        failed=0 if record is None else record.failed,
        cancelled=0 if record is None else record.cancelled,
        avg_duration=durations.average,
        p50_duration=durations.p50,
        p95_duration=durations.p95,
    )


def _success_rate(completed: int, failed: int) -> float | None:
    return completed / (completed + failed) if completed + failed else None


def _bucket_view(record: ThroughputBucket) -> ThroughputBucketView:
    return ThroughputBucketView(
        at=record.at,
        submitted=record.submitted,
        completed=record.completed,
        failed=record.failed,
        cancelled=record.cancelled,
        avg_duration=record.average,
    )


async def _failure_views(app: Application, groups: Sequence[FailureGroup]) -> list[FailureView]:
    redactors = RedactorCache(app)
    views = []
    for group in groups:
        # The inputs of a deleted job are deleted, too: there is nothing to look for, and nothing to read.
        redact = None if group.content_hash is None else await redactors.get(group.job_id, group.content_hash)
        views.append(
            FailureView(
                workflow_id=group.workflow_id,
                node_id=group.node_id or None,
                message=group.message if redact is None else redact(group.message),
                count=group.count,
                job_id=group.job_id,
                last_at=group.last_at,
            )
        )
    return views
