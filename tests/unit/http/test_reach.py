"""What a narrowed key reaches: every route, with every scope, for its own jobs and for jobs of others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from dagmaster.application.access import OWN_READS
from dagmaster.application.api_keys import allows, create_key
from dagmaster.http.app import route_reaches, route_scopes
from dagmaster.ports.api_keys import KeyLimits, Reach, Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ui.navigation import Mode
from dagmaster.ui.site import GROUPS, Site, page_scopes
from tests.unit.http.api_client import opened_api
from tests.unit.http.live_server import live_server
from tests.unit.ui.page_client import Pages

if TYPE_CHECKING:
    from tests.unit.http.api_client import Api

OWN_JOBS: Final = {"/jobs", "/jobs/cancel", "/jobs/resume", "/lookup", "/stats", "/stream"}
REQUESTS: Final = {
    "/platforms",
    "/platforms/{platform_id}",
    "/requests",
    "/requests/{request_id}",
    "/requests/{request_id}/status",
    "/submit",
    "/submit/batch",
}
NO_JOBS: Final = {
    "/callbacks/task-heartbeat",
    "/callbacks/task-progress",
    "/callbacks/task-result",
    "/handlers",
    "/handlers/{name}",
    "/jobs",
    "/jobs/batch",
    "/plan",
    "/tasks/claim",
    "/workers",
    "/workers/{worker_id}/deregister",
    "/workflows",
    "/workflows/validate",
    "/workflows/{workflow_id}",
    "/workflows/{workflow_id}/diagram.svg",
    "/workflows/{workflow_id}/diff",
    "/workflows/{workflow_id}/graph",
    "/workflows/{workflow_id}/schema",
    "/workflows/{workflow_id}/versions",
}
ALL_JOBS: Final = {
    ("GET", "/health"),
    ("GET", "/api/v1/callbacks"),
    ("GET", "/api/v1/callbacks/endpoints"),
    ("GET", "/api/v1/callbacks/{callback_id}"),
    ("POST", "/api/v1/callbacks/endpoints/pause"),
    ("POST", "/api/v1/callbacks/endpoints/resume"),
    ("POST", "/api/v1/callbacks/replay"),
    ("POST", "/api/v1/callbacks/{callback_id}/replay"),
    ("GET", "/api/v1/events"),
    ("GET", "/api/v1/events/counts"),
    ("GET", "/api/v1/fleet"),
    ("POST", "/api/v1/fleet/{service_id}/drain"),
    ("POST", "/api/v1/fleet/{service_id}/undrain"),
    ("GET", "/api/v1/metrics/durations"),
    ("GET", "/api/v1/metrics/failures"),
    ("GET", "/api/v1/metrics/throughput"),
    ("GET", "/api/v1/metrics/workflows"),
    ("GET", "/api/v1/metrics/workflows/{workflow_id}/history"),
    ("GET", "/api/v1/metrics/workflows/{workflow_id}/nodes"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/orchestrator/status"),
    ("GET", "/api/v1/orchestrators"),
    ("GET", "/api/v1/queues"),
    ("GET", "/api/v1/tasks"),
    ("GET", "/api/v1/tasks/finished"),
    ("GET", "/api/v1/tasks/{task_id}"),
    ("GET", "/api/v1/workers"),
}
"""Not for a key that reaches only its own jobs. Routes of the scope admin, which no narrowed key has, are not listed."""


def test_every_route_has_a_decision_about_narrowed_keys():
    """A new route is in one of the sets above: whether it shows jobs of others is decided, and not forgotten."""
    scopes, reaches = route_scopes(), route_reaches()
    assert reaches.keys() == scopes.keys()
    for (method, path), scope in scopes.items():
        if scope is None or scope is Scope.ADMIN:
            continue
        short, reach = path.removeprefix("/api/v1"), reaches[method, path]
        if "{job_id}" in path:
            expected = Reach.JOB
        elif short in REQUESTS:
            expected = Reach.REQUESTS
        elif (method, path) in ALL_JOBS:
            expected = Reach.ALL
        elif path == "/metrics":
            expected = Reach.INSTALLATION
        elif short in OWN_JOBS and (method == "GET" or short not in NO_JOBS):
            expected = Reach.JOBS
        else:
            assert short in NO_JOBS, f"{method} {path}: decide what a key reaches that has only its own jobs"
            expected = Reach.OPEN
        assert reach is expected, (method, path)


OWN_PAGES: Final = {"/ui/jobs", "/ui/jobs/bulk"}
REQUEST_PAGES: Final = {"/ui/requests", "/ui/requests/{request_id}"}
NO_JOB_PAGES: Final = {
    "/ui/{path:path}",
    "/ui/submit",
    "/ui/submit/completions",
    "/ui/editor",
    "/ui/editor/completions",
    "/ui/editor/check",
    "/ui/editor/edit",
    "/ui/workflows/{workflow_id}/graph",
    "/ui/workflows/{workflow_id}/definition",
    "/ui/workflows/{workflow_id}/versions",
}
ALL_PAGES: Final = {
    "/ui/callbacks",
    "/ui/callbacks/endpoints",
    "/ui/callbacks/{callback_id}/replay",
    "/ui/",
    "/ui/workflows",
    "/ui/workflows/{workflow_id}",
    "/ui/nodes",
    "/ui/tasks",
    "/ui/queues",
    "/ui/fleet",
    "/ui/fleet/{service_id}/drain",
    "/ui/fleet/{service_id}/undrain",
    "/ui/health",
}


def test_every_page_has_a_decision_about_narrowed_keys():
    reaches = {route: reach for group in GROUPS for route, reach in group.reaches.items()}
    for (method, path), scope in page_scopes().items():
        if scope is None or scope is Scope.ADMIN:
            continue
        known = [
            reach
            for reach, paths in (
                (Reach.JOB, {path} if "{job_id}" in path else set()),
                (Reach.JOBS, OWN_PAGES),
                (Reach.REQUESTS, REQUEST_PAGES),
                (Reach.OPEN, NO_JOB_PAGES),
                (Reach.ALL, ALL_PAGES),
            )
            if path in paths
        ]
        assert known == [reaches[method, path]], f"{method} {path}: decide what a narrowed key reaches"


def url_of(path: str, job_id: str) -> str:
    return (
        path.replace("{job_id}", job_id)
        .replace("{node_id}", "ask")
        .replace("{path:path}", "x")
        .replace("v1/stream", "v1/stream?limit=0")
        .replace("{", "")
        .replace("}", "")
    )


async def narrowed(api: Api, *scopes: Scope, name: str = "own", **limits: Any) -> str:
    chosen = KeyLimits(**limits)
    view = await create_key(api.keys, name, scopes, origin=ChangeOrigin(actor="test"), now=0.0, limits=chosen)
    api.headers = {"Authorization": f"Bearer {view.key}"}
    return view.key


async def two_jobs(api: Api) -> tuple[str, str]:
    """Submit a job of another caller, and then one of `own`; return both, the own one first."""
    await api.publish()
    theirs = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
    await api.use_key(Scope.SUBMIT, name="own")
    mine = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
    return mine, theirs


@pytest.mark.slow
def test_every_route_with_every_scope_shows_a_narrowed_key_its_own_jobs_only():
    async def main() -> None:
        async with opened_api() as api:
            mine, theirs = await two_jobs(api)
            for granted in (Scope.READ, Scope.SUBMIT, Scope.OPERATE, Scope.WORK):
                await narrowed(api, granted, is_own=True)
                for route, needed in route_scopes().items():
                    if needed is not None and route[0] != "WS":
                        await check_route(api, granted, route, mine, theirs)

    async def check_route(api: Api, granted: Scope, route: tuple[str, str], mine: str, theirs: str) -> None:
        (method, path), needed, reach = route, route_scopes()[route], route_reaches()[route]
        assert needed is not None
        reads_own = granted is Scope.SUBMIT and needed is Scope.READ and reach in OWN_READS
        answers = {
            job_id: await api.http.request(method, url_of(path, job_id), headers=api.headers)
            for job_id in ([theirs, mine] if reach is Reach.JOB else [mine])
            # The stream of a job that waits has no end: it is tested on a socket below.
            if job_id == theirs
            or not path.endswith("{job_id}/stream")
            or not (reads_own or granted is Scope.READ)
        }
        if not answers.keys() >= {mine}:
            assert code_of(answers[theirs]) == "job_not_found"
            return
        seen = {job_id: (one.status_code, code_of(one)) for job_id, one in answers.items()}
        where = (granted, route, seen)
        if not (allows({granted}, needed) or reads_own):
            assert set(seen.values()) == {(403, "scope_missing")}, where
        elif reach in (Reach.ALL, Reach.INSTALLATION):
            assert seen[mine] == (403, "key_narrowed"), where
        else:
            assert seen[mine][0] not in (401, 403, 500), where
            assert seen[mine][1] != "job_not_found", where
            if reach is Reach.JOB:
                assert seen[theirs] == (404, "job_not_found"), where

    asyncio.run(main())


def code_of(answer: Any) -> str:
    is_problem = answer.headers.get("content-type") == "application/problem+json"
    return str(answer.json()["code"]) if is_problem else ""


@pytest.mark.slow
def test_every_page_shows_a_narrowed_key_its_own_jobs_only():
    async def main() -> None:
        async with opened_api(extensions=(Site(Mode.SERVER),)) as api:
            mine, theirs = await two_jobs(api)
            pages = Pages(api)
            await pages.use_key(await narrowed(api, Scope.READ, Scope.OPERATE, Scope.SUBMIT, is_own=True))
            reaches = {route: reach for group in GROUPS for route, reach in group.reaches.items()}
            for (method, path), needed in page_scopes().items():
                if needed in (None, Scope.ADMIN):
                    continue
                send = pages.get if method == "GET" else pages.post
                reach = reaches[method, path]
                status = (await send(url_of(path, mine))).status_code
                if reach is Reach.ALL:
                    assert status == 403, (method, path)
                else:
                    assert status not in (401, 403, 500), (method, path)
                if reach is Reach.JOB:
                    assert (await send(url_of(path, theirs))).status_code == 404, (method, path)
            listed = (await pages.get("/ui/jobs")).text
            assert (mine in listed, theirs in listed) == (True, False)
            await pages.post("/ui/jobs/bulk", {"action": "cancel", "job_id": [theirs]})
            assert (await pages.get(f"/ui/jobs/bulk?action=cancel&job_id={theirs}")).status_code == 404

    asyncio.run(main())


def test_a_key_with_submit_reads_its_own_jobs_and_only_these():
    async def main() -> None:
        async with opened_api() as api:
            mine, theirs = await two_jobs(api)
            assert (await api.get(f"/api/v1/jobs/{mine}")).json()["submitted_by"] == "key:own"
            assert (await api.get(f"/api/v1/jobs/{mine}/logs")).status_code == 200
            assert (await api.get(f"/api/v1/jobs/{theirs}/result")).json()["code"] == "job_not_found"
            assert (await api.get("/api/v1/jobs/last")).json()["job_id"] == mine
            listed = (await api.get("/api/v1/jobs")).json()["items"]
            assert [job["job_id"] for job in listed] == [mine]
            assert (await api.get("/api/v1/stats")).json()["total"] == 1
            others = await api.get("/api/v1/jobs", submitted_by="key:ada")
            assert (others.status_code, others.json()["code"]) == (403, "key_narrowed")
            assert (await api.get("/api/v1/fleet")).json()["code"] == "scope_missing"
            assert (await api.post(f"/api/v1/jobs/{mine}/cancel")).json()["code"] == "scope_missing"
            # Two keys of a name are one caller: a rotated key keeps its jobs.
            await api.use_key(Scope.SUBMIT, name="own")
            assert (await api.get(f"/api/v1/jobs/{mine}")).status_code == 200
            # The newest job of all is another's by now; `last` stays the newest own one.
            await api.use_key(Scope.SUBMIT, name="other")
            await api.post("/api/v1/jobs", {"workflow_id": "hello"})
            await narrowed(api, Scope.OPERATE, is_own=True)
            assert (await api.post("/api/v1/jobs/last/cancel")).json()["job_id"] == mine

    asyncio.run(main())


def test_the_last_job_is_the_newest_that_the_caller_submitted_whatever_its_key_reaches():
    async def main() -> None:
        async with opened_api() as api:
            mine, theirs = await two_jobs(api)
            for name, expected in (("own", mine), ("ada", theirs)):
                await api.use_key(Scope.OPERATE, Scope.READ, name=name)
                await api.until(expected, "WAITING")
                shown = await api.get("/api/v1/jobs/last")
                assert shown.json()["job_id"] == expected, name
                approved = await api.post("/api/v1/jobs/last/nodes/ask/approve")
                assert approved.json()["job_id"] == expected, name
                events = await api.http.get("/api/v1/jobs/last/stream", headers=api.headers)
                assert f'"job_id":"{expected}"' in events.text.replace(" ", ""), name
            await api.use_key(Scope.ADMIN, name="newcomer")
            for answer in (
                await api.get("/api/v1/jobs/last/why"),
                await api.post("/api/v1/jobs/last/cancel"),
            ):
                assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
                assert "key:newcomer has submitted no job" in answer.json()["detail"]

    asyncio.run(main())


def test_a_key_submits_only_the_workflows_to_which_it_is_narrowed():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            await narrowed(api, Scope.SUBMIT, workflows=("other", "more"))
            body = {"workflow_id": "hello"}
            for path in ("/api/v1/jobs", "/api/v1/plan"):
                answer = await api.post(path, body)
                assert (answer.status_code, answer.json()["code"]) == (403, "key_narrowed"), path
                assert "it may submit: more and other" in answer.json()["detail"]
            (one,) = (await api.post("/api/v1/jobs/batch", {"jobs": [body]})).json()
            assert (one["outcome"], one["error"]["code"]) == ("error", "key_narrowed")
            await narrowed(api, Scope.SUBMIT, workflows=("hello",))
            assert (await api.post("/api/v1/jobs", body)).status_code == 202

    asyncio.run(main())


def test_a_worker_gets_only_queues_and_handlers_to_which_its_key_is_narrowed():
    async def main() -> None:
        async with opened_api() as api:
            await narrowed(api, Scope.WORK, name="gpu", queues=("gpu",), handlers=("a", "b"))

            async def register(handlers: str, queues: str) -> Any:
                body = {"handlers": [{"name": name} for name in handlers.split()], "queues": queues.split()}
                return await api.post("/api/v1/workers", body)

            for handlers, queues, sentence in (
                ("a c", "gpu", "may not have the handler 'c'; it may have: a and b"),
                ("a", "gpu q", "may not have the queue 'q'; it may have: gpu"),
            ):
                answer = await register(handlers, queues)
                assert (answer.status_code, answer.json()["code"]) == (403, "key_narrowed")
                assert sentence in answer.json()["detail"]
            worker_id = (await register("a", "")).json()["worker_id"]
            registered = await api.services.remote_tasks.workers.find(
                worker_id, (await api.keys.all())[0].key_id
            )
            assert registered is not None
            await api.use_key(Scope.READ)
            (worker,) = [
                one
                for one in (await api.get("/api/v1/workers")).json()["items"]
                if one["worker_id"] == worker_id
            ]
            assert worker["queues"] == ["gpu"], "a worker that names no queue serves those of its key"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"scopes": ["read"], "queues": ["q"]}, "narrowed to queues for its scope work"),
        ({"scopes": ["read"], "handlers": ["h"]}, "narrowed to handlers for its scope work"),
        ({"scopes": ["work"], "workflows": ["w"]}, "narrowed to workflows for its scope submit"),
        ({"scopes": ["admin", "read"], "is_own": True}, "the scope admin cannot be narrowed"),
    ],
)
def test_a_limit_that_would_limit_nothing_is_rejected(body, sentence):
    async def main() -> None:
        async with opened_api() as api:
            answer = await api.post("/api/v1/keys", {"name": "x", **body})
            assert (answer.status_code, answer.json()["code"]) == (400, "api_key_invalid")
            assert sentence in answer.json()["detail"]

    asyncio.run(main())


def test_a_rotated_key_is_narrowed_as_the_one_before():
    async def main() -> None:
        async with opened_api() as api:
            body = {
                "name": "x",
                "scopes": ["submit", "work"],
                "workflows": ["w"],
                "queues": ["q"],
                "is_own": True,
            }
            made = (await api.post("/api/v1/keys", body)).json()
            rotated = (await api.post(f"/api/v1/keys/{made['key_id']}/rotate")).json()
            assert {name: rotated[name] for name in body} == body
            assert rotated["actor"] == "key:x"

    asyncio.run(main())


@pytest.mark.process
def test_a_socket_and_streams_show_a_narrowed_key_its_own_jobs_only():
    async def main() -> None:
        async with live_server() as api:
            mine, theirs = await two_jobs(api)
            await narrowed(api, Scope.SUBMIT, is_own=True)
            for job_id, is_shown in ((mine, True), (theirs, False), ("last", True)):
                async with api.socket(f"/ws/jobs/{job_id}") as (_, client):
                    await api.hello(client)
                    message = await client.next()
                    assert (message.get("type") == "snapshot") is is_shown, (job_id, message)
                    assert is_shown or message["closed"] == 4404
                async with api.events(f"/jobs/{job_id}/stream") as events:
                    assert (events.response.status_code == 200) is is_shown
            async with api.events("/stream") as events:
                _, _, snapshot = await events.next("snapshot")
                assert [job["job_id"] for job in snapshot["jobs"]] == [mine]

    asyncio.run(main())
