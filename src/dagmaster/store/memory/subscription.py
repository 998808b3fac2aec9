"""Wake-ups of a reader of a `MemoryDatabase`."""

from __future__ import annotations

import asyncio


class MemorySubscription:
    """Waits for notifications of one job."""

    def __init__(self) -> None:
        self.notified = asyncio.Event()

    @property
    def has_notifications(self) -> bool:
        """Return whether notifications arrive: in memory always."""
        return True

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait for the next wake-up; return whether one came."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.notified.wait()
        except TimeoutError:
            return False
        self.notified.clear()
        return True
