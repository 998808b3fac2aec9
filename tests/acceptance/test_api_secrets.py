"""Canary secrets are sent to the API, and searched in every answer, stream, metric and log line of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import re
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster.bootstrap.http_server import ServerService
from dagmaster.http.app import route_scopes
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from tests.acceptance.canary import KEY, NESTED, PIN, Sandbox, assert_clean, canary_sandbox, leaks
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

STREAM_SECONDS = 0.5
NODES = ["ask", "receive", "work", "tiles", "tiles__0"]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with canary_sandbox() as sandbox:
        yield sandbox


class ApiClient:
    """Requests to a server in this process. Every answer is searched, with its headers."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str) -> int:
        """Search an answer; of a stream that does not end, what arrives within a moment."""
        content, status = b"", 0
        is_stream = "stream" in path or "follow" in path
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(STREAM_SECONDS if is_stream else 60),
                self._http.stream("GET", path) as answer,
            ):
                status = answer.status_code
                assert_clean(str(answer.headers), path)
                async for chunk in answer.aiter_bytes():
                    content += chunk
        assert_clean(content.decode(), path)
        return status

    async def post(self, path: str, body: Any, status: int) -> Any:
        answer = await self._http.post(f"/api/v1/{path}", json=body)
        assert_clean(f"{answer.headers} {answer.text}", path)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.json()


@contextlib.asynccontextmanager
async def served_api(sandbox: Sandbox, key: str) -> AsyncIterator[ApiClient]:
    listener = socket.create_server(("127.0.0.1", 0))
    # As with the embedded server, whose key is next to its data.
    config = DatabaseConfig(dsn=sandbox.dsn, data_dir=sandbox.folder / "postgres")
    blobs = sandbox.folder / "postgres-blobs"
    service = ServerService(config, load_settings(), blobs, listener)
    running = asyncio.create_task(service.run())
    await asyncio.wait_for(service.ready.wait(), PATIENCE_SECONDS)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_SECONDS
        ) as http:
            yield ApiClient(http)
    finally:
        service.stop()
        await asyncio.wait_for(running, PATIENCE_SECONDS)


def get_paths(names: dict[str, list[str]]) -> list[str]:
    """Return the address of every GET route, with every name that exists here."""
    paths = []
    for method, route in route_scopes():
        choices = itertools.product(*(names.get(field, ["1"]) for field in re.findall(r"{(\w+)", route)))
        paths += [re.sub(r"{[^}]+}", "{}", route).format(*choice) for choice in choices if method == "GET"]
    queries = {"/diff": "?before=1&after=1", "/lookup": "?correlation_id=x"}
    return [
        path + next((query for end, query in queries.items() if path.endswith(end)), "") for path in paths
    ]


def test_no_answer_no_stream_no_metric_and_no_log_of_the_api_shows_a_secret(sandbox: Sandbox, caplog):
    caplog.set_level(logging.DEBUG)
    sandbox.read("workflows", "push", str(sandbox.folder))
    key = json.loads(sandbox.dagmaster("keys", "create", "canary", "--scope", "admin", "--json"))["key"]
    inputs = json.loads((sandbox.folder / "inputs.json").read_text())

    async def main() -> None:
        async with served_api(sandbox, key) as api:
            job = {"workflow_id": "canary_controlled", "inputs": inputs, "correlation_id": "x"}
            await api.post("plan", job, 200)
            await api.post("jobs", {**job, "inputs": {**inputs, "pin": KEY, "box": NESTED}}, 422)
            await api.post("jobs", {**job, "inputs": {**inputs, "unknown": KEY}}, 422)
            job_id = (await api.post("jobs", job, 202))["job_id"]
            batch = [{**job, "workflow_id": name} for name in ("canary_failing", "canary_tiles")]
            others = [result["job_id"] for result in await api.post("jobs/batch", {"jobs": batch}, 202)]
            await asyncio.to_thread(sandbox.until, job_id, "ask", "WAITING")
            await api.post(f"jobs/{job_id}/nodes/ask/approve", {"comment": "fine"}, 200)
            await asyncio.to_thread(sandbox.until, job_id, "receive", "WAITING")
            await api.post(f"jobs/{job_id}/signals/go", {"payload": {"from": "ada"}}, 200)
            for job_of, node in ((job_id, "work"), (others[0], "work"), (others[1], "tiles__0")):
                await asyncio.to_thread(sandbox.until, job_of, node, "FAILED")
            await api.post(f"jobs/{job_id}/resume?dry_run=true", {"inputs": {"pin": PIN}}, 400)
            await api.post(f"jobs/{job_id}/resume?dry_run=true", {"inputs": inputs}, 200)
            await api.post(f"jobs/{job_id}/nodes/work/retry?dry_run=true", None, 200)
            statuses = [await api.get(path) for path in get_paths({
                "job_id": [job_id, *others],
                "node_id": NODES,
                "workflow_id": ["canary_controlled", "canary"],
                "name": ["leak.async", "leak.fails"],
            })]  # fmt: skip
            assert statuses.count(200) > len(statuses) / 3
            assert not {status for status in statuses if status >= 500}

    with sandbox.services():
        asyncio.run(main())
    assert_clean(caplog.text, "the log of the server")
    assert leaks(sandbox) == []
