"""Charts: shapes of an SVG, and the same numbers as a sentence and as a table."""

from __future__ import annotations

from typing import Any

from dagmaster.application.views import (
    DurationBucketView,
    DurationReport,
    PeriodRecord,
    ThroughputBucketRecord,
    ThroughputReport,
    WorkflowHistoryReport,
)
from dagmaster.ui.pages.charts import (
    HEIGHT,
    WIDTH,
    duration_chart,
    histogram_chart,
    history_chart,
    throughput_chart,
)

WINDOW: dict[str, Any] = {"since": 0.0, "until": 7200.0, "pending_jobs": 0}


def a_history(*percentiles: tuple[float, float] | None) -> WorkflowHistoryReport:
    periods = [
        PeriodRecord(
            at=number * 21_600.0,
            completed=0 if one is None else 4,
            failed=0,
            cancelled=0,
            avg_duration=None if one is None else one[0],
            p50_duration=None if one is None else one[0],
            p95_duration=None if one is None else one[1],
        )
        for number, one in enumerate(percentiles)
    ]
    return WorkflowHistoryReport(
        workflow_id="flow", period_seconds=21_600.0, periods=tuple(periods), **WINDOW
    )


def test_the_highest_bar_fills_the_chart_and_a_single_failure_is_seen():
    buckets = [
        ThroughputBucketRecord(at=0.0, submitted=9, completed=9_999, failed=1, cancelled=0, avg_duration=1.5),
        ThroughputBucketRecord(at=3600.0, submitted=0, completed=0, failed=0, cancelled=0, avg_duration=None),
    ]
    chart = throughput_chart(ThroughputReport(bucket_minutes=60, buckets=tuple(buckets), **WINDOW))
    completed, failed = chart.bars[0].segments
    assert (completed.tone, failed.tone) == ("ok", "failed")
    assert completed.height > HEIGHT * 0.99
    assert failed.height >= 2
    assert chart.bars[1].segments == ()
    assert chart.bars[1].x + chart.bars[1].width <= WIDTH
    assert chart.summary == "9,999 completed, 1 failed, 0 cancelled"
    assert chart.rows[0] == ("01 Jan 00:00 UTC", "9,999", "1", "0", "9", "1.5 s")
    assert not chart.is_empty


def test_durations_are_stacked_from_p50_to_p95():
    chart = duration_chart(a_history((1.0, 4.0), None, (2.0, 2.0)))
    lower, upper = chart.bars[0].segments
    assert (lower.height, upper.height) == (HEIGHT / 4, HEIGHT * 3 / 4)
    assert chart.bars[1].segments == ()
    assert (chart.peak, chart.summary) == ("4.0 s", "Lately p50 2.0 s, p95 2.0 s")
    assert chart.rows[1] == ("01 Jan 06:00 UTC", "\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}")


def test_a_chart_without_jobs_says_so():
    assert duration_chart(a_history(None)).is_empty
    assert history_chart(a_history(None)).is_empty
    assert histogram_chart(DurationReport(workflow_id=None, buckets=(), **WINDOW)).is_empty


def test_a_histogram_names_its_bounds():
    buckets = [(0.03, 3, 1), (60.0, 0, 0), (3600.0, 1, 0), (None, 0, 2)]
    report = DurationReport(
        workflow_id="flow",
        buckets=tuple(
            DurationBucketView(up_to_seconds=at, completed=ok, failed=bad) for at, ok, bad in buckets
        ),
        **WINDOW,
    )
    chart = histogram_chart(report)
    assert chart.axis == ("≤ 30 ms", "≤ 1 min", "≤ 1 h", "> 1 h")
    assert chart.rows[3] == ("> 1 h", "0", "2")
    assert chart.summary == "7 executions: 4 completed, 3 failed"
    assert len(chart.bars) == 4
