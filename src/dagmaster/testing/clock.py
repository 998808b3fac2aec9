"""A clock that a test controls. Nothing sleeps: when everything waits for the clock, it jumps."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class FakeClock:
    """A clock that stands still until a test moves it, or until everything waits for it."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def move(self, seconds: float) -> None:
        """Advance the time; less than 0 sets the clock back."""
        if not isfinite(seconds):
            raise ValueError(f"a clock moves by a number of seconds, not by {seconds!r:.100}")
        self._now += seconds

    async def wait(self, event: asyncio.Event, until: float | None, *, idle: bool) -> None:
        """Wait for the event; if nothing else can set it, jump to `until`."""
        if idle and until is not None and not event.is_set():
            self._now = max(self._now, until)
            return
        await event.wait()
