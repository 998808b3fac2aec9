"""A server on a loopback address, in a thread of its own: real requests over sockets, stores in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dagmaster.application.api_keys import create_key
from dagmaster.http.app import create_app
from dagmaster.http.server import HttpServer
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from tests.unit.application.memory_application import served_application
from tests.unit.http.api_client import memory_services

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from dagmaster.authoring.handler_registry import Registry
    from dagmaster.http.services import HttpServices

T = TypeVar("T")


@dataclass(frozen=True)
class Loopback:
    """A server that runs, and what is behind it. `key` has all scopes of a person."""

    url: str
    key: str
    services: HttpServices
    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def make_key(self, *scopes: Scope, name: str = "ada") -> str:
        """Return a new key."""
        return self.run(create_key(self.services.keys, name, scopes, origin=ChangeOrigin(actor="test"), now=0.0)).key


@contextlib.contextmanager
def serve(registry: Registry) -> Iterator[Loopback]:
    """Serve the API; an orchestrator and a worker run its jobs."""
    is_ready, failures = threading.Event(), list[BaseException]()
    listener = socket.create_server(("127.0.0.1", 0))
    world: dict[str, Any] = {}

    async def main() -> None:
        async with served_application(registry) as application:
            services = memory_services(application)
            server = HttpServer(create_app(services), listener)
            world.update(services=services, server=server, loop=asyncio.get_running_loop())
            serving = asyncio.create_task(server.run_until_stopped())
            await server.ready.wait()
            is_ready.set()
            await serving

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failures.append(error)
            is_ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    is_ready.wait(60)
    assert not failures, failures
    port = listener.getsockname()[1]
    draft = Loopback(f"http://127.0.0.1:{port}", "", world["services"], world["loop"])
    try:
        yield Loopback(draft.url, draft.make_key(Scope.ADMIN), draft.services, draft.loop)
    finally:
        world["server"].stop()
        thread.join(30)
        listener.close()
