"""Graphs that are built in code, over HTTP: the client's lines, typed JSON, and what is rejected."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import AsyncClient, Group, ResultCollector, create_task
from dagmaster.application.graph_jobs import GraphJobRequest
from dagmaster.authoring.python.graph_collection import Hold, collect
from dagmaster.errors import NodesRejected
from dagmaster.http.api import graphs
from dagmaster.ports.api_keys import Scope
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.unit.http.api_client import Api

NDJSON = {"Content-Type": "application/x-ndjson"}


def on_api(test: Callable[[Api], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        # No worker serves the queue of the tasks.
        async with opened_api(queues=["other"]) as api:
            await api.use_key(Scope.ADMIN)
            await test(api)

    return lambda: asyncio.run(run())


def a_graph() -> Any:
    first = create_task("m.first", {"text": "{{ x }}"}, queue="q")
    group = Group("g", [create_task("m.member", {"data": first}, queue="q", retry=2, timeout_seconds=5)])
    last = create_task("m.last", {"all": ResultCollector(group.tasks)}, queue="q", allow_failure=True)
    group >> last
    return collect(last)


def client_of(api: Api) -> AsyncClient:
    key = api.headers["Authorization"].removeprefix("Bearer ")
    return AsyncClient("http://test", key, transport=api.http._transport)


async def stored(api: Api, job_id: str) -> Any:
    added = api.application.read.added_nodes
    return await added.load_batches(
        job_id, [*await added.accepted_batches(job_id), *await added.pending_batches(job_id)]
    )


@on_api
async def test_a_graph_arrives_as_it_was_sent(api: Api):
    collected = a_graph()
    collected.add_hold(Hold(60, is_first=True), collected.leaf_groups())
    async with client_of(api) as client:
        result = await client.submit_graph(GraphJobRequest(name="sent", part=collected.part))
        (batch,) = await stored(api, result.job_id or "")
        expected = collected.part.to_rows(1)
        assert [one[:3] for one in batch.nodes] == [one[:3] for one in expected.nodes]
        assert [json.loads(one.definition) for one in batch.nodes] == [json.loads(o.definition) for o in expected.nodes]
        assert list(batch.groups) == expected.groups
        assert list(batch.dependencies) == expected.dependencies
        more = collect(create_task("m.more", queue="q"), job_id=int(result.job_id or 0)).part
        added = await client.add_nodes(result.job_id or "", more)
        assert added.is_accepted
        assert list(added.names.values()) == ["more_b2_1"]
        await client.release_hold(result.job_id or "", "context_hold")
        task = collected.part.tasks[0]
        view = await client.find_task(str(task.id))
        assert (view.entrypoint, view.kwargs, view.attempts) == ("m.first", {"text": "{{ x }}"}, 1)


@on_api
async def test_a_cycle_is_rejected_with_its_code_and_nothing_is_stored(api: Api):
    a, b = create_task("m.a", queue="q"), create_task("m.b", queue="q")
    a >> b >> a
    async with client_of(api) as client:
        with pytest.raises(NodesRejected, match="cycle: "):
            await client.submit_graph(GraphJobRequest(name="round", part=collect(a).part))
    answer = await api.get("/api/v1/jobs")
    assert answer.json()["items"] == []


@on_api
async def test_a_graph_is_typed_json(api: Api):
    task = {"id": "7", "label": "one", "definition": {"handler": "m.one", "queue": "q", "params": {"x": [1]}}}
    answer = await api.post("/api/v1/jobs/graph", {"name": "typed", "graph": {"tasks": [task]}})
    assert answer.status_code == 202
    job_id = answer.json()["job_id"]
    found = await api.get("/api/v1/tasks/7")
    assert (found.json()["job_id"], found.json()["node_id"]) == (job_id, "one")
    again = {"tasks": [{**task, "id": "8", "name": "one"}]}
    rejected = await api.post(f"/api/v1/jobs/{job_id}/tasks", again)
    assert (rejected.status_code, rejected.json()["code"]) == (422, "nodes_rejected")
    assert "'one' already" in rejected.json()["detail"]
    no_queue = {"id": "9", "definition": {"handler": "m.one"}}
    rejected = await api.post(f"/api/v1/jobs/{job_id}/tasks", {"tasks": [no_queue]})
    assert "has no queue" in rejected.json()["detail"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"job": {"name": "n"}}\n{"task": {"id": "x"}}', "line 2: "),
        ('{"job": {"name": "n"}}\n\nnothing', "line 3: it is a JSON object"),
        ('{"job": {"name": "n"}}\n{"other": 1}', "line 2: it is a JSON object"),
        ('{"group": {"id": "1", "name": "g"}}', 'a line {"job"'),
        ("[" * 100_000, "line 1: it is a JSON object"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(lines: str, message: str):
    async def run(api: Api) -> None:
        answer = await api.http.post("/api/v1/jobs/graph/lines", content=lines, headers={**api.headers, **NDJSON})
        assert answer.status_code == 400
        assert message in json.dumps(answer.json(), ensure_ascii=False).replace('\\"', '"')

    on_api(run)()


def test_a_body_that_decompresses_to_too_much_is_rejected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graphs, "MAX_LINES_BYTES", 10_000)

    async def run(api: Api) -> None:
        headers = {**api.headers, **NDJSON, "Content-Encoding": "gzip"}
        bomb = gzip.compress(b" " * 1_000_000)
        assert (await api.http.post("/api/v1/jobs/graph/lines", content=bomb, headers=headers)).status_code == 413
        broken = await api.http.post("/api/v1/jobs/graph/lines", content=b"no gzip", headers=headers)
        assert broken.status_code == 400
        cut = await api.http.post("/api/v1/jobs/graph/lines", content=gzip.compress(b"{}")[:-4], headers=headers)
        assert cut.status_code == 400

    on_api(run)()


@on_api
async def test_a_signal_that_is_no_hold_is_not_sent(api: Api):
    answer = await api.post("/api/v1/jobs/1/holds/go/release")
    assert answer.status_code in {400, 422}
    assert (await api.post("/api/v1/jobs/1/holds/context_hold/release")).status_code == 404
