"""The access log: a record for each request that a server has answered, if it is turned on.

A record names the path and never the query, which can hold what nobody else should read. Every field comes
from outside, so it is written in characters that neither end a line nor reach a terminal.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]

MAX_PATH: Final = 300
MAX_FIELD: Final = 200
_SECRET: Final = re.compile(r"\b(d[lm]_[A-Za-z0-9]{0,12})[A-Za-z0-9_-]*")
"""A key or the code of a login: only its id is written."""
_SAFE: Final = "/:@!$&'()*+,;=~"
_LOGGER: Final = logging.getLogger("dagmaster.access")


class AccessLog:
    """Wraps the application, outside of all else."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # What the application finds out about the request is in its state.
        scope.setdefault("state", {})
        # An older route is resolved to another path.
        path = scope["path"]
        started, status = time.perf_counter(), 500

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            _write(scope, path, status, time.perf_counter() - started)


def _write(scope: Message, path: str, status: int, seconds: float) -> None:
    state, client = scope["state"], scope.get("client")
    caller = state.get("caller")
    fields = {
        "method": _field(scope["method"]),
        "path": clean_path(path),
        "route": getattr(scope.get("route"), "path", None),
        "status": status,
        "seconds": round(seconds, 6),
        "actor": None if caller is None else _field(caller.actor),
        "request_id": state.get("request_id"),
        "client": None if client is None else _field(str(client[0])),
    }
    present = {name: value for name, value in fields.items() if value is not None}
    _LOGGER.info("%s %s %d", fields["method"], fields["path"], status, extra=present)


def clean_path(path: str) -> str:
    """Return a path as one word of ASCII, without the secret part of a key."""
    return quote(_SECRET.sub(r"\1", path[:MAX_PATH]), safe=_SAFE)


def _field(text: str) -> str:
    """Return a text of a caller without control characters, spaces and quotes."""
    return "".join(char if char.isprintable() and char not in ' "\\' else "?" for char in text[:MAX_FIELD])
