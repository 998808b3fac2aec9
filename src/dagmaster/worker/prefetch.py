"""How many tasks a worker may hold: those that run, plus a prefetch sized by the recent completion rate.

Short tasks are claimed in large batches, and no slot stays empty during the next claim: a tile takes 200 ms,
a claim 5. Tasks that turn out to wait behind long ones are released (`task_pools`).
"""

from __future__ import annotations

from typing import Final

from dagmaster.host.clocks import loop_time

MAX_PREFETCH: Final = 2_000
PREFETCH_SECONDS: Final = 0.1
"""Work held beyond what runs, in seconds of completions."""

NEXT_SECONDS: Final = 0.25
"""Or one task per slot, as far as they start within this time."""

MIN_MEASURE_SECONDS: Final = 0.02
"""Shortest interval over which a completion rate is measured."""


class PrefetchBudget:
    """Counts held tasks, of which `limit` run at a time."""

    __slots__ = ("_finished", "_limit", "_since", "held", "rate")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._since = 0.0
        self._finished = 0
        self.held = 0
        self.rate = 0.0
        """Recent completions per second."""

    def free(self) -> int:
        """Return how many more tasks to claim; 0 until a claim is worth its cost."""
        if self.rate and loop_time() - self._since > 1:
            # Tasks have become long: held ones must not wait behind those that run.
            self._measure(0)
        prefetch = min(int(self.rate * PREFETCH_SECONDS), MAX_PREFETCH)
        prefetch = max(prefetch, min(int(self.rate * NEXT_SECONDS), self._limit))
        free = self._limit + prefetch - self.held
        return free if free > prefetch // 2 else 0

    def add(self) -> None:
        self.held += 1

    def finish(self) -> None:
        self.held -= 1
        self._measure(1)

    def release(self) -> None:
        """Count a task as released without a result.

        That is no completion: prefetch stops until others finish.
        """
        self.held -= 1
        self.rate, self._since, self._finished = 0.0, loop_time(), 0

    def _measure(self, count: int) -> None:
        now = loop_time()
        elapsed = now - self._since
        self._finished += count
        if elapsed >= MIN_MEASURE_SECONDS:
            rate = self._finished / elapsed
            self.rate = rate if elapsed > 1 else (self.rate + rate) / 2
            self._since, self._finished = now, 0
