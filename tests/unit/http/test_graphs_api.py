"""Graphs that are built in code, over HTTP: the client's lines, typed JSON, and what is rejected."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import AsyncClient, Group, ResultCollector, create_task
from dagmaster.application.graph_jobs import GraphJobRequest
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.authoring.python.holds import Hold
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
        assert [json.loads(one.definition) for one in batch.nodes] == [
            json.loads(o.definition) for o in expected.nodes
        ]
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
        # Page by page, without the hold of the context.
        listed, cursor = list[str](), None
        while cursor is not None or not listed:
            page = await client.list_graph_tasks(result.job_id or "", cursor=cursor, limit=1)
            listed += [one.node_id for one in page.items]
            cursor = page.next_cursor
        tasks = [one.node_id for one in batch.nodes if "handler" in json.loads(one.definition)]
        assert listed == [*tasks, "more_b2_1"]
        dependencies = (await client.list_dependencies(result.job_id or "")).items
        ids = {str(one.id) for one in (*batch.nodes, *batch.groups) if "hold" not in str(one)}
        assert {one for view in dependencies for one in (view.previous_id, view.next_id)} <= ids
        assert dependencies


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


def a_task(number: str, label: str = "step", **definition: Any) -> dict[str, Any]:
    return {"id": number, "label": label, "definition": {"handler": "m.step", "queue": "q", **definition}}


async def send_lines(api: Api, path: str, *lines: Any, **headers: str) -> Any:
    content = "\n".join(map(json.dumps, lines))
    return await api.http.post(path, content=content, headers={**api.headers, **NDJSON, **headers})


@pytest.mark.parametrize("is_lines", [False, True])
def test_a_job_has_what_was_sent_with_its_graph(is_lines: bool):
    fields = {"name": "nightly", "priority": 7, "idempotency_key": "k", "correlation_id": "c"}

    async def send(api: Api, number: str, label: str) -> Any:
        task = {"id": number, "label": label, "definition": {"handler": "m.step"}}
        if is_lines:
            return await send_lines(api, "/api/v1/jobs/graph/lines", {"job": fields}, {"task": task})
        return await api.post("/api/v1/jobs/graph", {**fields, "graph": {"tasks": [task]}})

    async def run(api: Api) -> None:
        object.__setattr__(api.application, "default_queue", "of_the_server")
        answer = await send(api, "7", "one")
        job_id = answer.json()["job_id"]
        assert (answer.status_code, answer.headers["Location"]) == (202, f"/api/v1/jobs/{job_id}")
        job = (await api.get(f"/api/v1/jobs/{job_id}")).json()
        assert {name: job[name] for name in fields} == fields
        assert job["submitted_by"] == "key:ada"
        assert (await api.get("/api/v1/tasks/7")).json()["queue"] == "of_the_server"
        # The same graph, built again, has other ids.
        again = (await send(api, "8", "one")).json()
        assert (again["job_id"], again["is_new"]) == (job_id, False)
        assert (await send(api, "9", "other")).json()["code"] == "idempotency_conflict"
        assert len((await api.get("/api/v1/jobs")).json()["items"]) == 1

    on_api(run)()


@pytest.mark.parametrize("is_lines", [False, True])
def test_added_tasks_refer_to_nodes_of_the_job_and_take_the_queue_of_the_server(is_lines: bool):
    task = {"id": "8", "label": "two", "definition": {"handler": "m.step"}}
    edge = {"previous_id": "7", "next_id": "8"}

    async def run(api: Api) -> None:
        object.__setattr__(api.application, "default_queue", "of_the_server")
        job_id = (
            await api.post("/api/v1/jobs/graph", {"name": "n", "graph": {"tasks": [a_task("7")]}})
        ).json()["job_id"]
        path = f"/api/v1/jobs/{job_id}/tasks"
        if is_lines:
            answer = await send_lines(
                api, f"{path}/lines", {"known": ["7", "step"]}, {"task": task}, {"dependency": edge}
            )
        else:
            answer = await api.post(path, {"tasks": [task], "dependencies": [edge], "known": {"7": "step"}})
        assert answer.json()["node_ids"] == {"8": "two_b2_1"}, answer.json()
        (_, batch) = await stored(api, job_id)
        assert [one[1::2] for one in batch.dependencies] == [("step", "two_b2_1")]
        assert json.loads(batch.nodes[0].definition)["queue"] == "of_the_server"
        entries = (await api.get("/api/v1/audit")).json()["items"]
        assert [one["actor"] for one in entries if one["action"] == "job.add_nodes"] == ["key:ada"]
        unknown = await api.post(path, {"tasks": [a_task("9")], "known": {"1": "nothing"}})
        assert "has no node 'nothing'" in unknown.json()["detail"]

    on_api(run)()


@on_api
async def test_lines_of_another_type_or_encoding_are_rejected(api: Api):
    for headers in ({"Content-Type": "application/json"}, {"Content-Encoding": "br"}):
        answer = await send_lines(api, "/api/v1/jobs/graph/lines", {"job": {"name": "n"}}, **headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "media_type_unsupported")


@on_api
async def test_the_id_of_another_task_is_rejected_by_name(api: Api):
    body = {"name": "n", "graph": {"tasks": [a_task("7", "one")]}}
    assert (await api.post("/api/v1/jobs/graph", body)).status_code == 202
    answer = await api.post("/api/v1/jobs/graph", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "nodes_rejected")
    assert "task one: its id 7 is that of another task" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"job": {"name": "n"}}\n{"task": {"id": "x"}}', "line 2: "),
        ('{"job": {"name": "n"}}\n\nnothing', "line 3: it is not valid JSON: Expecting value"),
        ('{"job": {"name": "n"}}\n[1]', "line 2: it is a JSON object"),
        ('{"job": {"name": "n"}}\n{"known": 1}', "line 2: it is a JSON object"),
        ('{"job": {"name": "n"}}\n{"other": 1}', "line 2: it is a JSON object"),
        ('{"group": {"id": "1", "name": "g"}}', 'a line {"job"'),
        ("[" * 100_000, "line 1: it is not valid JSON: it is nested too deeply"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(lines: str, message: str):
    async def run(api: Api) -> None:
        answer = await api.http.post(
            "/api/v1/jobs/graph/lines", content=lines, headers={**api.headers, **NDJSON}
        )
        assert answer.status_code == 400
        assert message in json.dumps(answer.json(), ensure_ascii=False).replace('\\"', '"')

    on_api(run)()


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ('"handler": "m.x\\u0000", "params": {}', "the character NUL"),
        ('"handler": "m.x", "params": {"a\\u0000": 1}', "the character NUL"),
        ('"handler": "m.x", "params": {"a": "\\ud800"}', "one half of a surrogate pair"),
        ('"handler": "m.x", "params": {"a": 1, "a": 2}', "key 'a' appears twice"),
        ('"handler": "m.x", "params": {"a": NaN}', "NaN is not JSON"),
        ('"handler": "m.x", "params": {"a": 1e999}', "the number 1e999 is too large"),
        ('"handler": "m.x", "params": {"a": ' + "[" * 200 + "]" * 200 + "}", "nested more than 128 levels"),
    ],
)
def test_a_line_is_as_strict_as_a_body(part: str, reason: str):
    task = f'{{"id": "7", "definition": {{"queue": "q", {part}}}}}'

    async def run(api: Api) -> None:
        lines = f'{{"job": {{"name": "n"}}}}\n{{"task": {task}}}'
        answer = await api.http.post(
            "/api/v1/jobs/graph/lines", content=lines, headers={**api.headers, **NDJSON}
        )
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["path"]) == (400, "body.2")
        assert reason in error["message"]
        body = f'{{"name": "n", "graph": {{"tasks": [{task}]}}}}'
        headers = {**api.headers, "Content-Type": "application/json"}
        answer = await api.http.post("/api/v1/jobs/graph", content=body, headers=headers)
        assert (answer.status_code, reason in answer.text) == (400, True)
        assert (await api.get("/api/v1/jobs")).json()["items"] == []

    on_api(run)()


@on_api
async def test_lines_after_the_end_of_the_gzip_are_not_lost(api: Api):
    parts = [{"job": {"name": "n"}}, {"task": a_task("7")}]
    content = b"".join(gzip.compress(json.dumps(part).encode() + b"\n") for part in parts)
    headers = {**api.headers, **NDJSON, "Content-Encoding": "gzip"}
    answer = await api.http.post("/api/v1/jobs/graph/lines", content=content, headers=headers)
    assert (answer.status_code, "continues after the end" in answer.text) == (400, True)
    assert (await api.get("/api/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize("is_lines", [False, True])
def test_the_header_with_the_idempotency_key_counts_for_a_graph(is_lines: bool):
    async def send(api: Api, key: str, **fields: str) -> Any:
        task = {"task": a_task("7")} if is_lines else {"tasks": [a_task("7")]}
        headers = {"Idempotency-Key": key}
        if is_lines:
            return await send_lines(
                api, "/api/v1/jobs/graph/lines", {"job": {"name": "n", **fields}}, task, **headers
            )
        body = {"name": "n", "graph": task, **fields}
        return await api.http.post("/api/v1/jobs/graph", json=body, headers={**api.headers, **headers})

    async def run(api: Api) -> None:
        first, again = [(await send(api, "k")).json() for _ in range(2)]
        assert (first["is_new"], again["is_new"]) == (True, False)
        assert first["job_id"] == again["job_id"]
        answer = await send(api, "other", idempotency_key="k")
        assert (answer.status_code, answer.json()["code"]) == (400, "submission_rejected")

    on_api(run)()


def a_reader(*references: Any, **fields: Any) -> dict[str, Any]:
    return {**a_task("8", "reader", params={"x": [1]}), "references": list(references), **fields}


@pytest.mark.parametrize("is_lines", [False, True])
def test_a_task_waits_for_the_tasks_whose_results_it_gets(is_lines: bool):
    reader = a_reader({"path": ["x", 0], "task": "7"}, {"path": ["new"], "task": "7", "within": ["rows"]})

    async def run(api: Api) -> None:
        if is_lines:
            lines = [{"job": {"name": "n"}}, {"task": reader}, {"task": a_task("7")}]
            answer = await send_lines(api, "/api/v1/jobs/graph/lines", *lines)
        else:
            answer = await api.post(
                "/api/v1/jobs/graph", {"name": "n", "graph": {"tasks": [reader, a_task("7")]}}
            )
        (batch,) = await stored(api, answer.json()["job_id"])
        assert list(batch.dependencies) == [("task", "step", "task", "reader")]

    on_api(run)()


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (
            a_reader({"path": ["x", 7], "task": "7"}),
            "task reader: `params.x[7]` is missing; `params.x` has 1 item",
        ),
        (a_reader({"path": ["y", "z"], "task": "7"}), "`params.y` is missing"),
        (a_reader({"path": ["x", "z"], "task": "7"}), "which has no string keys"),
        (a_reader({"path": ["x"], "task": "8"}), "cycle: reader"),
        (a_reader({"path": ["x"], "task": "9"}), "9 is a group, which has no result"),
        (
            a_reader({"path": ["x"], "task": "7"}, definition={"type": "wait", "signal": "s"}),
            "only tasks have references",
        ),
    ],
)
def test_a_reference_that_cannot_be_filled_is_rejected(reader: dict[str, Any], message: str):
    graph = {"tasks": [a_task("7"), reader], "groups": [{"id": "9", "name": "g"}]}

    async def run(api: Api) -> None:
        answer = await api.post("/api/v1/jobs/graph", {"name": "n", "graph": graph})
        assert (answer.status_code, answer.json()["code"]) == (422, "nodes_rejected")
        assert message in answer.json()["detail"]
        assert (await api.get("/api/v1/jobs")).json()["items"] == []

    on_api(run)()


@on_api
async def test_a_new_job_refers_to_no_node_that_exists_already(api: Api):
    edge = {"previous_id": "5", "next_id": "7"}
    graph = {"tasks": [a_task("7")], "known": {"5": "ghost"}, "dependencies": [edge]}
    answer = await api.post("/api/v1/jobs/graph", {"name": "n", "graph": graph})
    assert (answer.status_code, answer.json()["code"]) == (422, "nodes_rejected")
    assert "the job has no node 'ghost'" in answer.json()["detail"]
    assert (await api.get("/api/v1/jobs")).json()["items"] == []


def test_a_body_that_decompresses_to_too_much_is_rejected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graphs, "MAX_LINES_BYTES", 10_000)

    async def run(api: Api) -> None:
        headers = {**api.headers, **NDJSON, "Content-Encoding": "gzip"}
        bomb = gzip.compress(b" " * 1_000_000)
        assert (
            await api.http.post("/api/v1/jobs/graph/lines", content=bomb, headers=headers)
        ).status_code == 413
        broken = await api.http.post("/api/v1/jobs/graph/lines", content=b"no gzip", headers=headers)
        assert broken.status_code == 400
        cut = await api.http.post(
            "/api/v1/jobs/graph/lines", content=gzip.compress(b"{}")[:-4], headers=headers
        )
        assert cut.status_code == 400

    on_api(run)()


@on_api
async def test_a_signal_that_is_no_hold_is_not_sent(api: Api):
    answer = await api.post("/api/v1/jobs/1/holds/go/release")
    assert answer.status_code in {400, 422}
    assert (await api.post("/api/v1/jobs/1/holds/context_hold/release")).status_code == 404
