"""Server-Sent Events: an answer whose body is a live session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response

from dagmaster.http.auth import check_again, credential_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from dagmaster.application.stream_messages import StreamMessage
    from dagmaster.http.live_sessions import LiveSessions

RETRY_MILLISECONDS: Final = 2_000
"""How long a browser waits before it connects again."""
_HEARTBEAT: Final = b": heartbeat\n\n"


class EventStream(Response):
    """Sends messages as they come, until the last one or until the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self,
        request: Request,
        messages: AsyncGenerator[StreamMessage],
    ) -> None:
        # A proxy must neither keep the answer nor wait for its end.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._sessions: LiveSessions = request.app.state.services.live.sessions
        self._messages = messages
        self._request, self._credential = request, credential_of(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._sessions.admit(self._request.state.caller.key_id):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            body = _Body(scope, receive, send)
            await body.write(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
            reason = await self._sessions.run(
                self._messages,
                body,
                lambda: check_again(self._request, self._credential, self._request.state.need),
            )
            if reason is not None:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Body:
    """The body of the answer as an outlet."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send

    async def write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def send(self, item: StreamMessage) -> None:
        number = "" if item.id is None else f"id: {item.id}\n"
        await self.write(f"{number}event: {item.type}\ndata: {item.data}\n\n".encode())

    async def beat(self) -> None:
        await self.write(_HEARTBEAT)

    async def wait_closed(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def abort(self) -> None:
        abort_connection(self._scope)


def abort_connection(scope: Scope) -> None:
    """Reset the connection of a request: what its client did not read is not waited for."""
    abort = scope.get("state", {}).get("abort_connection")
    if abort is not None:
        abort()


class Compression(GZipMiddleware):
    """Compresses answers, but no streams: one compressor for each would take 256 KB of memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_stream = scope["type"] == "http" and (
            scope["path"].endswith("/stream") or b"follow=" in scope["query_string"]
        )
        await (self.app if is_stream else super().__call__)(scope, receive, send)
