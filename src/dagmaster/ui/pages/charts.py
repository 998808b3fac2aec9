"""Charts as shapes of an SVG: the server computes them, a template draws them and a table of the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dagmaster.text_format import format_count
from dagmaster.ui.pages.times import format_optional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import (
        DurationReport,
        PeriodRecord,
        ThroughputBucketRecord,
        ThroughputReport,
        WorkflowHistoryReport,
    )

WIDTH: Final = 720
HEIGHT: Final = 120
_GAP: Final = 0.25
"""The part of a bar's place that stays empty."""
_ENDS: Final = (("ok", "completed"), ("failed", "failed"), ("skipped", "cancelled"))


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    y: float
    height: float
    tone: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart, and what it says when it is pointed at."""

    x: float
    width: float
    segments: tuple[Segment, ...]
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """A chart of bars. `summary`: the chart as a sentence; `peak`: what the highest bar stands for.

    `axis`: a label for each bar, or one for the first and one for the last. `columns` and `rows`: the same as
    a table.
    """

    title: str
    summary: str
    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str], ...]
    peak: str
    axis: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_empty: bool
    width: int = WIDTH
    height: int = HEIGHT


def throughput_chart(report: ThroughputReport) -> BarChart:
    rows = [
        (_time(bucket.at), *_counts(bucket), f"{bucket.submitted:,}", format_optional(bucket.avg_duration))
        for bucket in report.buckets
    ]
    return _finished_chart(
        "Finished jobs over time",
        report.buckets,
        columns=("From", "Completed", "Failed", "Cancelled", "Submitted", "Average duration"),
        rows=rows,
        axis=(_time(report.since), "now"),
    )


def history_chart(report: WorkflowHistoryReport) -> BarChart:
    return _finished_chart(
        "Finished jobs over time",
        report.periods,
        columns=("From", "Completed", "Failed", "Cancelled"),
        rows=[(_time(period.at), *_counts(period)) for period in report.periods],
        axis=(_time(report.since), "now"),
    )


def duration_chart(report: WorkflowHistoryReport) -> BarChart:
    """Return how long the jobs of a workflow took over time: half of them at most p50, 95 % at most p95."""
    timed = [(period, period.p50_duration or 0.0, period.p95_duration or 0.0) for period in report.periods]
    peak = max((p95 for _, _, p95 in timed), default=0.0)
    bars = [
        _bar(
            index,
            len(timed),
            [("running", p50), ("waiting", p95 - p50)],
            peak,
            f"{_time(period.at)}: {_percentiles(period)}",
        )
        for index, (period, p50, p95) in enumerate(timed)
    ]
    measured = [period for period, _, _ in timed if period.p95_duration is not None]
    last = measured[-1] if measured else None
    return BarChart(
        title="Duration of completed jobs over time",
        summary="No job completed." if last is None else f"Lately {_percentiles(last)}",
        bars=tuple(bars),
        legend=(("running", "p50"), ("waiting", "p95")),
        peak=format_optional(peak),
        axis=(_time(report.since), "now"),
        columns=("From", "Average", "p50", "p95"),
        rows=tuple(
            (
                _time(period.at),
                *map(format_optional, (period.avg_duration, period.p50_duration, period.p95_duration)),
            )
            for period in report.periods
        ),
        is_empty=not measured,
    )


def histogram_chart(report: DurationReport) -> BarChart:
    peak = max((bucket.completed + bucket.failed for bucket in report.buckets), default=0)
    bounds = [bucket.up_to_seconds for bucket in report.buckets]
    labels = [_bound(bounds, index) for index in range(len(bounds))]
    bars = [
        _bar(
            index,
            len(bounds),
            [("ok", bucket.completed), ("failed", bucket.failed)],
            peak,
            f"{labels[index]}: {bucket.completed:,} completed, {bucket.failed:,} failed",
        )
        for index, bucket in enumerate(report.buckets)
    ]
    completed, failed = (
        sum(getattr(bucket, name) for bucket in report.buckets) for name in ("completed", "failed")
    )
    return BarChart(
        title="Duration of finished executions",
        summary=f"{format_count(completed + failed, 'execution')}:"
        f" {completed:,} completed, {failed:,} failed",
        bars=tuple(bars),
        legend=_ENDS[:2],
        peak=f"{peak:,}",
        axis=tuple(labels),
        columns=("Took", "Completed", "Failed"),
        rows=tuple(
            (label, f"{bucket.completed:,}", f"{bucket.failed:,}")
            for label, bucket in zip(labels, report.buckets, strict=True)
        ),
        is_empty=not peak,
    )


def _finished_chart(
    title: str,
    buckets: Sequence[ThroughputBucketRecord | PeriodRecord],
    *,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    axis: tuple[str, ...],
) -> BarChart:
    peak = max((bucket.completed + bucket.failed + bucket.cancelled for bucket in buckets), default=0)
    bars = [
        _bar(
            index,
            len(buckets),
            [("ok", bucket.completed), ("failed", bucket.failed), ("skipped", bucket.cancelled)],
            peak,
            f"{_time(bucket.at)}: {_words(bucket.completed, bucket.failed, bucket.cancelled)}",
        )
        for index, bucket in enumerate(buckets)
    ]
    totals = [
        sum(getattr(bucket, name) for bucket in buckets) for name in ("completed", "failed", "cancelled")
    ]
    return BarChart(
        title=title,
        summary=_words(*totals),
        bars=tuple(bars),
        legend=_ENDS,
        peak=f"{peak:,}",
        axis=axis,
        columns=columns,
        rows=tuple(rows),
        is_empty=not peak,
    )


def _bar(index: int, count: int, parts: Sequence[tuple[str, float]], peak: float, title: str) -> Bar:
    place = WIDTH / max(count, 1)
    x = round((index + _GAP / 2) * place, 2)
    return Bar(x, round(place * (1 - _GAP), 2), _stack(parts, peak), title)


def _stack(parts: Sequence[tuple[str, float]], peak: float) -> tuple[Segment, ...]:
    segments = []
    y = float(HEIGHT)
    for tone, value in parts:
        if value <= 0:
            continue
        # At least two units: a single failure among thousands of successes has to be seen.
        height = max(value / peak * HEIGHT, 2.0)
        y -= height
        segments.append(Segment(round(max(y, 0.0), 2), round(height, 2), tone))
    return tuple(segments)


def _counts(bucket: ThroughputBucketRecord | PeriodRecord) -> tuple[str, str, str]:
    return f"{bucket.completed:,}", f"{bucket.failed:,}", f"{bucket.cancelled:,}"


def _percentiles(period: PeriodRecord) -> str:
    return f"p50 {format_optional(period.p50_duration)}, p95 {format_optional(period.p95_duration)}"


def _words(completed: int, failed: int, cancelled: int) -> str:
    return f"{completed:,} completed, {failed:,} failed, {cancelled:,} cancelled"


def _bound(bounds: Sequence[float | None], index: int) -> str:
    bound = bounds[index]
    if bound is None:
        return f"> {_short(bounds[index - 1] or 0.0)}"
    return f"≤ {_short(bound)}"


def _short(seconds: float) -> str:
    """Return a round bound: 30 ms, 3 s, 5 min, 1 h."""
    for size, unit in ((3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1000:g} ms"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%d %b %H:%M} UTC"
