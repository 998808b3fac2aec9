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
    """One figure, and the one to reach (at least, or at most)."""

    workload: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the figure to reach is reached; None where there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most


def seconds(work: Callable[[], object], *, repeat: int = 5) -> float:
    """Give the median time of some runs."""
    taken = []
    for _ in range(repeat):
        gc.collect()
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
