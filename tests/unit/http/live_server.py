"""A server on a socket of this machine, and clients of its streams: Server-Sent Events and WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import httpx
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, RejectConnection, Request, TextMessage

from dagmaster.http.app import create_app
from dagmaster.http.server import HttpServer
from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_registry import Registry
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import served_application
from tests.unit.http.api_client import Api, greet, memory_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.http.live_streams import LiveStreams


class Events:
    """The messages of an answer, as (type, id, data). Comments and other fields are kept apart."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments: list[str] = []
        self.retry: str | None = None
        self._lines = response.aiter_lines()

    async def next(self, *types: str) -> tuple[str, str | None, Any]:
        """Return the next message, of some types if they are named; raise `EOFError` after the last one."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if not line and fields.get("retry"):
                    self.retry = fields.pop("retry")
                elif not line and "event" in fields:
                    if not types or fields["event"] in types:
                        return fields["event"], fields.get("id"), json.loads(fields["data"])
                    fields = {}
                elif line.startswith(":"):
                    self.comments.append(line[2:])
                    if "comment" in types:
                        return "comment", None, line[2:]
                elif line:
                    fields[name] = value
        raise EOFError

    async def rest(self) -> list[tuple[str, str | None, Any]]:
        """Return all messages until the end."""
        items = []
        with contextlib.suppress(EOFError):
            while True:
                items.append(await self.next())
        return items


class Socket:
    """A WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._text = ""

    async def open(self, host: str, path: str, headers: dict[str, str]) -> int:
        """Send the handshake; return the status of its answer."""
        extra = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.send(Request(host=host, target=path, extra_headers=extra))
        match await self._event():
            case AcceptConnection():
                return 101
            case RejectConnection() as rejected:
                return rejected.status_code
        raise AssertionError("no answer to the handshake")

    def send(self, event: Any) -> None:
        self._writer.write(self._connection.send(event))

    async def next(self) -> dict[str, Any]:
        """Return the next message; when the server closes, its code and reason."""
        while True:
            event = await self._event()
            if isinstance(event, CloseConnection):
                return {"closed": event.code, "reason": event.reason}
            if isinstance(event, TextMessage):
                self._text += event.data
                if event.message_finished:
                    text, self._text = self._text, ""
                    message: dict[str, Any] = json.loads(text)
                    return message

    async def _event(self) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for event in self._connection.events():
                    return event
                data = await self._reader.read(65_536)
                self._connection.receive_data(data or None)

    def close(self) -> None:
        self._writer.close()


class LiveServer(Api):
    """An API with an address."""

    def __init__(
        self, server: HttpServer, address: tuple[str, int], http: httpx.AsyncClient, services: Any, app: Any
    ) -> None:
        super().__init__(http, services, app)
        self.server = server
        self.address = address
        self.live: LiveStreams = services.live

    @contextlib.asynccontextmanager
    async def events(
        self, path: str, headers: dict[str, str] | None = None, **params: Any
    ) -> AsyncIterator[Events]:
        """Open a stream of events."""
        async with self.http.stream(
            "GET", f"/api/v1{path}", params=params or None, headers={**self.headers, **(headers or {})}
        ) as response:
            if response.status_code != 200:
                await response.aread()
            yield Events(response)

    @contextlib.asynccontextmanager
    async def socket(self, path: str, **headers: str) -> AsyncIterator[tuple[int, Socket]]:
        """Open a WebSocket; give the status of the handshake."""
        reader, writer = await asyncio.open_connection(*self.address)
        client = Socket(reader, writer)
        try:
            yield await client.open(f"{self.address[0]}:{self.address[1]}", path, headers), client
        finally:
            client.close()

    async def hello(self, client: Socket, **more: Any) -> None:
        """Send the first message: the key, and where the stream begins."""
        key = self.headers["Authorization"].removeprefix("Bearer ")
        client.send(TextMessage(json.dumps({"key": key, **more})))

    async def submit(self, **body: Any) -> str:
        """Submit the workflow hello; return its job."""
        answer = await self.post("/api/v1/jobs", {"workflow_id": "hello", **body})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    async def waiting_job(self, **body: Any) -> str:
        """Return a job that waits for an approval."""
        job_id = await self.submit(**body)
        await self.until(job_id, "WAITING")
        return job_id

    async def approve(self, job_id: str) -> None:
        answer = await self.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
        assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def live_server(*handlers: Any) -> AsyncIterator[LiveServer]:
    """Serve the API on a socket; an orchestrator and a worker run its jobs. The workflow `hello` is published."""
    async with served_application(Registry([greet, *handlers])) as application:
        services = memory_services(application)
        listener = socket.create_server(("127.0.0.1", 0))
        app = create_app(services)
        server = HttpServer(app, listener)
        running = asyncio.create_task(server.run_until_stopped())
        try:
            await server.ready.wait()
            address = listener.getsockname()
            async with httpx.AsyncClient(
                base_url=f"http://{address[0]}:{address[1]}", timeout=PATIENCE_SECONDS
            ) as http:
                api = LiveServer(server, address, http, services, app)
                await api.use_key(Scope.ADMIN)
                await api.publish()
                yield api
        finally:
            server.stop()
            await running
