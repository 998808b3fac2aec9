"""Streams on a real database: whatever is restarted, a client that resumes gets every event exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster.application.api_keys import create_key
from dagmaster.bootstrap.http_server import ServerService
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.sdk.handler_registry import handler
from dagmaster.settings import load_settings
from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore
from tests.integration.runtime.dying_world import DyingWorld
from tests.integration.runtime.runtime_world import Gate
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dagmaster.store.embedded.server import EmbeddedPostgres

STEPS = 5
CHAIN = "name: chain\nnodes:\n  n0: {handler: gated, params: {number: 0}}\n" + "".join(
    f"  n{n}: {{handler: gated, params: {{number: {n}}}, depends_on: n{n - 1}}}\n" for n in range(1, STEPS)
)


@pytest.fixture
def world(own_server: EmbeddedPostgres, place: Path) -> DyingWorld:
    return DyingWorld(own_server, place)


@contextlib.asynccontextmanager
async def running_server(
    world: DyingWorld, place: Path, key: str
) -> AsyncIterator[tuple[ServerService, Client]]:
    """Run a server, and give a client of it; it is stopped in the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    service = ServerService(world.address, load_settings(), place, listener)
    running = asyncio.create_task(service.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await service.ready.wait()
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(
            base_url=f"http://{host}:{port}", headers=headers, timeout=PATIENCE_SECONDS
        ) as http:
            yield service, Client(http)
    finally:
        service.stop()
        await running


class Client:
    """Follows jobs."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    @contextlib.asynccontextmanager
    async def follow(self, job_id: str, record: Record) -> AsyncIterator[AsyncIterator[str]]:
        """Open the stream after what is recorded; give the types of messages as they come."""
        headers = {} if record.last_id is None else {"Last-Event-ID": record.last_id}
        async with self._http.stream("GET", f"/api/v1/jobs/{job_id}/stream", headers=headers) as response:
            assert response.status_code == 200
            yield record.read(response)


class Record:
    """What a client has, over all its connections."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.snapshots = 0
        self.first = 0
        self.numbers: list[int] = []
        self.statuses: dict[str, str] = {}
        self.reason: str | None = None

    async def read(self, response: httpx.Response) -> AsyncIterator[str]:
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            if "event" in fields:
                self._take(fields.get("id"), fields["event"], json.loads(fields["data"]))
                yield fields["event"]
            fields = {}

    def _take(self, number: str | None, kind: str, data: Any) -> None:
        self.last_id = number or self.last_id
        if kind == "snapshot":
            self.snapshots += 1
            self.first = data["event_seq"]
        elif kind == "delta":
            self.numbers += [event["seq"] for event in data["events"]]
            self.statuses |= {node_id: node["status"] for node_id, node in data["nodes"].items()}
        elif kind == "end":
            self.reason = data["reason"]

    async def until(self, messages: AsyncIterator[str], node_id: str, status: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.statuses.get(node_id) != status:
                await anext(messages)


async def test_no_event_is_skipped_or_repeated_when_servers_and_postgresql_restart(
    world: DyingWorld, place: Path
):
    gates = [Gate() for _ in range(STEPS)]

    @handler("gated", queue="q")
    async def gated(number: int) -> dict[str, Any]:
        await gates[number].wait()
        return {}

    world.handlers.append(gated)
    await world.orchestrator()
    await world.worker()
    keys = PostgresApiKeyStore(world.address)
    key = (await create_key(keys, "ada", [Scope.READ], origin=ChangeOrigin(actor="test"), now=0.0)).key
    await keys.close()
    job_id, record = await world.submit(CHAIN), Record()

    async with (
        running_server(world, place, key) as (service, client),
        client.follow(job_id, record) as messages,
    ):
        assert await anext(messages) == "snapshot"
        gates[0].open()
        await record.until(messages, "n0", "COMPLETED")
        service.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [kind async for kind in messages][-1] == "end"
        assert record.reason == "shutdown"
    # No server runs: the job goes on.
    gates[1].open()
    await world.until(
        "SELECT status = 'COMPLETED' FROM dag_node_states WHERE job_id = $1 AND node_id = 'n1'", int(job_id)
    )

    async with running_server(world, place, key) as (_, client):
        async with client.follow(job_id, record) as messages:
            await record.until(messages, "n1", "COMPLETED")
            world.kill_server()
            gates[2].open()
            await record.until(messages, "n2", "COMPLETED")
        # The connection was cut by the client, in the middle; PostgreSQL dies while it is away.
        gates[3].open()
        world.kill_server()
        async with client.follow(job_id, record) as messages:
            await record.until(messages, "n3", "COMPLETED")
            gates[4].open()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert [kind async for kind in messages][-1] == "end"
    assert record.reason == "finished"
    assert record.snapshots == 1
    stored = [
        row["seq"]
        for row in await world.rows(
            "SELECT seq FROM dag_job_events WHERE job_id = $1 ORDER BY seq", int(job_id)
        )
    ]
    assert [*range(1, record.first + 1), *record.numbers] == stored
