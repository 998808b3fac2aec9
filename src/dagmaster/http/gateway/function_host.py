"""A gateway behind the host of Azure Functions, whose bridge to ASGI leaves some things as it gets them."""

from __future__ import annotations

from typing import Any, Final

from dagmaster.http.gateway.leak_guard import Message, Receive, Send

_FORWARDED: Final = b"x-forwarded-for"


class FunctionHost:
    """Wraps a gateway: corrects the path, and names the client that the front end of the platform has seen.

    The front end appends that address to the header; what comes before it was written by the client.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [(name.lower(), value) for name, value in scope["headers"]]
            # The bridge decodes the bytes of a path one by one.
            path = scope["path"].encode("latin-1", "replace").decode("utf-8", "replace")
            scope = {**scope, "headers": headers, "path": path, "client": _client(headers)}
        await self._app(scope, receive, send)


def _client(headers: list[tuple[bytes, bytes]]) -> tuple[str, int] | None:
    addresses = next((value.decode("latin-1") for name, value in headers if name == _FORWARDED), "")
    last = addresses.rpartition(",")[2].strip()
    if not last:
        return None
    if last.startswith("["):
        return last[1:].partition("]")[0], 0
    # IPv4 with a port; IPv6 without one has several colons.
    host = last.partition(":")[0] if last.count(":") == 1 else last
    return host, 0
