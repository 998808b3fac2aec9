"""Clocks: this machine's, and one that follows the database's."""

from __future__ import annotations

import asyncio
import time


def loop_time() -> float:
    """Return the monotonic time of the running event loop; in a simulation this is the simulated time."""
    return asyncio.get_running_loop().time()


async def wait_at_most(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most so long; return whether it happened.

    `asyncio.wait_for` of Python 3.11 makes a task of the wait and cancels it: eight callbacks instead of two.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class SystemClock:
    """The time of this machine, made monotonic: the wall clock is read once, then elapsed time is added."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()

    async def wait(
        self,
        event: asyncio.Event,
        until: float | None,
        *,
        idle: bool,  # noqa: ARG002 - the port
    ) -> None:
        if until is None:
            await event.wait()
        else:
            await wait_at_most(event, max(until - self.now(), 0))


class SyncedClock(SystemClock):
    """The time of another clock, the database's: its last known time plus the time elapsed here since."""

    def sync(self, now: float) -> None:
        self._offset = now - time.monotonic()
