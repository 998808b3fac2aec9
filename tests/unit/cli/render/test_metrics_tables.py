"""Metrics as tables: percentiles of a histogram are marked, and a table without rows says so."""

from __future__ import annotations

from rich.console import Console

from dagmaster.application.views.metrics import FailureReport, WorkflowMetricsReport
from dagmaster.cli.render.metrics_tables import failures_table, workflows_tables
from dagmaster.records.metrics import FailureRecord, Percentiles, WorkflowMetricsRecord

FAILURE = FailureRecord(
    workflow_id="w", node_id="load", message="[red]no <n>", count=1234, job_id="7", last_at=0.0
)
WORKFLOW = WorkflowMetricsRecord(
    workflow_id="w", completed=15, failed=5, cancelled=0, avg_duration=0.25,
    p50_duration=61.0, p95_duration=7300.0, percentiles=Percentiles.HISTOGRAM, common_failures=(FAILURE,),
)  # fmt: skip


def text_of(drawn: object) -> str:
    console = Console(width=150, color_system=None)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def test_percentiles_of_a_histogram_are_marked_and_messages_are_no_markup():
    text = text_of(
        workflows_tables(WorkflowMetricsReport(since=0.0, until=1.0, pending_jobs=0, workflows=(WORKFLOW,)))
    )
    assert "75.0%   250 ms  ~1 min 1 s  ~2 h 1 min" in text
    assert "1,234  w         load" in text
    assert "[red]no <n>" in text


def test_no_failures_is_a_sentence():
    text = text_of(failures_table(FailureReport(since=0.0, until=1.0, pending_jobs=0, failures=())))
    assert text == "no job failed since 1970-01-01T00:00:00Z\n"
