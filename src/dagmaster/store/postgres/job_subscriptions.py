"""Wake-ups of readers: one listening connection for all, one channel for each job, one for all feeds."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DatabaseUnavailable
from dagmaster.store.postgres.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dagmaster.ports.database_config import DatabaseConfig


TURNS: Final = "dagmaster_turns"
"""The channel of feeds: the ids of watched jobs, one after each turn."""


class JobSubscription:
    """Waits for notifications of one job."""

    def __init__(self, listener: Connection) -> None:
        self._listener = listener
        self._losses = listener.losses
        self.notified = asyncio.Event()

    @property
    def has_notifications(self) -> bool:
        return self._listener.can_listen

    async def wait(self, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                if self._listener.can_listen:
                    # Connect again if the connection was lost: the channels are listened to again.
                    await self._listener.open()
                if self._losses == self._listener.losses:
                    await self.notified.wait()
        except TimeoutError:
            return False
        except DatabaseUnavailable:
            # The caller reads next and gets the error; the pause keeps it from a busy loop.
            await asyncio.sleep(min(timeout_seconds, 1.0))
            return False
        # After a loss, a notification may have been missed until the channels were listened to again.
        self._losses = self._listener.losses
        self.notified.clear()
        return True


class JobSubscriptions:
    """The subscriptions of one process. Behind a pooler without a direct address no notification arrives."""

    def __init__(self, config: DatabaseConfig, name: str) -> None:
        self.listener = Connection(config, name, listens=True, on_disconnect=self._wake_all)
        self._by_channel: dict[str, set[JobSubscription]] = {}
        self._feeds: set[Callable[[str | None], None]] = set()

    @asynccontextmanager
    async def subscribe(self, job_id: int | None) -> AsyncIterator[JobSubscription]:
        subscription = JobSubscription(self.listener)
        if job_id is None:
            yield subscription
            return
        channel = f"dagmaster_job_{job_id}"
        subscriptions = self._by_channel.setdefault(channel, set())
        subscriptions.add(subscription)
        try:
            await self._listen(channel)
            yield subscription
        finally:
            subscriptions.discard(subscription)
            if not subscriptions:
                self._by_channel.pop(channel, None)
                await self.listener.unlisten(channel)
                if channel in self._by_channel:
                    # Another reader came meanwhile.
                    await self._listen(channel)

    async def add_feed(self, on_turn: Callable[[str | None], None]) -> None:
        """Call with the id of each watched job after a turn; with None if notifications may be missing."""
        self._feeds.add(on_turn)
        await self.listener.listen(TURNS, self._on_turn)

    async def remove_feed(self, on_turn: Callable[[str | None], None]) -> None:
        self._feeds.discard(on_turn)
        if not self._feeds:
            await self.listener.unlisten(TURNS)

    async def close(self) -> None:
        await self.listener.close()

    async def _listen(self, channel: str) -> None:
        await self.listener.listen(channel, lambda _payload: self._wake(channel))

    def _wake(self, channel: str) -> None:
        for subscription in self._by_channel.get(channel, ()):
            subscription.notified.set()

    def _wake_all(self) -> None:
        """Wake every reader: notifications may have been missed while the connection was lost."""
        for channel in self._by_channel:
            self._wake(channel)
        self._on_turn(None)

    def _on_turn(self, job_id: str | None) -> None:
        for feed in tuple(self._feeds):
            feed(job_id)
