"""What a benchmark gives: rows of a table."""

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
    """One figure, and the one to reach (at least, or at most).

    `floor` is what the same work takes by hand, in the same run and the same unit; `wanted` says the figure to reach in
    words, where it was computed from the floor.
    """

    workload: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    floor: float | None = None
    wanted: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the figure to reach is reached; None where there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    @property
    def ratio(self) -> float | None:
        """The figure, as a multiple of the floor."""
        return self.value / self.floor if self.floor else None

    @property
    def verdict(self) -> str:
        """Whether it holds, and else by how much it misses."""
        if self.reached is None:
            return ""
        if self.reached:
            return "holds"
        far = self.value / self.at_most if self.at_most else (self.at_least or 0) / max(self.value, 1e-9)
        return f"misses by {far:.2f}x" if far < 100 else f"misses by {far:,.0f}x"


def seconds(work: Callable[[], object], *, repeat: int = 5) -> float:
    """Give the median time of some runs."""
    taken = []
    for _ in range(repeat):
        gc.collect()
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
