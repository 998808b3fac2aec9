"""A clock that a test sets. Nobody sleeps: when only the clock can go on, it jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class FakeClock:
    """Stands still until it is moved, or until nothing else can happen."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        """Give the time."""
        return self._now

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    async def wait(self, event: asyncio.Event, until: float | None, *, idle: bool) -> None:
        """Wait for the event; if nothing else can set it, jump to `until`."""
        if idle and until is not None and not event.is_set():
            self._now = max(self._now, until)
            return
        await event.wait()
