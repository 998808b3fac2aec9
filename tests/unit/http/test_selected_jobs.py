"""Cancel and resume of the jobs that match a filter: a dry run first, then exactly its jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster.application.api_keys import create_key
from dagmaster.application.commands.job_selection import JobAction
from dagmaster.client.async_client import AsyncClient
from dagmaster.ports.api_keys import KeyLimits, Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.job_filter import JobFilter
from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.http.api_client import Api

CANCEL, RESUME = "/api/v1/jobs/cancel", "/api/v1/jobs/resume"
PARENT = """
workflow_id: parent
version: 1
nodes:
  child: {type: workflow, workflow_id: hello}
"""


def with_api(work: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            await work(api)

    asyncio.run(main())


async def submit(api: Api, count: int = 1, workflow_id: str = "hello", **fields: Any) -> list[str]:
    """Submit jobs; return their ids when all wait."""
    bodies = [{"workflow_id": workflow_id, **fields} for _ in range(count)]
    answer = await api.post("/api/v1/jobs/batch", {"jobs": bodies})
    job_ids = [result["job_id"] for result in answer.json()]
    for job_id in job_ids:
        await api.until(job_id, "WAITING")
    return job_ids


async def dry_run(api: Api, path: str, **params: Any) -> dict[str, Any]:
    answer = await api.post(path, params={"dry_run": True, **params})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def ids(selection: dict[str, Any]) -> list[str]:
    return [job["job_id"] for job in selection["jobs"]]


def test_a_dry_run_changes_nothing_and_its_token_cancels_exactly_its_jobs():
    async def work(api: Api) -> None:
        mine = await submit(api, 3, name="mine")
        other = await submit(api, name="other")
        planned = await dry_run(api, CANCEL, name="mine", status="waiting")
        assert (ids(planned), planned["action"]) == (mine[::-1], "cancel")
        statuses = [(await api.get(f"/api/v1/jobs/{job_id}")).json()["is_cancelling"] for job_id in mine]
        assert statuses == [False] * 3
        # It matches now, and was not shown.
        late = await submit(api, name="mine")
        # One of them has ended since.
        await api.post(f"/api/v1/jobs/{mine[0]}/nodes/ask/approve")
        await finished(api.application, mine[0])
        done = (await api.post(CANCEL, {"token": planned["token"], "comment": "wrong year"})).json()
        assert (done["accepted_count"], done["rejected_count"]) == (2, 1)
        outcomes = {
            one["job_id"]: (one["accepted"], (one["error"] or {}).get("code")) for one in done["outcomes"]
        }
        assert outcomes == {mine[0]: (False, "job_finished"), mine[1]: (True, None), mine[2]: (True, None)}
        for job_id in mine[1:]:
            await finished(api.application, job_id)
        events = (await api.get(f"/api/v1/jobs/{mine[1]}/events")).json()["items"]
        assert [one["data"]["comment"] for one in events if one["type"] == "CancelRequested"] == [
            "wrong year"
        ]
        listed = (await api.get("/api/v1/jobs", status="waiting")).json()["items"]
        assert {job["job_id"] for job in listed} == {*late, *other}
        changes = (await api.get("/api/v1/audit", action="job.cancel")).json()["items"]
        assert {entry["object_id"] for entry in changes} == set(mine[1:])
        again = (await api.post(CANCEL, {"token": planned["token"]})).json()
        assert (again["accepted_count"], again["rejected_count"]) == (0, 3)

    with_api(work)


def test_failed_and_cancelled_jobs_that_match_are_resumed():
    async def work(api: Api) -> None:
        cancelled = await submit(api, 2)
        done, *_ = await submit(api)
        await api.post(f"/api/v1/jobs/{done}/nodes/ask/approve")
        await finished(api.application, done)
        selected = await dry_run(api, CANCEL, workflow_id="hello")
        assert sorted(ids(selected)) == sorted(cancelled)
        await api.post(CANCEL, {"token": selected["token"]})
        for job_id in cancelled:
            await finished(api.application, job_id)
        planned = await dry_run(api, RESUME, workflow_id="hello", status=["cancelled", "completed"])
        assert sorted(ids(planned)) == sorted(cancelled), "a completed job has nothing to resume"
        result = (await api.post(RESUME, {"token": planned["token"]})).json()
        assert (result["accepted_count"], result["rejected_count"]) == (2, 0)
        for job_id in cancelled:
            await api.until(job_id, "WAITING")

    with_api(work)


def test_pages_of_a_dry_run_are_separate_changes_and_a_child_job_follows_its_parent():
    async def work(api: Api) -> None:
        await api.publish(PARENT)
        parent = (await api.post("/api/v1/jobs", {"workflow_id": "parent"})).json()["job_id"]
        await api.until(parent, "RUNNING")
        (child,) = (await api.get("/api/v1/jobs", parent_job_id=parent)).json()["items"]
        plain = await submit(api, 3)
        first = await dry_run(api, CANCEL, status=["running", "waiting"], limit=2)
        second = await dry_run(
            api, CANCEL, status=["running", "waiting"], limit=2, cursor=first["next_cursor"]
        )
        third = await dry_run(api, CANCEL, status=["running", "waiting"], cursor=second["next_cursor"])
        # Between them is the child of the parent.
        assert [*ids(first), *ids(second), *ids(third)] == [*plain[::-1], parent]
        children = await dry_run(api, CANCEL, parent_job_id=parent)
        assert ids(children) == [child["job_id"]]
        none = await dry_run(api, CANCEL, name="nothing")
        assert (none["jobs"], none["token"]) == ([], None)

    with_api(work)


@pytest.mark.parametrize(
    ("path", "params", "body", "code"),
    [
        (CANCEL, {"dry_run": True}, None, "query_invalid"),
        (CANCEL, {"dry_run": True, "status": "failed"}, None, "query_invalid"),
        (RESUME, {"dry_run": True, "status": "running"}, None, "query_invalid"),
        (CANCEL, {"status": "running"}, None, "command_invalid"),
        (CANCEL, {"status": "running"}, {"token": "cancel.AAAAAAAAAAE"}, "command_invalid"),
        (RESUME, {}, {"token": "cancel.AAAAAAAAAAE"}, "command_invalid"),
        (CANCEL, {}, {"token": "cancel.!"}, "command_invalid"),
        (CANCEL, {}, {"token": "cancel."}, "command_invalid"),
        (CANCEL, {}, {"token": "cancel.AAAA"}, "command_invalid"),
        (CANCEL, {}, {"token": "drop.AAAAAAAAAAE"}, "command_invalid"),
        (CANCEL, {}, {"token": "cancel." + "A" * 20_000}, "request_invalid"),
        (CANCEL, {"limit": 1_001, "dry_run": True, "name": "x"}, None, "request_invalid"),
    ],
)
def test_what_names_no_jobs_changes_none(path, params, body, code):
    async def work(api: Api) -> None:
        (job_id,) = await submit(api)
        answer = await api.post(path, body, params=params)
        assert answer.json()["code"] == code, answer.text
        assert (await api.get(f"/api/v1/jobs/{job_id}")).json()["is_cancelling"] is False

    with_api(work)


def test_a_narrowed_key_selects_and_changes_its_own_jobs_only():
    async def work(api: Api) -> None:
        (theirs,) = await submit(api)
        token = (await dry_run(api, CANCEL, workflow_id="hello"))["token"]
        await api.use_key(Scope.SUBMIT, Scope.READ, name="own")
        (mine,) = await submit(api)
        limits = KeyLimits(is_own=True)
        origin = ChangeOrigin(actor="test")
        view = await create_key(api.keys, "own", {Scope.OPERATE}, origin=origin, now=0.0, limits=limits)
        api.headers = {"Authorization": f"Bearer {view.key}"}
        assert ids(await dry_run(api, CANCEL, workflow_id="hello")) == [mine]
        outcome = (await api.post(CANCEL, {"token": token})).json()["outcomes"]
        assert [(one["job_id"], one["error"]["code"]) for one in outcome] == [(theirs, "job_not_found")]
        named = await api.post(CANCEL, params={"dry_run": True, "submitted_by": "key:ada"})
        assert named.json()["code"] == "key_narrowed"
        await api.use_key(Scope.READ, Scope.SUBMIT)
        assert (await api.post(CANCEL, params={"dry_run": True, "name": "x"})).json()[
            "code"
        ] == "scope_missing"

    with_api(work)


def test_a_client_selects_and_changes():
    async def work(api: Api) -> None:
        jobs = await submit(api, 2)
        key = api.headers["Authorization"].removeprefix("Bearer ")
        async with AsyncClient("http://test", key, transport=httpx.ASGITransport(api.app)) as client:
            selection = await client.select_jobs(JobAction.CANCEL, JobFilter(workflow_id="hello"))
            assert {job.job_id for job in selection.jobs} == set(jobs)
            assert selection.token is not None
            result = await client.change_selected_jobs(selection.token, comment="enough")
        assert (result.accepted_count, result.rejected_count) == (2, 0)

    with_api(work)
