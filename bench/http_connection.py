"""A connection of an HTTP client that costs little: the clients of a benchmark share two cores with the server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType


class HttpConnection:
    """A connection that stays open, for one request at a time. Answers are JSON with a known length."""

    def __init__(self, url: str, key: str) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "", address.port or 80
        self._head = f"Host: {address.netloc}\r\nAuthorization: Bearer {key}\r\n".encode()

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._writer.close()

    async def get(self, path: str) -> Any:
        """Return the body of an answer; fail if its status is not 2xx."""
        return await self._request(b"GET", path, b"")

    async def post(self, path: str, body: bytes) -> Any:
        """Send JSON; return the body of the answer."""
        return await self._request(b"POST", path, body)

    async def _request(self, method: bytes, path: str, body: bytes) -> Any:
        self._writer.write(
            b"%b %b HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (method, path.encode(), self._head, len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 2"), head + answer
        return json.loads(answer)
