"""Queries about what finished jobs show: success, durations, failures, throughput."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.secret_inputs import RedactorCache
from dagmaster.application.views.metrics import (
    DurationBucketView,
    DurationReport,
    FailureReport,
    NodeMetricsReport,
    ThroughputReport,
    WorkflowHistoryReport,
    WorkflowMetricsReport,
)
from dagmaster.application.workflow_lookup import workflow_not_found
from dagmaster.ports.metrics import PERIOD_SECONDS
from dagmaster.records.metrics import (
    PeriodRecord,
    WorkflowMetricsRecord,
)
from dagmaster.records.redacted import mark_redacted, redacted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.records.metrics import (
        FailureRecord,
        WorkflowMetricsRecord,
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
    failures = await _redact_failures(app, groups)
    return WorkflowMetricsReport.of(
        window,
        workflows=tuple(_with_failures(workflow, failures) for workflow in workflows),
    )


async def node_metrics(app: Application, workflow_id: str, *, days: int = 7) -> NodeMetricsReport:
    """Return the metrics of a workflow's nodes; raise `WorkflowNotFound` if it is not known."""
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    nodes = await reader.nodes(workflow_id, window.since)
    if not nodes:
        await _check_workflow(app, workflow_id)
    return NodeMetricsReport.of(
        window,
        workflow_id=workflow_id,
        nodes=tuple(nodes),
    )


async def workflow_history(app: Application, workflow_id: str, *, days: int = 7) -> WorkflowHistoryReport:
    """Return a workflow's finished jobs by period; raise `WorkflowNotFound` if it is not known."""
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    periods = {record.at: record for record in await reader.history(workflow_id, window.since)}
    if not periods:
        await _check_workflow(app, workflow_id)
    starts = [
        window.since + number * PERIOD_SECONDS
        for number in range(math.ceil(days * _DAY / PERIOD_SECONDS) + 1)
    ]
    return WorkflowHistoryReport.of(
        window,
        workflow_id=workflow_id,
        period_seconds=PERIOD_SECONDS,
        periods=tuple(periods.get(at, PeriodRecord(at=at)) for at in starts if at < window.until),
    )


async def node_durations(
    app: Application, *, workflow_id: str | None = None, days: int = 7
) -> DurationReport:
    """Return how long nodes took in jobs that finished within so many days, as a histogram."""
    reader = app.read.metrics
    window = await reader.window(days * _DAY, PERIOD_SECONDS)
    bins = await reader.node_durations(window.since, workflow_id=workflow_id)
    places = [bisect_left(DURATION_BOUNDS, one.seconds) for one in bins]
    return DurationReport.of(
        window,
        workflow_id=workflow_id,
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
    failures = await _redact_failures(
        app, await reader.failures(window.since, workflow_id=workflow_id, limit=limit)
    )
    if not failures:
        await _check_workflow(app, workflow_id)
    return FailureReport.of(window, failures=failures)


async def throughput(app: Application, *, hours: int = 24, bucket_minutes: int = 60) -> ThroughputReport:
    """Return the jobs of each period of so many minutes.

    Longer periods are used if there would be too many.
    """
    reader = app.read.metrics
    bucket_minutes = max(bucket_minutes, -(-hours * 60 // MAX_BUCKETS))
    step = bucket_minutes * 60.0
    window = await reader.window(hours * _HOUR, step)
    buckets = await reader.throughput(window.since, window.until, step)
    return ThroughputReport.of(
        window,
        bucket_minutes=bucket_minutes,
        buckets=tuple(buckets),
    )


async def _check_workflow(app: Application, workflow_id: str | None) -> None:
    """Raise `WorkflowNotFound` if the named workflow is not published: its metrics are not just empty."""
    if workflow_id is not None and not await app.read.versions(workflow_id, limit=1):
        raise await workflow_not_found(app, workflow_id)


def _with_failures(
    workflow: WorkflowMetricsRecord, failures: Sequence[FailureRecord]
) -> WorkflowMetricsRecord:
    common = tuple(failure for failure in failures if failure.workflow_id == workflow.workflow_id)
    return replace(workflow, common_failures=common)


async def _redact_failures(app: Application, failures: Sequence[FailureRecord]) -> tuple[FailureRecord, ...]:
    redactors = RedactorCache(app)
    shown: list[FailureRecord] = []
    for failure in failures:
        if failure.content_hash is None:
            # The inputs of a deleted job are deleted: there is nothing to look for, and nothing to read.
            shown.append(mark_redacted(failure))
        else:
            redact = await redactors.get(failure.job_id, failure.content_hash)
            shown.append(redacted(failure, redact))
    return tuple(shown)
