"""Programs of other systems: their bodies on their paths, and the names that the API takes from them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.http.aliases import ALIASES
from dagmaster.http.older_bodies import OLDER_BODIES
from dagmaster.ports.api_keys import Scope
from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import FLOW, opened_api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.http.api_client import Api

QUEUE_MESSAGE = {
    "workflow_id": "hello",
    "input_params": {"name": "Ada"},
    "correlation_id": "dataset-7",
    "submitted_by": "ddh-portal",
    "idempotency_key": "dataset-7-v1",
    "priority": 0,
    "submitted_at": "2026-01-27T12:00:00Z",
    "message_id": "9b2f1c1e-3f40-4c6b-9a3a-0f3a9d1f6c11",
}
"""What a submit of the older systems has, with every field."""


def with_api(work: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            await work(api)

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/api/dag/submit", "/api/platform/submit"])
def test_an_older_submit_takes_the_body_of_its_system(path):
    async def work(api: Api) -> None:
        answer = await api.post(path, QUEUE_MESSAGE)
        assert answer.status_code == 202, answer.text
        job = (await api.get(f"/api/v1/jobs/{answer.json()['job_id']}")).json()
        assert {
            name: job[name]
            for name in ("priority", "correlation_id", "submitted_by", "submitter_label", "inputs")
        } == {
            "priority": 0,
            "correlation_id": "dataset-7",
            "submitted_by": "key:ada",
            "submitter_label": "ddh-portal",
            "inputs": {"name": "Ada"},
        }
        again = await api.post(path, QUEUE_MESSAGE)
        assert (again.json()["outcome"], again.json()["job_id"]) == ("existing", job["job_id"])
        # The key of an idempotency key is the caller, and not what a body calls itself.
        other = await api.post(path, {**QUEUE_MESSAGE, "submitted_by": "another portal"})
        assert other.json()["code"] == "idempotency_conflict"
        await api.use_key(Scope.SUBMIT, name="other")
        assert (await api.post(path, QUEUE_MESSAGE)).json()["is_new"] is True

    with_api(work)


def test_fields_that_are_null_count_as_missing_on_older_paths():
    async def work(api: Api) -> None:
        body = {"workflow_id": "hello", "input_params": None, "submitted_by": None, "inputs": {"name": "Bo"}}
        answer = await api.post("/api/dag/submit", body)
        job = (await api.get(f"/api/v1/jobs/{answer.json()['job_id']}")).json()
        assert (job["inputs"], job["submitter_label"], job["priority"]) == ({"name": "Bo"}, None, 5)

    with_api(work)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": {}, "input_params": {}}, "inputs and input_params are the same field"),
        (
            {"submitter_label": "a", "submitted_by": "b"},
            "submitter_label and submitted_by are the same field",
        ),
        ({"submitted_by": "b" * 65}, "at most 64"),
        ({"message_id": "7"}, "Extra inputs"),
    ],
)
def test_two_names_of_one_field_are_an_error_and_other_fields_stay_unknown(body, words):
    async def work(api: Api) -> None:
        for path, wrap in (("/api/v1/jobs", dict), ("/api/v1/jobs/batch", lambda one: {"jobs": [one]})):
            answer = await api.post(path, wrap({"workflow_id": "hello", **body}))
            assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid"), path
            assert words in answer.text, path

    with_api(work)


def test_a_report_of_an_older_worker_is_translated_and_still_needs_its_lease():
    async def work(api: Api) -> None:
        await api.use_key(Scope.WORK)
        worker = (await api.post("/api/v1/workers", {"handlers": []})).json()["worker_id"]
        report = {
            "task_id": "7",
            "instance_id": "9",
            "node_id": "create_cog",
            "status": "failed",
            "output": None,
            "error": "disk full",
            "worker_id": worker,
            "duration_seconds": 245,
        }
        without = await api.post("/api/task/complete", report)
        assert (without.status_code, "lease_token" in without.text) == (422, True)
        for path in ("/api/task/complete", "/api/callbacks/task-result"):
            answer = await api.post(path, {**report, "lease_token": "1"})
            assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost"), answer.text
        both = await api.post("/api/task/complete", {**report, "job_id": "9", "lease_token": "1"})
        assert (both.status_code, both.json()["errors"][0]["path"]) == (400, "body.job_id")
        # The route under its own path takes its own body only.
        assert (await api.post("/api/v1/callbacks/task-result", report)).status_code == 422

    with_api(work)


def test_an_older_test_of_a_handler_is_translated():
    async def work(api: Api) -> None:
        body = {"handler_name": "greet", "input_params": {"name": "Ada"}}
        answer = await api.post("/api/test/handler", body)
        assert (answer.status_code, answer.json()["output"]) == (200, {"text": "hello Ada"})

    with_api(work)


def test_an_older_route_says_that_it_is_deprecated_and_what_follows_it():
    async def work(api: Api) -> None:
        job_id = (await api.post("/api/dag/submit", QUEUE_MESSAGE)).json()["job_id"]
        for old, new in ALIASES.items():
            answer = await api.get(old.format(id=job_id))
            assert answer.headers["deprecation"].startswith("@"), old
            assert answer.links["successor-version"]["url"] == new.format(id=job_id), old
        current = await api.get(f"/api/v1/jobs/{job_id}")
        assert not {"deprecation", "link"} & set(current.headers)

    with_api(work)


def test_every_translation_is_of_an_older_path():
    assert set(OLDER_BODIES) <= set(ALIASES)


def test_a_correlation_id_comes_from_the_body_or_the_header_and_is_repeated():
    async def submit(api: Api, path: str, body: dict[str, Any], header: str) -> list[str]:
        answer = await api.post(path, body, headers={"X-Correlation-ID": header})
        assert (answer.status_code, answer.headers["x-correlation-id"]) == (202, header)
        results = answer.json() if isinstance(answer.json(), list) else [answer.json()]
        jobs = [(await api.get(f"/api/v1/jobs/{result['job_id']}")).json() for result in results]
        return [job["correlation_id"] for job in jobs]

    async def work(api: Api) -> None:
        plain, named = {"workflow_id": "hello"}, {"workflow_id": "hello", "correlation_id": "mine"}
        assert await submit(api, "/api/v1/jobs", plain, "trace 1") == ["trace 1"]
        assert await submit(api, "/api/dag/submit", plain, "trace-2") == ["trace-2"]
        assert await submit(api, "/api/v1/jobs", named, "trace-3") == ["mine"]
        assert await submit(api, "/api/v1/jobs/batch", {"jobs": [plain, named]}, "t") == ["t", "mine"]
        task = {"id": "1", "definition": {"handler": "greet", "queue": "q", "params": {"name": "Ada"}}}
        graph = {"name": "g", "graph": {"tasks": [task]}}
        assert await submit(api, "/api/v1/jobs/graph", graph, "trace-4") == ["trace-4"]
        too_long = await api.post("/api/v1/jobs", plain, headers={"X-Correlation-ID": "x" * 65})
        assert (too_long.status_code, "x-correlation-id" in too_long.headers) == (422, False)

    with_api(work)


def test_the_label_of_a_submitter_is_shown_and_reaches_no_approval():
    flow = FLOW.replace("type: approval,", "type: approval, approvers: [anna],").replace("hello", "asked")

    async def work(api: Api) -> None:
        await api.publish(flow)
        body = {"workflow_id": "asked", "submitted_by": "anna"}
        job_id = (await api.post("/api/v1/jobs", body)).json()["job_id"]
        await api.until(job_id, "WAITING")
        answer = await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
        assert answer.json()["code"] == "approver_not_allowed"
        assert (await api.get("/api/v1/jobs", submitted_by="anna")).json()["items"] == []
        (listed,) = (await api.get("/api/v1/jobs", submitted_by="key:ada")).json()["items"]
        assert listed["submitter_label"] == "anna"
        await api.post(f"/api/v1/jobs/{job_id}/cancel")
        await finished(api.application, job_id)

    with_api(work)
