"""Workers that speak only HTTP: claim with a long poll, report once, lose what they do not hold."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from dagmaster.application.queries.nodes import node_detail
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.task_messages import TaskMessage, message_schema
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.api_client import SECRETS, opened_api

if TYPE_CHECKING:
    import httpx

    from tests.unit.http.api_client import Api

FLOW = """
workflow_id: far
version: 1
inputs: {name: {type: string, default: world}, token: {type: string, secret: true, default: canary-of-the-input}}
nodes:
  work:
    handler: shout
    queue: far
    params: {name: "{{ inputs.name }}", token: "{{ inputs.token }}", key: "{{ secrets.TOKEN }}"}
    retry: {max_attempts: 2, initial_delay_seconds: 0}
"""
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class FarWorker:
    """A worker that speaks HTTP, with a key of its own."""

    def __init__(self, api: Api, key: str, worker_id: str) -> None:
        self.api, self.worker_id = api, worker_id
        self.headers = {"Authorization": f"Bearer {key}"}

    @classmethod
    async def register(cls, api: Api, **body: Any) -> FarWorker:
        headers, api.headers = api.headers, {}
        key = await api.use_key(Scope.WORK, name="far")
        answer = await api.post(
            "/api/v1/workers", {"handlers": [{"name": "shout"}], "queues": ["far"], **body}
        )
        api.headers = headers
        assert answer.status_code == 201, answer.text
        assert answer.json()["heartbeat_seconds"] < answer.json()["lease_seconds"]
        return cls(api, key, answer.json()["worker_id"])

    async def call(self, path: str, **body: Any) -> httpx.Response:
        body = {"worker_id": self.worker_id, **body}
        return await self.api.http.post(f"/api/v1/{path}", json=body, headers=self.headers)

    async def claim(self, **body: Any) -> list[dict[str, Any]]:
        answer = await self.call("tasks/claim", **body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        tasks: list[dict[str, Any]] = answer.json()["tasks"]
        return tasks

    async def result(self, task: dict[str, Any], **body: Any) -> httpx.Response:
        ids = {"task_id": task["task_id"], "lease_token": task["lease_token"]}
        return await self.call("callbacks/task-result", **{**ids, "status": "completed", **body})


async def submitted(api: Api, **inputs: Any) -> str:
    await api.publish(FLOW)
    answer = await api.post(
        "/api/v1/jobs", {"workflow_id": "far", "inputs": inputs}, headers={"traceparent": TRACE}
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


async def output_of(api: Api, job_id: str) -> Any:
    return (await node_detail(api.application, job_id, "work")).to_dict()["output"]


def test_a_worker_waits_for_a_task_is_woken_and_its_result_completes_the_job():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            waiting = asyncio.create_task(worker.claim(wait_seconds=30))
            await asyncio.sleep(0)
            job_id = await submitted(api, name="Ada")
            async with asyncio.timeout(PATIENCE_SECONDS):
                (task,) = await waiting
            jsonschema.validate(task, message_schema())
            message = TaskMessage.from_json(task)
            assert (message.job_id, message.node_id, message.handler) == (job_id, "work", "shout")
            assert message.params == {"name": "Ada", "token": "canary-of-the-input", "key": SECRETS["TOKEN"]}
            assert (message.trace_parent, message.workflow, message.attempt) == (TRACE, "far v1", 1)
            assert message.dispatched_at is not None
            assert set(task) == set(message_schema()["properties"]), "every key is filled in"
            answer = await worker.result(task, output={"text": "ADA"}, duration_seconds=0.5)
            assert (answer.status_code, answer.json()["status"]) == (200, "COMPLETED")
            await api.until(job_id, "COMPLETED")
            assert await output_of(api, job_id) == {"text": "ADA"}

    asyncio.run(main())


def test_a_worker_that_drains_is_told_so_and_stops_when_its_grace_period_is_over():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker, other = await FarWorker.register(api), await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            held = [task["task_id"]]
            await api.post(f"/api/v1/fleet/{worker.worker_id}/drain")
            answer = (await worker.call("callbacks/task-heartbeat", task_ids=held)).json()
            assert (answer["drain"], answer["stop"]) == (True, [])
            await api.post(f"/api/v1/fleet/{worker.worker_id}/drain", {"grace_seconds": 0})
            answer = (await worker.call("tasks/claim", task_ids=held)).json()
            assert (answer["drain"], answer["stop"], answer["tasks"]) == (True, held, [])
            assert (await worker.result(task)).json()["code"] == "lease_lost"
            (again,) = await other.claim(wait_seconds=30)
            assert (again["job_id"], again["attempt"]) == (job_id, 2)

    asyncio.run(main())


def test_a_result_delivered_again_gets_the_same_answer_and_changes_nothing():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            first = await worker.result(task, output={"n": 1})
            again = await worker.result(task, output={"n": 2})
            await api.until(job_id, "COMPLETED")
            late = await worker.result(task, status="failed", error={"message": "no"})
            assert [answer.status_code for answer in (first, again, late)] == [200, 200, 200]
            assert first.json() == again.json() == late.json()
            assert await output_of(api, job_id) == {"n": 1}

    asyncio.run(main())


def test_a_stale_lease_token_is_refused_with_409_and_says_so():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            stale = {**task, "lease_token": str(int(task["lease_token"]) - 1)}
            for answer in (
                await worker.result(stale, output={}),
                await worker.call(
                    "callbacks/task-progress",
                    task_id=task["task_id"],
                    lease_token=stale["lease_token"],
                    current=1,
                ),
            ):
                assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
                assert "lease token" in answer.json()["detail"]
            too_large = {**task, "lease_token": str(2**63)}
            assert (await worker.result(too_large, output={})).status_code == 422
            assert (await worker.result(task)).status_code == 200

    asyncio.run(main())


def test_a_handler_with_a_long_name_is_not_registered_unless_it_is_a_function_of_a_module():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            await api.use_key(Scope.WORK)
            for name, status in (("h" * 64, 201), ("h" * 65, 422), ("module." + "f" * 100, 201)):
                answer = await api.post("/api/v1/workers", {"handlers": [{"name": name}]})
                assert answer.status_code == status, answer.text
                assert status == 201 or "at most 64 characters, this one 65" in answer.text

    asyncio.run(main())


def test_a_worker_that_is_unknown_or_of_another_key_has_to_register_again():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            await api.use_key(Scope.WORK, name="other")
            body = {"worker_id": worker.worker_id}
            for path in ("tasks/claim", "callbacks/task-heartbeat"):
                answer = await api.post(f"/api/v1/{path}", body)
                assert (answer.status_code, answer.json()["code"]) == (409, "worker_expired")
            gone = await api.http.post(
                f"/api/v1/workers/{worker.worker_id}/deregister", headers=worker.headers
            )
            assert gone.status_code == 200
            answer = await worker.call("tasks/claim")
            assert (answer.status_code, answer.json()["code"]) == (409, "worker_expired")

    asyncio.run(main())


def test_a_failure_is_retried_and_a_permanent_one_is_not():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            await worker.result(task, status="failed", error={"kind": "flaky", "message": "x" * 9_000})
            (task,) = await worker.claim(wait_seconds=30)
            assert (task["attempt"], task["retry_count"]) == (2, 1)
            error = {"kind": "bad", "message": "no such file", "details": {"path": "a.tif"}}
            await worker.result(task, status="failed", permanent=True, error=error)
            await api.until(job_id, "FAILED")
            node = (await node_detail(api.application, job_id, "work")).to_dict()
            assert (node["error"]["kind"], node["error"]["message"]) == ("bad", "no such file")
            assert node["error"]["path"] == "a.tif"
            assert [len(one["error"]["message"]) for one in node["attempts"]] == [2_000, len("no such file")]

    asyncio.run(main())


def test_secrets_are_redacted_in_everything_that_a_worker_reports():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            leak = f"{SECRETS['TOKEN']} canary-of-the-input"
            ids = {"task_id": task["task_id"], "lease_token": task["lease_token"]}
            checkpoint = {"phase": "half", "data": {"leak": leak}}
            answer = await worker.call(
                "callbacks/task-progress", **ids, current=1, total=2, message=leak, checkpoint=checkpoint,
                log={"chunk": 1, "text": leak},
            )  # fmt: skip
            assert (answer.status_code, answer.json()) == (200, {"task_id": task["task_id"], "stop": False})
            await worker.result(task, output={"leak": leak}, metrics={"leak": leak})
            await api.until(job_id, "COMPLETED")
            texts = [
                (await api.get(f"/api/v1/jobs/{job_id}{path}")).text
                for path in ("", "/events", "/logs", "/nodes/work", "/nodes")
            ]
            assert "***" in "".join(texts)
            assert "CheckpointSaved" in "".join(texts)
            assert "canary" not in "".join(texts)

    asyncio.run(main())


@pytest.mark.parametrize("keeps_previous", [True, False])
def test_a_secret_that_was_replaced_since_the_claim_is_in_no_report(monkeypatch, keeps_previous):
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            leak = f"{SECRETS['TOKEN']} was the old value"
            if keeps_previous:
                monkeypatch.setitem(SECRETS, "TOKEN_PREVIOUS", SECRETS["TOKEN"])
            monkeypatch.setitem(SECRETS, "TOKEN", "another-value")
            ids = {"task_id": task["task_id"], "lease_token": task["lease_token"]}
            answer = await worker.call(
                "callbacks/task-progress", **ids, current=1, message=leak, checkpoint={"phase": leak, "data": {}},
                log={"chunk": 1, "text": leak},
            )  # fmt: skip
            assert answer.json() == {"task_id": task["task_id"], "stop": False}
            result = await worker.result(task, output={"leak": leak})
            assert result.json()["status"] == ("COMPLETED" if keeps_previous else "FAILED")
            if keeps_previous:
                await api.until(job_id, "COMPLETED")
            else:
                # It is retried, with the new value.
                (task,) = await worker.claim(wait_seconds=30)
                assert (task["attempt"], task["params"]["key"]) == (2, "another-value")
                assert (await worker.result(task, output={"leak": "another-value"})).json()[
                    "status"
                ] == "COMPLETED"
                await api.until(job_id, "COMPLETED")
                attempts = (await node_detail(api.application, job_id, "work")).to_dict()["attempts"]
                assert attempts[0]["error"]["kind"] == "secret_replaced"
                assert "DAGMASTER_SECRET_TOKEN_PREVIOUS" in attempts[0]["error"]["message"]
            texts = [
                (await api.get(f"/api/v1/jobs/{job_id}{path}")).text
                for path in ("", "/events", "/logs", "/nodes/work", "/nodes")
            ]
            assert "***" in "".join(texts)
            assert "canary" not in "".join(texts)
            assert "another-value" not in "".join(texts)

    asyncio.run(main())


def test_a_cancel_reaches_a_worker_with_its_next_call():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            await api.post(f"/api/v1/jobs/{job_id}/cancel")
            ids = {"task_id": task["task_id"], "lease_token": task["lease_token"]}
            beat = await worker.call("callbacks/task-heartbeat", task_ids=[task["task_id"]])
            assert beat.json()["stop"] == [task["task_id"]]
            assert (await worker.call("tasks/claim", task_ids=[task["task_id"]])).json()["stop"] == [
                task["task_id"]
            ]
            assert (await worker.call("callbacks/task-progress", **ids, current=1)).json()["stop"] is True

    asyncio.run(main())


def test_a_task_whose_worker_does_not_stop_it_in_time_fails_and_its_late_result_is_refused():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            database = api.services.application.read._database  # type: ignore[attr-defined]
            database.queue[task["task_id"]].started_at -= task["timeout_seconds"] + 7
            beat = await worker.call("callbacks/task-heartbeat", task_ids=[task["task_id"]])
            assert beat.json()["stop"] == [task["task_id"]]
            late = await worker.result(task)
            assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
            (task,) = await worker.claim(wait_seconds=30)
            assert task["attempt"] == 2
            node = (await node_detail(api.application, job_id, "work")).to_dict()
            assert node["attempts"][0]["error"]["kind"] == "timeout"

    asyncio.run(main())


def test_a_worker_is_shown_in_the_fleet_and_explains_where_its_node_runs():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api, host="edge-7", pid=42, version="shout 1.2")
            job_id = await submitted(api)
            await worker.claim(wait_seconds=30)
            fleet = (await api.get("/api/v1/fleet")).json()
            (row,) = [row for row in fleet["workers"] if row["worker_id"] == worker.worker_id]
            assert (row["host"], row["pid"], row["version"], row["is_alive"]) == (
                "edge-7",
                42,
                "shout 1.2",
                True,
            )
            why = (await api.get(f"/api/v1/jobs/{job_id}/nodes/work/why")).json()
            assert "edge-7:42" in json.dumps(why)

    asyncio.run(main())


def test_a_task_that_lacks_a_secret_fails_and_is_not_sent(monkeypatch):
    monkeypatch.delitem(SECRETS, "TOKEN")

    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            assert await worker.claim(wait_seconds=5) == []
            await api.until(job_id, "FAILED")
            node = (await node_detail(api.application, job_id, "work")).to_dict()
            assert node["error"]["kind"] == "secret_missing"
            assert "where the server runs" in node["error"]["message"]

    asyncio.run(main())


def test_a_large_output_is_stored_as_a_blob_and_read_back():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            (task,) = await worker.claim(wait_seconds=30)
            output = {"text": "x" * 100_000}
            assert (await worker.result(task, output=output)).status_code == 200
            await api.until(job_id, "COMPLETED")
            node = (await node_detail(api.application, job_id, "work")).to_dict()
            assert node["output"] == output

    asyncio.run(main())


def test_a_released_task_uses_up_no_retry():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            job_id = await submitted(api)
            for attempt in (1, 2, 3):
                (task,) = await worker.claim(wait_seconds=30)
                assert task["attempt"] == attempt
                await worker.result(task, status="released")
            (task,) = await worker.claim(wait_seconds=30)
            await worker.result(task, output={})
            await api.until(job_id, "COMPLETED")

    asyncio.run(main())


def test_a_server_that_stops_answers_the_workers_that_wait():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            worker = await FarWorker.register(api)
            waiting = asyncio.create_task(worker.claim(wait_seconds=30))
            remote_tasks = api.services.remote_tasks
            while not remote_tasks._polls:  # noqa: ASYNC110 - the request says nothing before its answer
                await asyncio.sleep(0)
            remote_tasks.stop()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await waiting == []

    asyncio.run(main())
