"""The time a worker has to shut down. All steps share one budget, so that they never add up to more."""

from __future__ import annotations

from typing import Final

ASK_SECONDS: Final = 5.0
"""How long tasks may finish by themselves. Then they are asked to stop: they save a checkpoint and are
released."""

CLOSE_SECONDS: Final = 3.0
"""Reserved for the last reports and deregistration. The longest that a worker takes even without a grace
period."""


class ShutdownBudget:
    """Ends `seconds` after its start. Its methods return the time left until a step has to be finished."""

    def __init__(self, seconds: float, now: float) -> None:
        reserved = min(CLOSE_SECONDS, seconds / 3)
        self._cancel_at = now + min(ASK_SECONDS, seconds / 3)
        self._kill_at = now + seconds - reserved
        self._exit_at = now + max(seconds, CLOSE_SECONDS)

    def until_cancel(self, now: float) -> float:
        return max(self._cancel_at - now, 0.0)

    def until_kill(self, now: float) -> float:
        """Return the seconds until tasks that did not stop are killed or abandoned."""
        return max(self._kill_at - now, 0.0)

    def until_deregister(self, now: float) -> float:
        return max(self._exit_at - CLOSE_SECONDS / 3 - now, 0.0)

    def until_exit(self, now: float) -> float:
        return max(self._exit_at - now, 0.0)
