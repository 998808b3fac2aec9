"""Draw metrics as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dagmaster.cli.render.text import DIM, duration, local_time
from dagmaster.records.metrics import Percentiles
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from dagmaster.application.views import (
        FailureRecord,
        FailureReport,
        NodeMetricsRecord,
        NodeMetricsReport,
        ThroughputReport,
        WorkflowMetricsRecord,
        WorkflowMetricsReport,
    )


def workflows_tables(report: WorkflowMetricsReport) -> RenderableType:
    """Draw the metrics of workflows, and their common failures below."""
    if not report.workflows:
        return _nothing("no job finished", report.since)
    table = _table("workflow", "jobs", "completed", "failed", "cancelled", "success", "average", "p50", "p95")
    for view in report.workflows:
        counts = (view.total_jobs, view.completed, view.failed, view.cancelled)
        table.add_row(
            Text(view.workflow_id, style="bold"), *map(_number, counts), *_success_and_durations(view)
        )
    failures = [failure for view in report.workflows for failure in view.common_failures]
    return Group(table, Text("\ncommon failures", style=DIM), _failures(failures)) if failures else table


def nodes_table(report: NodeMetricsReport) -> RenderableType:
    if not report.nodes:
        return _nothing(f"no job of {report.workflow_id} finished", report.since)
    table = _table(
        "node", "runs", "completed", "failed", "skipped", "retries", "success", "average", "p50", "p95"
    )
    for view in report.nodes:
        counts = (view.total_executions, view.completed, view.failed, view.skipped, view.total_retries)
        table.add_row(Text(view.node_id, style="bold"), *map(_number, counts), *_success_and_durations(view))
    return table


def failures_table(report: FailureReport) -> RenderableType:
    return _failures(report.failures) if report.failures else _nothing("no job failed", report.since)


def throughput_table(report: ThroughputReport) -> RenderableType:
    table = _table("from", "submitted", "completed", "failed", "cancelled", "average")
    for view in report.buckets:
        counts = (view.submitted, view.completed, view.failed, view.cancelled)
        table.add_row(format_rfc3339(view.at), *map(_number, counts), _duration(view.avg_duration))
    return table


def _failures(views: Iterable[FailureRecord]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for name in ("count", "workflow", "node", "last", "job", "message"):
        table.add_column(name, no_wrap=name != "message", justify="right" if name == "count" else "left")
    for view in views:
        table.add_row(
            f"{view.count:,}",
            Text(view.workflow_id, style="bold"),
            Text(view.node_id or ""),
            local_time(view.last_at),
            view.job_id,
            Text(view.message),
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for index, name in enumerate(columns):
        table.add_column(name, no_wrap=True, justify="right" if index else "left")
    return table


def _success_and_durations(view: WorkflowMetricsRecord | NodeMetricsRecord) -> tuple[str, ...]:
    rate = "" if view.success_rate is None else f"{view.success_rate:.1%}"
    about = "~" if view.percentiles is Percentiles.HISTOGRAM else ""
    p50, p95 = (_duration(seconds, about) for seconds in (view.p50_duration, view.p95_duration))
    return rate, _duration(view.avg_duration), p50, p95


def _duration(seconds: float | None, prefix: str = "") -> str:
    return "" if seconds is None else prefix + duration(seconds)


def _number(count: int) -> str:
    return f"{count:,}"


def _nothing(fact: str, since: float) -> Text:
    return Text(f"{fact} since {format_rfc3339(since)}", style=DIM)
