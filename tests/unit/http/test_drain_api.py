"""Drains over the API: a worker and an orchestrator that run stop claiming, and go on when they are undrained."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_registry import handler
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from tests.unit.http.api_client import Api

FLOW = "{workflow_id: held, version: 1, nodes: {a: {handler: hold, queue: q}}}"


class Held:
    """A handler that says when it has started, and ends when a test allows it."""

    def __init__(self) -> None:
        self.started, self.gate = asyncio.Event(), asyncio.Event()

        @handler("hold", queue="q")
        async def hold() -> None:
            self.started.set()
            await self.gate.wait()

        self.handler = hold


async def member(api: Api, kind: str) -> dict[str, Any]:
    (view,) = (await api.get("/api/v1/fleet")).json()[kind]
    assert isinstance(view, dict)
    return view


async def until_drained(api: Api, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (view := await member(api, kind))["is_drained"]:  # noqa: ASYNC110 - read as any client reads it
            await asyncio.sleep(0)
    return view


async def submit(api: Api) -> str:
    answer = await api.post("/api/v1/jobs", {"workflow_id": "held"})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


def test_a_worker_finishes_what_it_runs_claims_nothing_and_claims_again_when_it_is_undrained():
    async def main() -> None:
        held = Held()
        async with opened_api(held.handler) as api:
            await api.publish(FLOW)
            first = await submit(api)
            await held.started.wait()
            worker_id = (await member(api, "workers"))["worker_id"]
            await api.use_key(Scope.OPERATE, Scope.READ, Scope.SUBMIT, name="grace")
            answer = await api.post(f"/api/v1/fleet/{worker_id}/drain")
            assert answer.status_code == 200, answer.text
            result = answer.json()
            assert (result["kind"], result["is_draining"], result["held_count"]) == ("worker", True, 1)
            assert "No other worker claims" in result["sentence"]
            second = await submit(api)
            view = await member(api, "workers")
            assert (view["is_alive"], view["is_draining"], view["is_drained"], view["running"]) == (
                True,
                True,
                False,
                1,
            )
            held.gate.set()
            await api.until(first, "COMPLETED")
            assert (await until_drained(api, "workers"))["drain"]["is_seen"]
            why = (await api.get(f"/api/v1/jobs/{second}/why")).json()
            assert why["reason"]["code"] == "no_worker"
            assert "the only live worker is draining" in why["reason"]["sentence"]
            assert (await api.post(f"/api/v1/fleet/{worker_id}/undrain")).json()["is_draining"] is False
            await api.until(second, "COMPLETED")
            again = (await api.post(f"/api/v1/fleet/{worker_id}/undrain")).json()
            assert again["sentence"].endswith("does not drain; nothing was changed")
            await api.use_key(Scope.ADMIN)
            entries = (await api.get("/api/v1/audit", object_kind="worker")).json()["items"]
            assert [(one["action"], one["actor"], one["object_id"]) for one in entries] == [
                ("worker.undrain", "key:grace", worker_id),
                ("worker.drain", "key:grace", worker_id),
            ]

    asyncio.run(main())


def test_after_the_grace_period_a_worker_releases_what_runs():
    async def main() -> None:
        held = Held()
        async with opened_api(held.handler) as api:
            await api.publish(FLOW)
            job_id = await submit(api)
            await held.started.wait()
            worker_id = (await member(api, "workers"))["worker_id"]
            answer = await api.post(f"/api/v1/fleet/{worker_id}/drain", {"grace_seconds": 0})
            assert answer.status_code == 200, answer.text
            await until_drained(api, "workers")
            held.gate.set()
            await api.post(f"/api/v1/fleet/{worker_id}/undrain")
            await api.until(job_id, "COMPLETED")
            attempts = (await api.get(f"/api/v1/jobs/{job_id}/nodes/a")).json()["attempts"]
            assert [one["status"] for one in attempts] == ["RELEASED", "COMPLETED"]

    asyncio.run(main())


def test_an_orchestrator_releases_its_jobs_and_readiness_fails_while_it_is_the_only_one():
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            answer = await api.post("/api/v1/jobs", {"workflow_id": "hello"})
            job_id = answer.json()["job_id"]
            owner = (await member(api, "orchestrators"))["orchestrator_id"]
            result = (await api.post(f"/api/v1/fleet/{owner}/drain")).json()
            assert (result["kind"], result["is_draining"]) == ("orchestrator", True)
            assert "jobs wait until one starts" in result["sentence"]
            view = await until_drained(api, "orchestrators")
            assert view["jobs"] == 0
            ready = await api.http.get("/readyz")
            assert (ready.status_code, ready.json()["failing"]) == (503, ["orchestrators"])
            parts = (await api.get("/health")).json()["parts"]
            assert parts["orchestrators"]["detail"] == "1 alive, 1 of them draining"
            sentence = (await api.get(f"/api/v1/jobs/{job_id}/why")).json()["reason"]["sentence"]
            assert sentence == "the job waits for an orchestrator; the only live orchestrator is draining"
            await api.post(f"/api/v1/fleet/{owner}/undrain")
            await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
            await api.until(job_id, "COMPLETED")

    asyncio.run(main())


def test_what_cannot_be_drained_is_rejected_with_the_reason():
    async def main() -> None:
        async with opened_api() as api:
            worker = await member(api, "workers")
            unknown = await api.post("/api/v1/fleet/7/drain")
            assert (unknown.status_code, unknown.json()["code"]) == (404, "service_not_found")
            # The orchestrator and the worker are in one process here.
            ambiguous = await api.post(f"/api/v1/fleet/{worker['host']}:{worker['pid']}/drain")
            assert (ambiguous.status_code, ambiguous.json()["code"]) == (409, "drain_rejected")
            assert worker["worker_id"] in ambiguous.text
            for seconds in (-1, 1e9, "soon"):
                answer = await api.post(
                    f"/api/v1/fleet/{worker['worker_id']}/drain", {"grace_seconds": seconds}
                )
                assert answer.status_code == 422
            owner = (await member(api, "orchestrators"))["orchestrator_id"]
            answer = await api.post(f"/api/v1/fleet/{owner}/drain", {"grace_seconds": 60})
            assert (answer.status_code, answer.json()["code"]) == (400, "command_invalid")
            body = {"host": "far", "handlers": [{"name": "h"}], "queues": ["q"]}
            await api.use_key(Scope.WORK)
            answer = await api.post("/api/v1/workers", body)
            assert answer.status_code == 201, answer.text
            remote = answer.json()["worker_id"]
            await api.post(f"/api/v1/workers/{remote}/deregister")
            await api.use_key(Scope.ADMIN)
            stopped = await api.post(f"/api/v1/fleet/{remote}/drain")
            assert (stopped.status_code, stopped.json()["code"]) == (409, "drain_rejected")
            assert "stopped" in stopped.json()["detail"]
            await api.use_key(Scope.READ)
            assert (await api.post(f"/api/v1/fleet/{worker['worker_id']}/drain")).status_code == 403
            assert not (await member(api, "orchestrators"))["is_draining"]

    asyncio.run(main())
