"""The guard of last resort: what a partner is sent has passed it, whatever the routes and the framework do.

An answer is sent if it has the fields of a record for partners, or is a problem of the closed set. Anything
else is replaced by a fixed problem, and logged. Answers to administrators pass: their routes have marked
them, after the caller was checked.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from dagmaster.application.views.callbacks import PublicKeyView
from dagmaster.http.gateway import closed_problems
from dagmaster.http.gateway.answers import ANSWER, INTERNAL
from dagmaster.http.gateway.rejections import parse_request_id
from dagmaster.http.gateway.startup import CHECKS
from dagmaster.http.problems import MEDIA_TYPE
from dagmaster.records import gateway as records
from dagmaster.records.record import Record, shown_types
from dagmaster.records.requests import RequestProgressRecord

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LOGGER = logging.getLogger("dagmaster.gateway")
_ERROR: Final = 400
_JSON: Final = b"application/json"
_HEADERS: Final = frozenset(
    b"allow cache-control connection content-length content-type deprecation etag link location ratelimit"
    b" ratelimit-policy retry-after www-authenticate x-request-id".split()
)
"""The headers that a partner may get. The server adds the date."""
_INTERNAL_HEADERS: Final = frozenset((b"server", b"server-timing", b"x-powered-by"))
"""Those that not even an administrator gets."""
_LOCATION: Final = re.compile(rb"/platform/status/[0-9a-f-]{36}")
_OPAQUE: Final = "result"
"""The field whose value the author of a workflow chooses."""
_PARTS: Final = (
    *(records.FieldProblem, records.BatchOutcome, records.ProblemResponse),
    *(RequestProgressRecord, PublicKeyView),
)
_NAMES_OF_PARTS: Final = frozenset(CHECKS).union(*(shown_types(part) for part in _PARTS))


class LeakGuard:
    """Wraps a whole application: also what its own handlers of errors send."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no WebSockets. The handshake is answered with 403.
            await send({"type": "websocket.close", "code": 1008})
            return
        scope["state"] = scope.get("state") or {}
        scope["headers"] = [(name.lower(), value) for name, value in scope["headers"]]
        answer = _Answer(scope, send)
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            _LOGGER.exception("request %s failed", scope["state"].get("request_id", ""))
            if answer.is_broken:
                # The server closes the connection: the client sees that something is missing.
                raise
            if not answer.is_sent:
                await answer.replace(500)


class _Answer:
    """The answer to one request. It is held back until its body is complete, unless it is internal."""

    def __init__(self, scope: Message, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: Message | None = None
        self._body = b""
        self.is_sent = False
        self.is_broken = False
        """Whether a part of an internal answer has been sent, and not yet all of it."""

    async def send(self, message: Message) -> None:
        if self.is_sent and self._start is None:
            # Replaced: the rest of what was to be sent is dropped.
            return
        if message["type"] == "http.response.start":
            self._start = message
            if self._is_internal:
                await self._pass_on()
        elif self._is_internal:
            self.is_broken = bool(message.get("more_body"))
            await self._send({"body": b"", **message})
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._check()

    async def replace(self, status: int) -> None:
        """Send a fixed problem instead of the answer."""
        kept = [] if self._start is None else self._kept(self._start["headers"])
        response = closed_problems.of_status(status)
        names = {name for name, _ in response.raw_headers}
        more = [(name, value) for name, value in kept if name not in names]
        await self._send_whole(response.status_code, [*response.raw_headers, *more], bytes(response.body))
        self._start = None

    @property
    def _is_internal(self) -> bool:
        return bool(self._scope["state"].get(INTERNAL))

    async def _pass_on(self) -> None:
        assert self._start is not None  # noqa: S101 - for mypy
        headers = [pair for pair in self._start["headers"] if pair[0].lower() not in _INTERNAL_HEADERS]
        self.is_sent = self.is_broken = True
        await self._send({**self._start, "headers": headers})

    async def _check(self) -> None:
        assert self._start is not None  # noqa: S101 - for mypy
        status, headers = self._start["status"], self._kept(self._start["headers"])
        reason = self._find_leak(status, dict(headers).get(b"content-type", b""))
        if not reason:
            headers = [pair for pair in headers if pair[0] != b"content-length"]
            await self._send_whole(status, headers, self._body)
            return
        if reason != _UNCHECKED:
            # An error of the framework, as of a middleware, is no mistake: only its words are ours.
            state = self._scope["state"]
            _LOGGER.error("answer %d to request %s replaced: %s", status, state.get("request_id", ""), reason)
        await self.replace(status if status >= _ERROR else 500)

    async def _send_whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
        fixed = [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
        self.is_sent = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *fixed]})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    @staticmethod
    def _kept(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        pairs = [(name.lower(), value) for name, value in headers]
        return [
            (name, value)
            for name, value in pairs
            if name in _HEADERS
            and name != b"cache-control"
            and (name != b"location" or _LOCATION.fullmatch(value))
        ]

    def _find_leak(self, status: int, content_type: bytes) -> str:
        """Return why an answer is not sent; empty if it is."""
        answer: type[Record] | dict[str, Any] | None = self._scope["state"].get(ANSWER)
        if isinstance(answer, dict):
            # A document that is the same for everybody.
            return ""
        try:
            document = json.loads(self._body)
        except ValueError:
            return _UNCHECKED if status >= _ERROR else "it is not JSON"
        if answer is not None and content_type == _JSON:
            return _find_name(document, answer)
        if content_type != MEDIA_TYPE.encode() or status < _ERROR:
            return _UNCHECKED if status >= _ERROR else "its fields are not known"
        return "" if is_closed(document) else _UNCHECKED


_UNCHECKED: Final = "it is no problem of the closed set"


def is_closed(document: Any) -> bool:
    """Return whether a document is a problem of the closed set: its code, its sentence, nothing else."""
    if not isinstance(document, dict) or document.get("code") not in closed_problems.CODES:
        return False
    errors = document.get("errors", [])
    if not isinstance(errors, list) or not all(isinstance(one, dict) for one in errors):
        return False
    fields = [closed_problems.field_problem(one.get("path"), one.get("message")) for one in errors]
    same = closed_problems.describe(
        document["code"],
        errors=fields,
        request_id=parse_request_id(document.get("request_id")),
        failed_check=document.get("failed_check") if document.get("failed_check") in CHECKS else None,
    )
    return bool(same.to_dict() == document)


_known: Final[dict[type[Record], frozenset[str]]] = {}


def _names_of(answer: type[Record]) -> frozenset[str]:
    """Return the names of a record. They are read from its types once, which takes long."""
    if answer not in _known:
        _known[answer] = frozenset(shown_types(answer))
    return _known[answer]


def _find_name(document: Any, answer: type[Record]) -> str:
    """Return which name in a document is not of its record; empty if all are."""
    unknown = sorted(document.keys() - _names_of(answer)) if isinstance(document, dict) else ["(no object)"]
    pending = [value for name, value in document.items() if name != _OPAQUE] if not unknown else []
    while pending and not unknown:
        part = pending.pop()
        if isinstance(part, dict):
            unknown = sorted(part.keys() - _NAMES_OF_PARTS)
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return f"the field {unknown[0]!r} is not of {answer.__name__}" if unknown else ""
