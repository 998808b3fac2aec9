"""What every request passes first: its id, the limit of its body, no NUL, and the paths of older routes."""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import Problem, RequestInvalid, RequestTooLarge
from dagmaster.http import problems
from dagmaster.http.aliases import resolve_alias
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES: Final = 1024 * 1024
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{8,64}")


class RequestLimits:
    """Wraps the application. A caller may send its own `X-Request-ID`; every answer has one."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        scope["path"] = resolve_alias(scope["path"])
        size = 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body") or b"")
            if size > MAX_BODY_BYTES:
                raise RequestTooLarge(f"a body has at most {MAX_BODY_BYTES:,} bytes")
            return message

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Clients measure ages from here: `Date` has whole seconds only.
                made_at = format_rfc3339(time.time()).encode()
                own = [(b"x-request-id", request_id.encode()), (b"x-server-time", made_at)]
                message["headers"] = [*message["headers"], *own, *scope["state"].get("response_headers", ())]
            await send(message)

        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            error = RequestInvalid([Problem(message="the URL has the character NUL", path="path")])
            await problems.of_error(error)(scope, receive, send_with_id)
            return
        await self._app(scope, receive_limited, send_with_id)


def _request_id(scope: Message) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return secrets.token_hex(8)
