"""Sends callbacks: one request, one bounded answer."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import ssl
import time
from typing import TYPE_CHECKING, Final

import h11

from dagmaster.adapters.pinned_connections import AddressRefused, PinnedConnections
from dagmaster.ports.callback_urls import parse_callback_url
from dagmaster.ports.callbacks import Delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.callback_urls import CallbackAddress

CONNECT_SECONDS: Final = 5.0
TOTAL_SECONDS: Final = 15.0
MAX_HEADERS: Final = 16_384
MAX_BODY: Final = 65_536
"""How much of an answer is read, so that its status counts."""
MAX_SHOWN: Final = 120
_CHUNK: Final = 16_384
_REDIRECTS: Final = range(300, 400)
_SHOWN_TYPES: Final = frozenset({"text/plain", "application/json", "application/problem+json"})


class CallbackClient:
    """Sends requests over connections that are checked."""

    def __init__(
        self,
        connections: PinnedConnections,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._connections = connections
        self._connect_seconds, self._total_seconds = connect_seconds, total_seconds

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Send a callback once. The error is for people: it has no address and no text of ours."""
        address = parse_callback_url(url, allows_loopback=self._connections.allows_loopback)
        try:
            async with asyncio.timeout(self._total_seconds):
                return await self._exchange(address, headers, body)
        except TimeoutError:
            return Delivery(None, f"no answer within {self._total_seconds:g} s")
        except AddressRefused as error:
            return Delivery(None, f"refused: {error}")
        except ssl.SSLCertVerificationError as error:
            return Delivery(None, f"the certificate is not valid: {printable(error.verify_message)}")
        except ssl.SSLError:
            return Delivery(None, "the connection cannot be encrypted")
        except h11.RemoteProtocolError:
            return Delivery(None, "the answer is not HTTP")
        except OSError as error:
            return Delivery(None, f"cannot be reached: {printable(error.strerror or type(error).__name__)}")

    async def _exchange(self, address: CallbackAddress, headers: Mapping[str, str], body: bytes) -> Delivery:
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._connect_seconds):
                    reader, writer = await stack.enter_async_context(
                        self._connections.open(address.host, address.port, is_secure=address.is_secure)
                    )
            except TimeoutError:
                return Delivery(None, f"cannot be reached: no connection within {self._connect_seconds:g} s")
            protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADERS)
            request = h11.Request(
                method="POST",
                target=address.target,
                headers=[
                    ("host", address.authority),
                    *headers.items(),
                    ("content-length", str(len(body))),
                    ("connection", "close"),
                ],
            )
            for event in (request, h11.Data(data=body), h11.EndOfMessage()):
                writer.write(protocol.send(event) or b"")
            await writer.drain()
            return await self._read(protocol, reader)

    async def _read(self, protocol: h11.Connection, reader: asyncio.StreamReader) -> Delivery:
        response: h11.Response | None = None
        text, size = b"", 0
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Response):
                response = event
                if 200 <= event.status_code < 300:  # noqa: PLR2004 - the statuses of success
                    # What else it says does not matter: it has accepted.
                    return _delivery(event, b"")
            elif isinstance(event, h11.Data):
                size += len(event.data)
                text += bytes(event.data[: MAX_SHOWN - len(text)]) if len(text) < MAX_SHOWN else b""
            if response is not None and (
                isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or size > MAX_BODY
            ):
                return _delivery(response, text)
            if isinstance(event, h11.ConnectionClosed):
                return Delivery(None, "the connection was closed without an answer")


def _delivery(response: h11.Response, text: bytes) -> Delivery:
    status = response.status_code
    if 200 <= status < 300:  # noqa: PLR2004 - the statuses of success
        return Delivery(status)
    error = f"answered {status}"
    if status in _REDIRECTS:
        error = f"answered {status}: redirects are not followed"
    elif shown := _excerpt(response, text):
        error = f"answered {status}: {shown}"
    return Delivery(status, error, _retry_after(response))


def _excerpt(response: h11.Response, text: bytes) -> str:
    """Return the beginning of an answer in plain text or JSON; nothing of a page, and no markup."""
    headers = dict(response.headers)
    media_type = headers.get(b"content-type", b"text/plain").decode("latin-1").partition(";")[0]
    if media_type.strip().lower() not in _SHOWN_TYPES:
        return ""
    return printable(text.decode("utf-8", "replace").partition("<")[0])


def _retry_after(response: h11.Response) -> float | None:
    """Return the seconds of the header Retry-After, a number or a date; None without a valid one."""
    for name, value in response.headers:
        if name != b"retry-after":
            continue
        text = value.decode("latin-1").strip()
        if text.isascii() and text.isdigit() and len(text) <= 9:  # noqa: PLR2004 - more would be for ever
            return float(text)
        try:
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, OverflowError):
            return None
    return None


def printable(text: str) -> str:
    """Return the beginning of a foreign text in one line without control characters."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:MAX_SHOWN]
