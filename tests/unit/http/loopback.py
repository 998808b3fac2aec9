"""A server on a loopback address, in a thread of its own: real requests over sockets, stores in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from dagmaster.application.api_keys import create_key, find_caller
from dagmaster.application.browser_sessions import create_login_link, start_session
from dagmaster.http.app import create_app
from dagmaster.http.server import HttpServer
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import served_application
from tests.unit.http.api_client import memory_services

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from dagmaster.http.app import Extension
    from dagmaster.http.services import HttpServices
    from dagmaster.sdk.handler_registry import Registry

T = TypeVar("T")
ORIGIN = ChangeOrigin(actor="test")


class Loopback:
    """A server that runs, and what is behind it. `key` has the scope admin."""

    services: HttpServices
    key: str

    def __init__(self, registry: Registry, extensions: tuple[Extension, ...]) -> None:
        self._registry = registry
        self._extensions = extensions
        # Bound, but without a listener: the port stays ours between two servers, and connections are refused.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind(("127.0.0.1", 0))
        self._address = self._reservation.getsockname()
        self._listener = self._listen()
        self.url = f"http://127.0.0.1:{self._address[1]}"
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._is_ready = threading.Event()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def make_key(self, *scopes: Scope, name: str = "ada") -> str:
        """Return a new key."""
        return self.run(create_key(self.services.keys, name, scopes, origin=ORIGIN, now=0.0)).key

    def start_session(self, key: str) -> str:
        """Return what the cookie of a browser has that logged in with a key."""
        caller = self.run(find_caller(self.services.keys, key))
        return self.run(start_session(self.services.keys, caller))

    def make_login_link(self, key: str) -> str:
        """Return the code of a link that logs in once."""
        caller = self.run(find_caller(self.services.keys, key))
        return self.run(create_login_link(self.services.keys, caller))

    def restart(self) -> None:
        """Stop the server and start another on the same address and stores."""

        async def restart() -> None:
            await self._stop_server()
            self._listener = self._listen()
            # The streams of a server that stopped stay closed.
            self.services = replace(self.services)
            await self._start_server()

        self.run(restart())

    def _listen(self) -> socket.socket:
        return socket.create_server(self._address, reuse_port=True)

    async def serve(self) -> None:
        """Serve until stopped. An orchestrator and a worker run the jobs."""
        async with served_application(self._registry) as application:
            self.services = memory_services(application)
            await self._start_server()
            self.key = (
                await create_key(self.services.keys, "ada", [Scope.ADMIN], origin=ORIGIN, now=0.0)
            ).key
            self._is_ready.set()
            await self._stop.wait()
            await self._stop_server()

    async def _start_server(self) -> None:
        self._server = HttpServer(create_app(self.services, *self._extensions), self._listener)
        self._serving = asyncio.create_task(self._server.run_until_stopped())
        await self._server.ready.wait()

    async def _stop_server(self) -> None:
        self._server.stop()
        await self._serving

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[None]:
        """Run the loop of the server in a thread."""

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                    runner.run(self.serve())
            finally:
                self._is_ready.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            self._is_ready.wait(PATIENCE_SECONDS)
            assert hasattr(self, "key"), "the server did not start"
            yield
        finally:
            with contextlib.suppress(RuntimeError):
                # The loop is closed if the server failed.
                self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(PATIENCE_SECONDS)
            self._listener.close()
            self._reservation.close()


@contextlib.contextmanager
def serve(registry: Registry, *extensions: Extension) -> Iterator[Loopback]:
    """Serve the API, and what is next to it, on a loopback address."""
    server = Loopback(registry, extensions)
    with server.in_thread():
        yield server
