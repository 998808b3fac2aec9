"""The clock: the one place where time comes in."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, in seconds since the epoch, and waits."""

    def now(self) -> float:
        """Give the time."""

    async def wait(self, event: asyncio.Event, until: float | None, *, idle: bool) -> None:
        """Wait for the event, at most until this time. `idle`: nothing but the clock can set it."""


def loop_time() -> float:
    """What passes, by the clock of the loop that runs. In a simulation it is the simulation's."""
    return asyncio.get_running_loop().time()


class SystemClock:
    """The time of this machine, which never runs backwards: what passed is counted, not read off the wall."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Give the time."""
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
    """The time of another clock, the database's: as it was told, plus what passed here since."""

    def sync(self, now: float) -> None:
        """It is now so late."""
        self._offset = now - time.monotonic()
