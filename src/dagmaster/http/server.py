"""The server service: uvicorn around the application, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import uvicorn

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from fastapi import FastAPI

GRACE_SECONDS: Final = 5
"""How long requests may take to end when the server stops."""


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
        self._listener = listener

    async def run_until_stopped(self) -> None:
        """Serve until stopped."""
        await self.serve([self._listener])

    def stop(self) -> None:
        """Finish the requests that run, and end."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command that runs the service."""
        yield
