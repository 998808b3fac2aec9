"""The rows that a benchmark yields."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Row:
    """One figure and its target (`at_least` or `at_most`).

    `floor` is the figure of the same work in hand-written code, measured in the same run and unit. `target` is the
    target in words, where it was computed from the floor.
    """

    workload: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    floor: float | None = None
    target: str = ""

    @property
    def reached(self) -> bool | None:
        """Return whether the target is reached, or None if there is no target."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    @property
    def ratio(self) -> float | None:
        """Return the figure as a multiple of the floor."""
        return self.value / self.floor if self.floor else None

    @property
    def verdict(self) -> str:
        """Return "holds", or by which factor the target is missed."""
        if self.reached is None:
            return ""
        if self.reached:
            return "holds"
        factor = self.value / self.at_most if self.at_most else (self.at_least or 0) / max(self.value, 1e-9)
        return f"misses by {factor:.2f}x" if factor < 100 else f"misses by {factor:,.0f}x"


def format_value(value: float) -> str:
    """Format a figure with about three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def median_seconds(work: Callable[[], object], *, repeat: int = 5) -> float:
    """Run `work` several times and return the median of its wall-clock seconds."""
    durations = []
    for _ in range(repeat):
        gc.collect()
        started = time.perf_counter()
        work()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations)
