"""The time that a worker has to stop. All steps share it, so that they never add up to more."""

from __future__ import annotations

from typing import Final

ASK_SECONDS: Final = 5.0
"""So long tasks may end by themselves. Then they are asked to stop: they save a checkpoint, and are handed back."""

CLOSE_SECONDS: Final = 3.0
"""What is kept of the grace, to report and to say goodbye. A worker takes so long at most even without a grace."""


class ShutdownBudget:
    """Ends `seconds` after it began. Its methods say how much time is left, now, until a step has to be over."""

    def __init__(self, seconds: float, now: float) -> None:
        kept = min(CLOSE_SECONDS, seconds / 3)
        self._asks_at = now + min(ASK_SECONDS, seconds / 3)
        self._gives_up_at = now + seconds - kept
        self._ends_at = now + max(seconds, CLOSE_SECONDS)

    def until_cancel(self, now: float) -> float:
        """Until tasks are asked to stop."""
        return max(self._asks_at - now, 0.0)

    def until_kill(self, now: float) -> float:
        """Until tasks that were asked and go on are killed, or given up."""
        return max(self._gives_up_at - now, 0.0)

    def until_deregister(self, now: float) -> float:
        """Until nothing is waited for but the goodbye."""
        return max(self._ends_at - CLOSE_SECONDS / 3 - now, 0.0)

    def until_exit(self, now: float) -> float:
        """Until all is over."""
        return max(self._ends_at - now, 0.0)
