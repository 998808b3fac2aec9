"""Outputs and results as files over HTTP: sent in chunks, compressed or not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import handler
from dagmaster.ports.output_blobs import CHUNK_BYTES
from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from tests.unit.http.api_client import Api

SIZE = 8 * 1024 * 1024
LARGE = """
workflow_id: large
version: 1
nodes:
  make: {handler: make, queue: q}
outputs: {all: "{{ nodes.make.output }}"}
"""


@handler("make", queue="q")
async def make() -> dict[str, Any]:
    return {"text": "x" * 100_000}


async def sent_parts(
    api: Api, path: str, *headers: tuple[bytes, bytes]
) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Send a request, and return the headers and the parts of the body as the application sent them."""
    fields = [(b"host", b"test"), (b"authorization", api.headers["Authorization"].encode()), *headers]
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": fields, "client": ("test", 1), "server": ("test", 80),
    }  # fmt: skip
    answers: list[Any] = []
    asked = False

    async def receive() -> Any:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        answers.append(message)

    await api.app(scope, receive, send)
    start, *parts = answers
    assert start["status"] == 200
    return dict(start["headers"]), [part["body"] for part in parts]


@pytest.mark.parametrize("what", ["nodes/make/output", "result"])
def test_a_large_value_is_sent_in_chunks(what):
    async def main() -> None:
        async with opened_api(make) as api:
            await api.publish(LARGE)
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "large"})).json()["job_id"]
            await finished(api.application, job_id)
            path = f"/api/v1/jobs/{job_id}/{what}"
            answer = await api.get(path)
            value = answer.json()
            assert len((value["all"] if what == "result" else value)["text"]) == 100_000
            assert answer.headers["content-disposition"].endswith(
                f"job-{job_id}-{what.split('/', 1)[-1].replace('/', '-')}.json"
            )
            blobs: Any = api.application.blobs
            blobs.blobs = dict.fromkeys(blobs.blobs, b" " * SIZE)
            headers, parts = await sent_parts(api, path)
            assert (int(headers[b"content-length"]), sum(map(len, parts))) == (SIZE, SIZE)
            assert max(map(len, parts)) <= CHUNK_BYTES
            headers, parts = await sent_parts(api, path, (b"accept-encoding", b"gzip"))
            assert headers[b"content-encoding"] == b"gzip"
            assert b"content-length" not in headers
            assert len(parts) > SIZE / CHUNK_BYTES
            assert (await api.get(f"/api/v1/jobs/{job_id}/nodes/other/output")).status_code == 404
            blobs.blobs.clear()
            assert (await api.get(path)).status_code == 404

    asyncio.run(main())
