"""Charts as shapes of an SVG: the server computes them, and a template draws them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import ThroughputBucketView, ThroughputReport

WIDTH: Final = 720
HEIGHT: Final = 120
_GAP: Final = 0.25
"""The part of a bar's place that stays empty."""


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
    """A chart of bars. `peak`: what the highest one stands for. `summary`: the chart as a sentence."""

    bars: tuple[Bar, ...]
    peak: int
    summary: str
    first: str
    last: str
    width: int = WIDTH
    height: int = HEIGHT


def throughput_chart(report: ThroughputReport) -> BarChart:
    """Return finished jobs over time, by how they ended."""
    peak = max((_finished(bucket) for bucket in report.buckets), default=0)
    place = WIDTH / max(len(report.buckets), 1)
    bars = [
        Bar(
            round(index * place, 2),
            round(place * (1 - _GAP), 2),
            _stack([("ok", bucket.completed), ("failed", bucket.failed), ("skipped", bucket.cancelled)], peak),
            f"{_time(bucket.at)}: {_words(bucket.completed, bucket.failed, bucket.cancelled)},"
            f" {bucket.submitted:,} submitted",
        )
        for index, bucket in enumerate(report.buckets)
    ]
    totals = [sum(getattr(bucket, name) for bucket in report.buckets) for name in ("completed", "failed", "cancelled")]
    return BarChart(bars=tuple(bars), peak=peak, summary=_words(*totals), first=_time(report.since), last="now")


def _finished(bucket: ThroughputBucketView) -> int:
    return bucket.completed + bucket.failed + bucket.cancelled


def _words(completed: int, failed: int, cancelled: int) -> str:
    return f"{completed:,} completed, {failed:,} failed, {cancelled:,} cancelled"


def _stack(parts: Sequence[tuple[str, int]], peak: int) -> tuple[Segment, ...]:
    segments = []
    y = float(HEIGHT)
    for tone, count in parts:
        if not count:
            continue
        # At least one pixel: a single failure beside thousands of successes has to be seen.
        height = max(count / peak * HEIGHT, 2.0)
        y -= height
        segments.append(Segment(round(max(y, 0.0), 2), round(height, 2), tone))
    return tuple(segments)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%d %b %H:%M} UTC"
