"""Wake-ups of readers: one listening connection for all of them, one channel for each job."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dagmaster.errors import DatabaseUnavailable
from dagmaster.store.postgres.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dagmaster.ports.database_config import DatabaseConfig


class JobSubscription:
    """Waits for notifications of one job."""

    def __init__(self, listener: Connection) -> None:
        self._listener = listener
        self._losses = listener.losses
        self._notified = asyncio.Event()

    @property
    def has_notifications(self) -> bool:
        """Return whether notifications arrive: not behind a pooler without a direct URL."""
        return self._listener.can_listen

    def wake(self) -> None:
        """End the wait."""
        self._notified.set()

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait for the next wake-up; return whether one came."""
        try:
            async with asyncio.timeout(timeout_seconds):
                if self._listener.can_listen:
                    # Connect again if the connection was lost: the channels are listened to again.
                    await self._listener.open()
                if self._losses == self._listener.losses:
                    await self._notified.wait()
        except TimeoutError:
            return False
        except DatabaseUnavailable:
            # The caller reads next and gets the error; the pause keeps it from a busy loop.
            await asyncio.sleep(min(timeout_seconds, 1.0))
            return False
        # After a loss, a notification may have been missed until the channels were listened to again.
        self._losses = self._listener.losses
        self._notified.clear()
        return True


class JobSubscriptions:
    """The subscriptions of one process. Behind a pooler without a direct address no notification arrives."""

    def __init__(self, config: DatabaseConfig, name: str) -> None:
        self.listener = Connection(config, name, listens=True, on_disconnect=self._wake_all)
        self._by_channel: dict[str, set[Callable[[], None]]] = {}

    @asynccontextmanager
    async def subscribe(self, job_id: int | None) -> AsyncIterator[JobSubscription]:
        """Listen for changes of a job."""
        subscription = JobSubscription(self.listener)
        if job_id is None:
            yield subscription
            return
        try:
            await self.add(job_id, subscription.wake)
            yield subscription
        finally:
            await self.remove(job_id, subscription.wake)

    async def add(self, job_id: int, wake: Callable[[], None]) -> None:
        """Call on every notification of a job, and when the connection is lost."""
        channel = _channel(job_id)
        self._by_channel.setdefault(channel, set()).add(wake)
        await self._listen(channel)

    async def remove(self, job_id: int, wake: Callable[[], None]) -> None:
        """Do not call any more. Without another reader of the job, its channel is not listened to."""
        channel = _channel(job_id)
        wakes = self._by_channel.get(channel, set())
        wakes.discard(wake)
        if not wakes:
            self._by_channel.pop(channel, None)
            await self.listener.unlisten(channel)
            if channel in self._by_channel:
                # Another reader came meanwhile.
                await self._listen(channel)

    async def close(self) -> None:
        """Close the listening connection."""
        await self.listener.close()

    async def _listen(self, channel: str) -> None:
        await self.listener.listen(channel, lambda _payload: self._wake(channel))

    def _wake(self, channel: str) -> None:
        for wake in tuple(self._by_channel.get(channel, ())):
            wake()

    def _wake_all(self) -> None:
        """Wake every reader: notifications may have been missed while the connection was lost."""
        for channel in tuple(self._by_channel):
            self._wake(channel)


def _channel(job_id: int) -> str:
    return f"dagmaster_job_{job_id}"
