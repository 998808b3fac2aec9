"""The server service: uvicorn around the application, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from typing import TYPE_CHECKING, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from dagmaster.errors import Problem, RequestInvalid
from dagmaster.http import problems
from dagmaster.http.request_limits import MAX_HEADERS_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from dagmaster.http.live_streams import LiveStreams

GRACE_SECONDS: Final = 5
"""How long requests may take to end when the server stops."""
HEADERS_SECONDS: Final = 15.0
"""How long a client may take to send a request's headers, from the first byte or from its connection."""
ACCEPT_ROUNDS: Final = 3
"""After so many rounds of the event loop an accepted connection is known to the server."""
MAX_FRAME_BYTES: Final = 64 * 1024
"""The most that a client may send in one message of a WebSocket."""


class HttpServer(uvicorn.Server):
    """Serves an application on a socket that is bound already, so that its address is known."""

    def __init__(
        self,
        app: FastAPI,
        listener: socket.socket,
        *,
        certificate: str | None = None,
        key_file: str | None = None,
        trusted_proxies: str | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=_HttpProtocol,
            ws=_WebSocketProtocol,
            ws_max_size=MAX_FRAME_BYTES,
            h11_max_incomplete_event_size=MAX_HEADERS_BYTES,
            log_config=None,
            access_log=False,
            lifespan="off",
            # Headers of a proxy are believed only if an operator names the proxies.
            proxy_headers=trusted_proxies is not None,
            forwarded_allow_ips=trusted_proxies,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key_file,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        super().__init__(config)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        self.ready = asyncio.Event()
        self.on_stop: Callable[[], None] = lambda: None
        """Ends requests that wait for something to happen."""
        # Connections inherit it. asyncio sets it only on sockets that name their protocol: 40 ms for a small
        # answer.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener = listener
        # A gateway has no streams.
        live: LiveStreams | None = getattr(app.state.services, "live", None)
        self._sessions = None if live is None else live.sessions

    async def run_until_stopped(self) -> None:
        await self.serve([self._listener])

    def stop(self) -> None:
        """Finish the requests that run, and end."""
        self.should_exit = True
        self.on_stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End live streams with a reason, so that clients connect elsewhere; then all other requests."""
        if self._sessions is not None:
            await self._sessions.close()
        await self._stop_accepting()
        await super().shutdown(sockets)

    async def _stop_accepting(self) -> None:
        """Accept nothing more; wait until each accepted connection is known: uvicorn ends those it knows.

        asyncio makes a connection known two rounds of its loop after it was accepted. If its server was
        closed in between, nobody answers and nobody closes it.
        """
        loop = asyncio.get_running_loop()
        for listener in itertools.chain.from_iterable(server.sockets for server in self.servers):
            # uvloop listens in another way, and its connections are known at once.
            with contextlib.suppress(NotImplementedError, RuntimeError):
                loop.remove_reader(listener.fileno())
        for _ in range(ACCEPT_ROUNDS):
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command that runs the service."""
        yield


class _HttpProtocol(H11Protocol):
    """HTTP whose requests can reset their connection, and whose clients have to send their headers in time.

    uvicorn closes a connection that is idle after an answer, but waits forever for the rest of a request.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort_connection": transport.abort}
        self._deadline = self.loop.call_later(HEADERS_SECONDS, self._on_deadline)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._awaits_headers():
            self._cancel_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_SECONDS, self._on_deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - of uvicorn
        """Answer what is no request of HTTP with a problem document, as every other error."""
        error = RequestInvalid([Problem(message="this is not a valid request of HTTP/1.1", path="request")])
        answer = problems.of_error(error)
        headers = [*answer.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=answer.status_code, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _awaits_headers(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return self.transport.get_protocol() is self and (cycle is None or cycle.response_complete)

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._awaits_headers():
            self.transport.close()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _WebSocketProtocol(WSProtocol):
    """WebSockets that can reset their connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort_connection": transport.abort}
