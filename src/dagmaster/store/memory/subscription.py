"""Wake-ups of a reader of a `MemoryDatabase`."""

from __future__ import annotations

import asyncio

from dagmaster.host.clocks import wait_at_most


class MemorySubscription:
    """Waits for notifications of one job."""

    def __init__(self) -> None:
        self.notified = asyncio.Event()

    @property
    def has_notifications(self) -> bool:
        return True

    async def wait(self, timeout_seconds: float) -> bool:
        if not await wait_at_most(self.notified, timeout_seconds):
            return False
        self.notified.clear()
        return True
