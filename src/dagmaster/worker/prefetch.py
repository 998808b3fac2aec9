"""How many tasks a worker may hold: as many as run, and what will begin within a moment, by what ended lately.

So short tasks come in large batches, and a seat does not stand empty while the next task is claimed: of 200 ms that a
tile takes, a claim is 5. What turns out to wait behind long tasks is handed back (`lanes`).
"""

from __future__ import annotations

from typing import Final

from dagmaster.clocks import loop_time

MAX_PREFETCH: Final = 2_000
AHEAD_SECONDS: Final = 0.1
"""So much work is held beside what runs."""

NEXT_SECONDS: Final = 0.25
"""Or one task for each seat, as far as they begin within this."""

SHORTEST_SECONDS: Final = 0.02
"""Over a shorter span, how many ended says nothing."""


class PrefetchBudget:
    """Holds tasks that run `limit` at a time."""

    __slots__ = ("_ended", "_limit", "_since", "held", "speed")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._since = 0.0
        self._ended = 0
        self.held = 0
        self.speed = 0.0
        """How many end in a second, lately."""

    def free(self) -> int:
        """How many more to hold; none until it is worth a claim."""
        if self.speed and loop_time() - self._since > 1:
            # What was short is long now: what is held must not wait for what runs.
            self._measure(0)
        ahead = min(int(self.speed * AHEAD_SECONDS), MAX_PREFETCH)
        ahead = max(ahead, min(int(self.speed * NEXT_SECONDS), self._limit))
        room = self._limit + ahead - self.held
        return room if room > ahead // 2 else 0

    def take(self) -> None:
        """One more is held."""
        self.held += 1

    def leave(self) -> None:
        """One came to an end."""
        self.held -= 1
        self._measure(1)

    def take_back(self) -> None:
        """One was held for nothing. That is no sign of speed: nothing is held ahead until others end."""
        self.held -= 1
        self.speed, self._since, self._ended = 0.0, loop_time(), 0

    def _measure(self, count: int) -> None:
        now = loop_time()
        passed = now - self._since
        self._ended += count
        if passed >= SHORTEST_SECONDS:
            speed = self._ended / passed
            self.speed = speed if passed > 1 else (self.speed + speed) / 2
            self._since, self._ended = now, 0
