"""What a client can do below HTTP: two lengths, huge headers, slow headers and bodies, other media types."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from typing import TYPE_CHECKING

import pytest

from dagmaster.http import request_limits, server
from dagmaster.http.request_limits import MAX_BODY_BYTES
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.api_client import opened_api
from tests.unit.http.live_server import live_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.http.live_server import LiveServer

HIDDEN = b"POST /api/v1/keys HTTP/1.1\r\nHost: x\r\n"


@contextlib.asynccontextmanager
async def connected(api: LiveServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*api.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def exchange(api: LiveServer, request: bytes) -> bytes:
    """Send bytes; return all that the server sends until it closes the connection."""
    async with connected(api) as (reader, writer):
        writer.write(request)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with contextlib.suppress(ConnectionError):
                return await reader.read()
    return b""


def key_of(api: LiveServer) -> bytes:
    return api.headers["Authorization"].encode()


def statuses(answer: bytes) -> list[bytes]:
    return [line.split()[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


BROKEN = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    + HIDDEN,
    "an encoding that is not chunked": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "an encoding with a tab": b"Transfer-Encoding:\tchunk\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two encodings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\nhello",
    "a space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "a line that is no header": b"nonsense\r\n\r\n",
    "a line break in a value": b"X-One: a\rb\r\n\r\n",
    "NUL in a value": b"X-One: a\0b\r\n\r\n",
    "a bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "huge headers": b"X-One: " + b"x" * (request_limits.MAX_HEADERS_BYTES + 1) + b"\r\n\r\n",
    "many headers": b"".join(b"X-%d: %s\r\n" % (number, b"x" * 100) for number in range(1_000)) + b"\r\n",
}


def test_a_request_whose_end_is_not_clear_is_rejected_and_its_connection_closed():
    async def main() -> None:
        async with live_server() as api:
            start = b"POST /api/v1/workflows/validate HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n" % key_of(
                api
            )
            for name, rest in BROKEN.items():
                answer = await exchange(api, start + rest)
                assert len(statuses(answer)) == 1, (name, answer)
                assert statuses(answer)[0] in (b"400", b"431", b"501"), (name, answer)
                assert b"application/problem+json" in answer, (name, answer)
                assert b'"request_invalid"' in answer or b'"headers_too_large"' in answer, (name, answer)
            assert (await api.get("/livez")).status_code == 200

    asyncio.run(main())


def test_a_client_that_does_not_finish_its_headers_is_disconnected(monkeypatch):
    complete = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"

    async def main() -> None:
        async with live_server() as api:
            # After the requests that publish the workflow: a busy machine may take longer for these.
            monkeypatch.setattr(server, "HEADERS_SECONDS", 0.2)
            for sent in (b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "):
                assert statuses(await exchange(api, sent)) == []
            assert statuses(await exchange(api, complete + b"GET /li")) == [b"200"]

    asyncio.run(main())


def test_a_request_may_take_longer_than_its_headers(monkeypatch):
    connections: list[server._HttpProtocol] = []
    connection_made = server._HttpProtocol.connection_made

    def made(self: server._HttpProtocol, transport: asyncio.Transport) -> None:
        connections.append(self)
        connection_made(self, transport)

    monkeypatch.setattr(server._HttpProtocol, "connection_made", made)

    async def main() -> None:
        async with live_server() as api:
            job_id = await api.waiting_job()
            async with api.events(f"/jobs/{job_id}/stream") as events:
                await events.next("snapshot")
                # Time passes.
                for connection in connections:
                    if connection._deadline is not None:
                        connection._on_deadline()
                await api.post(f"/api/v1/jobs/{job_id}/cancel")
                await events.next("end")

    asyncio.run(main())


def test_a_body_that_does_not_arrive_is_answered_with_408(monkeypatch):
    async def main() -> None:
        async with live_server() as api:
            monkeypatch.setattr(request_limits, "BODY_SECONDS", 0.05)
            head = (
                b"POST /api/v1/workflows/validate HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{" % key_of(api)
            )
            answer = await exchange(api, head)
            assert statuses(answer) == [b"408"]
            assert b"request_timed_out" in answer
            assert b"connection: close" in answer.lower()

    asyncio.run(main())


def test_a_body_that_is_too_large_is_not_read_to_its_end():
    async def main() -> None:
        async with live_server() as api:
            head = (
                b"POST /api/v1/workflows/validate HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n"
                b"Content-Type: application/json\r\nContent-Length: 9999999999\r\n\r\n" % key_of(api)
            )
            answer = await exchange(api, head + b" " * (MAX_BODY_BYTES + 1))
            assert statuses(answer) == [b"413"]

    asyncio.run(main())


def test_a_path_with_a_slash_at_its_end_is_another_path():
    async def main() -> None:
        async with opened_api() as api:
            for path in ("/livez/", "/api/v1/jobs/", "/api/v1/workflows/"):
                answer = await api.http.get(path, headers=api.headers)
                assert (answer.status_code, answer.json()["code"]) == (404, "route_not_found")

    asyncio.run(main())


OTHERS = [
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "multipart/form-data; boundary=x"},
    {"Content-Type": "application/xml"},
    {},
    {"Content-Type": "application/json", "Content-Encoding": "gzip"},
]


def test_a_body_that_is_not_json_is_answered_with_415():
    async def main() -> None:
        async with opened_api() as api:
            for headers, path in itertools.product(OTHERS, ("jobs", "workflows", "jobs/1/resume")):
                answer = await api.http.post(
                    f"/api/v1/{path}", content=b"{}", headers={**api.headers, **headers}
                )
                assert (answer.status_code, answer.json()["code"]) == (415, "media_type_unsupported"), (
                    headers,
                    path,
                )
            fine = {"Content-Type": "application/json; charset=utf-8"}
            answer = await api.http.post("/api/v1/jobs", content=b'{"a": 1}', headers={**api.headers, **fine})
            assert answer.status_code == 422

    asyncio.run(main())


def test_a_path_cannot_leave_its_place():
    names = ("..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2Fetc%2Fpasswd", "a%5C..%5Cb", "%00", "~", "*", "%")
    paths = ("jobs/{}", "jobs/{}/nodes/x", "jobs/1/nodes/{}", "workflows/{}", "workflows/{}/diagram.svg")

    async def main() -> None:
        async with opened_api() as api:
            for path in (path.format(name) for path in paths for name in names):
                answer = await api.http.get(f"/api/v1/{path}", headers=api.headers)
                # Clients resolve `..` themselves: then it is another route.
                assert answer.status_code in (400, 404, 422) or ".." in path, (
                    path,
                    answer.status_code,
                    answer.text,
                )
                assert answer.status_code < 500

    asyncio.run(main())


def test_a_probe_of_a_load_balancer_may_ask_for_the_headers_only():
    async def main() -> None:
        async with live_server() as api:
            for path in (b"/livez", b"/readyz"):
                answer = await exchange(
                    api, b"HEAD " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                )
                assert statuses(answer) == [b"200"]
                assert answer.endswith(b"\r\n\r\n"), "there is no body"
            answer = await exchange(
                api, b"HEAD /api/v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            assert statuses(answer) == [b"405"]

    asyncio.run(main())


@pytest.mark.parametrize("rounds", range(5))
def test_a_connection_that_is_accepted_while_the_server_stops_is_closed(rounds):
    async def main() -> bytes:
        async with live_server() as api:
            loop = asyncio.get_running_loop()
            with socket.create_connection(api.address) as client:
                client.setblocking(False)
                for _ in range(rounds):
                    await asyncio.sleep(0)
                await api.server.shutdown([])
                assert api.server.server_state.connections == set()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    with contextlib.suppress(ConnectionResetError):
                        return await loop.sock_recv(client, 1)
        return b""

    assert asyncio.run(main()) == b""
