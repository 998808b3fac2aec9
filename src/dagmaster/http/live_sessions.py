"""The live connections of a server: messages, heartbeats, the end of slow, closed or stopped ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.application.stream_messages import EndReason, MessageType, StreamMessage, end
from dagmaster.errors import Category, DagmasterError, DatabaseUnavailable, StreamLimitExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

HEARTBEAT_SECONDS: Final = 15.0
SLOW_SECONDS: Final = 30.0
"""How long a client may take to read before it is cut off."""
LIMIT_SECONDS: Final = 10.0
"""When a caller that has too many streams may try again."""
_DRAIN_SECONDS: Final = 2.0
_LOGGER = logging.getLogger("dagmaster.http")


class Outlet(Protocol):
    """Where the messages of a session go: the body of an answer, or a WebSocket."""

    async def send(self, item: StreamMessage) -> None:
        """Send a message; wait while the client does not read."""

    async def beat(self) -> None:
        """Show that the connection is alive."""

    async def wait_closed(self) -> None:
        """Wait until the client has left."""

    def abort(self) -> None:
        """Close the connection without sending what the client did not read."""


class _TooSlow(Exception):
    """The client does not read."""


class LiveSessions:
    """All live sessions of a server. `limit_per_caller`: how many one may have at once; 0: any number."""

    def __init__(self, limit_per_caller: int = 0) -> None:
        self._limit = limit_per_caller
        self._callers: Counter[str] = Counter()
        self._sessions: dict[asyncio.Future[None], asyncio.Task[object] | None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    @contextlib.contextmanager
    def admit(self, caller_id: str) -> Iterator[None]:
        """Count a caller's session while it lasts; raise `StreamLimitExceeded` if there are too many."""
        if self._limit and self._callers[caller_id] >= self._limit:
            raise StreamLimitExceeded(
                f"this key has {self._limit:,} live streams and waiting requests on this server, the most"
                " that it may have (DAGMASTER_STREAMS_PER_KEY): close one first",
                retry_after_seconds=LIMIT_SECONDS,
            )
        self._callers[caller_id] += 1
        try:
            yield
        finally:
            self._callers[caller_id] -= 1
            if not self._callers[caller_id]:
                del self._callers[caller_id]

    async def close(self) -> None:
        """End every session with a reason, so that clients connect again; wait until they have ended."""
        self._is_closed = True
        for closing in self._sessions:
            if not closing.done():
                closing.set_result(None)
        tasks = [task for task in self._sessions.values() if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_DRAIN_SECONDS)

    async def hold(
        self, caller_id: str, wait: Callable[[], Awaitable[object]], leave: Callable[[], Awaitable[object]]
    ) -> None:
        """Wait on behalf of a request until `wait` or `leave` returns, or the server stops.

        It counts as a session of its caller; raise `StreamLimitExceeded` if there are too many.
        """
        closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            closing.set_result(None)
        with self.admit(caller_id):
            self._sessions[closing] = None
            waiting, leaving = asyncio.ensure_future(wait()), asyncio.ensure_future(leave())
            try:
                either: set[asyncio.Future[Any]] = {waiting, leaving, closing}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    waiting.result()
            finally:
                del self._sessions[closing]
                for task in (waiting, leaving):
                    task.cancel()
                await asyncio.gather(waiting, leaving, return_exceptions=True)

    async def run(
        self,
        messages: AsyncGenerator[StreamMessage],
        outlet: Outlet,
        check_caller: Callable[[], Awaitable[object]],
    ) -> EndReason | None:
        """Send messages until the last one or until the client leaves; return the reason if one was sent."""
        closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            closing.set_result(None)
        self._sessions[closing] = asyncio.current_task()
        try:
            async with contextlib.aclosing(messages):
                return await self._pump(messages, outlet, closing, check_caller)
        except _TooSlow:
            outlet.abort()
            return None
        finally:
            del self._sessions[closing]

    async def _pump(
        self,
        messages: AsyncGenerator[StreamMessage],
        outlet: Outlet,
        closing: asyncio.Future[None],
        check_caller: Callable[[], Awaitable[object]],
    ) -> EndReason | None:
        left = asyncio.ensure_future(outlet.wait_closed())
        upcoming = asyncio.ensure_future(anext(messages, None))
        either: set[asyncio.Future[Any]] = {left, closing}
        last_id: str | None = None
        beat_at = time.monotonic() + HEARTBEAT_SECONDS
        try:
            while True:
                timeout = max(beat_at - time.monotonic(), 0.0)
                await asyncio.wait({*either, upcoming}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if left.done():
                    return None
                item = await _take(upcoming, last_id)
                if closing.done():
                    item = end(EndReason.SHUTDOWN, "the server stops: connect again", last_id)
                elif time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + HEARTBEAT_SECONDS
                    await _in_time(outlet.beat())
                    item = await _check(check_caller, last_id) or item
                if item is None:
                    continue
                await _in_time(outlet.send(item))
                if item.type is MessageType.END:
                    return item.reason
                last_id = item.id or last_id
                if upcoming.done():
                    upcoming = asyncio.ensure_future(anext(messages, None))
        finally:
            for task in (left, upcoming):
                task.cancel()
            await asyncio.gather(left, upcoming, return_exceptions=True)


async def _take(upcoming: asyncio.Future[StreamMessage | None], last_id: str | None) -> StreamMessage | None:
    """Return the message that has come, if one has; an error is the end."""
    if not upcoming.done():
        return None
    try:
        return upcoming.result() or end(EndReason.FINISHED, "that was all", last_id)
    except DatabaseUnavailable as error:
        return end(EndReason.UNAVAILABLE, str(error.to_dict()["message"]), last_id)
    except Exception:
        # The message may contain a secret: it is logged, not sent.
        _LOGGER.exception("a stream failed")
        return end(EndReason.FAILED, "the server failed; its log has the reason", last_id)


async def _check(check_caller: Callable[[], Awaitable[object]], last_id: str | None) -> StreamMessage | None:
    """Return the end of a session whose key is not valid any more."""
    try:
        await check_caller()
    except DagmasterError as error:
        if error.category in (Category.UNAUTHENTICATED, Category.FORBIDDEN):
            return end(EndReason.KEY_REJECTED, str(error.to_dict()["message"]), last_id)
        # The key cannot be checked now: it is checked again with the next heartbeat.
    return None


async def _in_time(sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(SLOW_SECONDS):
            await sending
    except TimeoutError:
        raise _TooSlow from None
