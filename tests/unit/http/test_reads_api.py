"""Everything that can be read over HTTP: pages, filters, plans, progress, versions, health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from dagmaster.application.queries.job_detail import job_detail
from dagmaster.application.queries.nodes import list_nodes
from dagmaster.client.async_client import AsyncClient
from dagmaster.errors import QueryInvalid
from dagmaster.http.aliases import ALIASES
from dagmaster.http.api import jobs
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.read_store import NodeFilter
from dagmaster.ports.schema_admin import SchemaState
from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import FLOW, opened_api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.http.api_client import Api

FAN = """
workflow_id: fan
version: 1
inputs: {names: {type: array, default: [a, b, c]}}
nodes:
  each: {type: fan_out, source: "{{ inputs.names }}", task: {handler: greet, queue: q, params: {name: "{{ item }}"}}}
"""


def with_api(work: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened_api() as api:
            await work(api)

    asyncio.run(main())


def test_every_list_has_pages_that_follow_each_other():
    async def work(api: Api) -> None:
        await api.publish(FAN)
        job_id = (await api.post("/api/v1/jobs", {"workflow_id": "fan"})).json()["job_id"]
        await finished(api.application, job_id)
        for path, total in (
            (f"/api/v1/jobs/{job_id}/nodes", 4),
            (f"/api/v1/jobs/{job_id}/nodes/each/children", 3),
            (f"/api/v1/jobs/{job_id}/nodes/each__0/attempts", 1),
            ("/api/v1/nodes", 4),
            ("/api/v1/orchestrators", 1),
            ("/api/v1/workers", 1),
            ("/api/v1/workflows", 1),
            ("/api/v1/workflows/fan/versions", 1),
        ):
            items, following = [], f"{path}?limit=1"
            while following:
                answer = await api.http.get(following, headers=api.headers)
                items += answer.json()["items"]
                cursor, link = answer.json()["next_cursor"], answer.links.get("next")
                following = "" if link is None else link["url"]
                assert link is None if cursor is None else f"cursor={quote(cursor)}" in following, path
            assert len(items) == total, path
        events = (await api.get(f"/api/v1/jobs/{job_id}/events", after=2, limit=1000)).json()["items"]
        assert events[0]["seq"] == 3
        counts = (await api.get("/api/v1/events/counts")).json()
        assert counts["total"] == len(events) + 2
        assert (await api.get(f"/api/v1/jobs/{job_id}/nodes", top_level=True)).json()["items"][0][
            "node_id"
        ] == "each"
        assert (await api.get("/api/v1/nodes", status="failed")).json()["items"] == []
        assert (await api.get("/api/v1/tasks", is_claimed=True)).json() == {"items": [], "next_cursor": None}

    with_api(work)


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/api/v1/jobs", {"statuss": "failed"}),
        ("/api/v1/jobs", {"limit": 0}),
        ("/api/v1/jobs", {"limit": 1001}),
        ("/api/v1/jobs", {"correlation_id": "x" * 65}),
        ("/api/v1/jobs", {"parent_job_id": "x"}),
        ("/api/v1/stats", {"page": 2}),
        ("/api/v1/workflows", {"tag": "x" * 201}),
        ("/livez", {"x": 1}),
    ],
)
def test_an_unknown_or_bad_parameter_is_named(path, params):
    async def work(api: Api) -> None:
        answer = await api.get(path, **params)
        (name,) = params
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, f"query.{name}"), answer.text

    with_api(work)


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("jobs", "status", "foo"),
        ("jobs", "version", "1"),
        ("jobs", "since", "yesterday"),
        ("jobs", "finished_until", "now?"),
        ("jobs", "cursor", "damaged"),
        ("stats", "until", "1e9d"),
        ("nodes", "status", "foo"),
        ("events", "since", "x"),
        ("tasks/finished", "since", "x"),
    ],
)
def test_a_parameter_that_the_application_rejects_is_also_named(path, name, value):
    async def work(api: Api) -> None:
        answer = await api.get(f"/api/v1/{path}", **{name: value})
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["path"]) == (400, f"query.{name}"), answer.text
        assert error["message"] in answer.json()["detail"]
        assert not error["message"].startswith(f"{name}: ")

    with_api(work)


@pytest.mark.parametrize(
    ("node_filter", "count"),
    [({}, 4), ({"top_level": True}, 1), ({"parent_node_id": "each"}, 3), ({"workflow_id": "other"}, 0)],
)
def test_a_client_lists_the_same_nodes_as_the_application(node_filter, count):
    async def work(api: Api) -> None:
        await api.publish(FAN)
        job_id = (await api.post("/api/v1/jobs", {"workflow_id": "fan"})).json()["job_id"]
        await finished(api.application, job_id)
        of_job = NodeFilter(job_id=None if "workflow_id" in node_filter else job_id, **node_filter)
        key, transport = await api.use_key(Scope.READ), httpx.ASGITransport(api.app)
        async with AsyncClient("http://test", key, transport=transport) as client:
            pages = [await client.list_nodes(of_job), await list_nodes(api.application, of_job)]
            remote, local = ([node.node_id for node in page.items] for page in pages)
            assert (remote, len(remote)) == (local, count)
            with pytest.raises(QueryInvalid, match="job_id"):
                await client.list_nodes(NodeFilter(parent_node_id="each"))

    with_api(work)


def test_a_document_with_too_many_children_is_refused_and_their_pages_are_named(monkeypatch):
    async def work(api: Api) -> None:
        await api.publish(FAN)
        job_id = (await api.post("/api/v1/jobs", {"workflow_id": "fan"})).json()["job_id"]
        await finished(api.application, job_id)
        url = f"/api/v1/jobs/{job_id}"
        assert len((await api.get(url, children=True)).json()["nodes"]) == 4
        monkeypatch.setattr(jobs, "MAX_CHILDREN", 2)
        answer = await api.get(url, children=True)
        assert (answer.status_code, answer.json()["code"]) == (400, "query_invalid")
        assert answer.json()["detail"].endswith(f"{url}/nodes/each/children")
        assert (await api.get(url)).status_code == 200
        # Only documents of the server are limited.
        assert len((await job_detail(api.application, job_id, with_children=True)).nodes) == 4

    with_api(work)


def test_nul_in_a_url_is_rejected():
    async def work(api: Api) -> None:
        for path in ("/api/v1/jobs/%00", "/api/v1/jobs?name=%00"):
            answer = await api.http.get(path, headers=api.headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "request_invalid")

    with_api(work)


def test_a_job_is_found_by_the_ids_of_its_submitter():
    async def work(api: Api) -> None:
        await api.publish()
        body = {"workflow_id": "hello", "correlation_id": "order 7"}
        job_id = (await api.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k"})).json()["job_id"]
        for params in ({"correlation_id": "order 7"}, {"idempotency_key": "k"}):
            assert [job["job_id"] for job in (await api.get("/api/v1/lookup", **params)).json()["items"]] == [
                job_id
            ]
        assert (await api.get("/api/v1/lookup")).status_code == 400
        assert (await api.get("/api/v1/stats", correlation_id="order 8")).json()["total"] == 0

    with_api(work)


def test_a_plan_shows_what_a_submit_would_do_and_stores_nothing():
    async def work(api: Api) -> None:
        await api.publish()
        plan = (await api.post("/api/v1/plan", {"workflow_id": "hello", "inputs": {"name": "Ada"}})).json()
        assert {node["node_id"]: node["status"] for node in plan["nodes"]} == {
            "greet": "DISPATCHED",
            "ask": "PENDING",
        }
        assert plan["queues"] == [{"queue": "q", "workers": 1}]
        assert plan["inputs"] == {"name": "Ada"}
        bad = await api.post("/api/v1/plan", {"workflow_id": "hello", "inputs": {"name": 7}})
        assert (bad.status_code, bad.json()["code"]) == (422, "inputs_invalid")
        assert (await api.get("/api/v1/stats")).json()["total"] == 0

    with_api(work)


def test_progress_counts_nodes_and_says_what_is_left():
    async def work(api: Api) -> None:
        await api.publish()
        job_id = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
        await api.until(job_id, "WAITING")
        progress = (await api.get(f"/api/v1/jobs/{job_id}/progress")).json()
        assert progress["overall_percent"] == 50.0
        assert (progress["nodes"]["completed"], progress["nodes"]["pending"]) == (1, 1)
        assert progress["estimate"] is None
        node = (await api.get(f"/api/v1/jobs/{job_id}/nodes/greet/progress")).json()
        assert (node["status"], node["percent"]) == ("COMPLETED", 100.0)

    with_api(work)


def test_versions_are_compared_and_their_schema_and_diagram_have_an_etag():
    async def work(api: Api) -> None:
        await api.publish()
        await api.publish(FLOW.replace("version: 1", "version: 2").replace("go on?", "really?"))
        diff = (await api.get("/api/v1/workflows/hello/diff", before=1, after=2)).json()
        assert {(change["path"], change["kind"]) for change in diff["changes"]} == {
            ("version", "changed"), ("nodes.ask.message", "changed"),
        }  # fmt: skip
        schema = await api.get("/api/v1/workflows/hello/schema")
        assert schema.json()["properties"]["name"] == {"type": "string", "default": "world"}
        for path in ("schema", "diagram.svg", ""):
            url = f"/api/v1/workflows/hello/{path}".rstrip("/")
            first = await api.get(url)
            again = await api.http.get(url, headers={**api.headers, "If-None-Match": first.headers["etag"]})
            assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
        assert (await api.get("/api/v1/workflows/hello/diff", before=1, after=9)).status_code == 404

    with_api(work)


def test_health_names_each_part_and_since_when():
    async def work(api: Api) -> None:
        healthy = await api.get("/health")
        assert (healthy.status_code, healthy.json()["status"]) == (200, "HEALTHY")
        since = healthy.json()["parts"]["schema"]["since"]
        assert (await api.get("/health")).json()["parts"]["schema"]["since"] == since
        assert (await api.get("/readyz")).json() == {"is_ready": True, "failing": []}

    with_api(work)


def test_a_server_on_an_old_schema_is_not_ready_and_says_so(monkeypatch):
    async def old(_self: object) -> SchemaState:
        return SchemaState("0001", "0004", is_usable=False)

    async def work(api: Api) -> None:
        monkeypatch.setattr("dagmaster.store.memory.schema_admin.MemorySchemaAdmin.state", old)
        ready = await api.http.get("/readyz")
        assert (ready.status_code, ready.json()["failing"]) == (
            503,
            ["schema", "tenants", "secrets_key", "orchestrators"],
        )
        health = await api.get("/health")
        assert (health.status_code, health.json()["parts"]["schema"]["state"]) == (503, "UNHEALTHY")
        assert ready.headers["retry-after"] == health.headers["retry-after"] == "2"
        assert "0001" not in ready.text

    with_api(work)


def test_the_next_page_keeps_the_filters_of_the_request_and_shows_no_host():
    async def work(api: Api) -> None:
        await api.publish()
        for name in ("a&b", "a&b", "other"):
            await api.post("/api/v1/jobs", {"workflow_id": "hello", "name": name})
        answer = await api.get("/api/v1/jobs", name="a&b", limit=1, status=["running", "waiting", "pending"])
        link = answer.links["next"]["url"]
        assert link.startswith("/api/v1/jobs?")
        page = await api.http.get(link, headers=api.headers)
        assert [job["name"] for job in page.json()["items"]] == ["a&b"]
        last = await api.http.get(page.links["next"]["url"], headers=api.headers)
        assert (last.json()["items"], "link" in last.headers) == ([], False)

    with_api(work)


def test_older_routes_answer_like_the_routes_that_they_stand_for():
    async def work(api: Api) -> None:
        await api.publish()
        job_id = (await api.post("/api/dag/submit", {"workflow_id": "hello"})).json()["job_id"]
        await api.until(job_id, "WAITING")
        for old, new in ALIASES.items():
            if old.endswith(("submit", "cancel", "complete", "callbacks/{id}", "handler")):
                continue
            first, second = [await api.get(path.format(id=job_id)) for path in (old, new)]
            assert first.status_code == second.status_code == 200
            assert first.json().keys() == second.json().keys()
        assert (await api.post(f"/api/dag/jobs/{job_id}/cancel")).json()["accepted"] is True
        tested = await api.post("/api/test/handler", {"handler": "greet", "params": {"name": "Ada"}})
        assert (tested.status_code, tested.json()["output"]) == (200, {"text": "hello Ada"})
        for old in (
            "/api/task/complete",
            *(f"/api/callbacks/task-{what}" for what in ("result", "progress", "heartbeat")),
        ):
            assert (await api.post(old, {})).status_code == 403, "they need the scope work"
        api.headers = {}
        assert (await api.get(f"/api/dag/jobs/{job_id}")).status_code == 401

    with_api(work)


def test_an_answer_is_compressed_and_has_the_id_of_its_request():
    async def work(api: Api) -> None:
        answer = await api.http.get("/openapi.json", headers={"X-Request-ID": "trace-1234"})
        assert (answer.headers["content-encoding"], answer.headers["x-request-id"]) == ("gzip", "trace-1234")
        other = await api.http.get("/livez", headers={"X-Request-ID": "bad id\t"})
        assert len(other.headers["x-request-id"]) == 16

    with_api(work)
