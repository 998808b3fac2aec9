"""How many tasks of each queue a worker finished in the last minute, for its heartbeat."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

WINDOW_SECONDS: Final = 60.0


class QueueThroughput:
    """Counts finished tasks by queue. A task costs one addition: the window is cut when it is read."""

    def __init__(self) -> None:
        self._finished: Counter[str] = Counter()
        self._earlier: deque[tuple[float, Counter[str]]] = deque()

    def add(self, queue: str) -> None:
        self._finished[queue] += 1

    def last_minute(self, now: float) -> dict[str, int]:
        """Return how many tasks of each queue finished in the last minute, as far as reads go back."""
        self._earlier.append((now, self._finished.copy()))
        while len(self._earlier) > 1 and self._earlier[1][0] <= now - WINDOW_SECONDS:
            self._earlier.popleft()
        since, counted = self._earlier[0]
        before = counted if since <= now - WINDOW_SECONDS else Counter[str]()
        return dict(self._finished - before)
