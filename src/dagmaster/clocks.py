"""Clocks: this machine's, and one that follows the database's."""

from __future__ import annotations

import asyncio
import time


def loop_time() -> float:
    """Return the monotonic time of the running event loop; in a simulation this is the simulated time."""
    return asyncio.get_running_loop().time()


class SystemClock:
    """The time of this machine, made monotonic: the wall clock is read once, then elapsed time is added."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Return the current time."""
        return self._offset + time.monotonic()

    async def wait(self, event: asyncio.Event, until: float | None, *, idle: bool) -> None:  # noqa: ARG002 - the port
        """Wait for the event, at most until this time."""
        if until is None:
            await event.wait()
            return
        try:
            async with asyncio.timeout(max(until - self.now(), 0)):
                await event.wait()
        except TimeoutError:
            return


class SyncedClock(SystemClock):
    """The time of another clock, the database's: its last known time plus the time elapsed here since."""

    def sync(self, now: float) -> None:
        """Set the current time."""
        self._offset = now - time.monotonic()
