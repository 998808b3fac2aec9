"""What every request passes first: its id, the limits of its body, no NUL, and the paths of older routes."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import (
    DagmasterError,
    HeadersTooLarge,
    Problem,
    RequestInvalid,
    RequestTimedOut,
    RequestTooLarge,
)
from dagmaster.http import problems
from dagmaster.http.aliases import find_alias
from dagmaster.ports.job_options import MAX_CORRELATION_ID
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES: Final = 1024 * 1024
MAX_GRAPH_BYTES: Final = 64 * 1024 * 1024
"""The largest body of a route that takes a graph as lines."""
_GRAPH_PATH: Final = re.compile(r"/api/v1/jobs/(graph|[0-9]+/tasks)/lines")
MAX_HEADERS_BYTES: Final = 64 * 1024
BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to arrive."""
PROBES: Final = frozenset({"/livez", "/readyz"})
_CORRELATION_ID: Final = re.compile(rb"[!-~](?:[ -~]{0,%d}[!-~])?" % (MAX_CORRELATION_ID - 2))
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{8,64}")


class RequestLimits:
    """Wraps the application. A caller may send its own `X-Request-ID`; every answer has one.

    A request that has an `X-Correlation-ID` gets it back.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD" and scope["path"] in PROBES:
            # Load balancers ask so. The server sends the headers of this answer without its body.
            scope = {**scope, "method": "GET"}
        request_id = _request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"], answered = request_id, _answered_headers(scope)
        if (alias := find_alias(scope["path"])) is not None:
            scope["path"], state["older_path"] = alias.path, alias.older
            answered += alias.headers()
        body = _LimitedBody(scope, receive)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Clients measure ages from here: `Date` has whole seconds only.
                made_at = format_rfc3339(time.time()).encode()
                own = [(b"x-request-id", request_id.encode()), (b"x-server-time", made_at)]
                more = state.get("response_headers", ())
                message["headers"] = [*message["headers"], *own, *answered, *more]
            await send(message)

        error = _find_problem(scope)
        if error is not None:
            _close_after_answer(scope)
            await problems.of_error(error)(scope, receive, send_with_id)
            return
        await self._app(scope, body.receive, send_with_id)


def _answered_headers(scope: Message) -> list[tuple[bytes, bytes]]:
    """Return the headers that an answer has because the request has them."""
    return [
        (name, value)
        for name, value in scope["headers"]
        if name == b"x-correlation-id" and _CORRELATION_ID.fullmatch(value)
    ][:1]


class _LimitedBody:
    """The body of a request, which has a largest size and a longest time."""

    def __init__(self, scope: Message, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._size = 0
        self._max_bytes = MAX_GRAPH_BYTES if _GRAPH_PATH.fullmatch(scope["path"]) else MAX_BODY_BYTES
        self._deadline: float | None = None
        self._is_complete = False

    async def receive(self) -> Message:
        """Return the next message; raise `RequestTooLarge` or `RequestTimedOut`."""
        if self._is_complete:
            # After the body, the next message is that the client has gone.
            return await self._receive()
        self._deadline = self._deadline or asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            _close_after_answer(self._scope)
            raise RequestTimedOut(f"the body did not arrive within {BODY_SECONDS:g} s") from None
        self._size += len(message.get("body") or b"")
        if self._size > self._max_bytes:
            _close_after_answer(self._scope)
            raise RequestTooLarge(f"a body has at most {self._max_bytes:,} bytes")
        self._is_complete = not message.get("more_body")
        return message


def _close_after_answer(scope: Message) -> None:
    """Let the server close the connection: what is still to come of the request is not read."""
    state = scope["state"]
    state["response_headers"] = [*state.get("response_headers", ()), (b"connection", b"close")]


def _find_problem(scope: Message) -> DagmasterError | None:
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return RequestInvalid([Problem(message="the URL has the character NUL", path="path")])
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADERS_BYTES:
        return HeadersTooLarge(f"the headers of a request have at most {MAX_HEADERS_BYTES:,} bytes")
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names and b"content-length" in names:
        # A proxy before us may have believed the other one, and see a second request in what we take for the
        # body.
        return RequestInvalid([Problem(message="the request has two lengths", path="header.content-length")])
    return None


def _request_id(scope: Message) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return secrets.token_hex(8)
