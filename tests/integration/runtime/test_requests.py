"""Requests of partners, on a real database: one transaction with their jobs, one answer for each key."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.commands.resume import ResumeRequest, resume_job
from dagmaster.application.request_status import request_status
from dagmaster.application.requests import RequestQueue, submit_request, submit_requests
from dagmaster.application.views.results import RequestOutcome
from dagmaster.errors import (
    DatabaseUnavailable,
    IdempotencyConflict,
    PermanentError,
    RequestInvalid,
    RequestNotFound,
    RequestQuotaExceeded,
    RequestRejected,
)
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.records.requests import RequestBody
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.client_store import PostgresClientStore
from dagmaster.store.postgres.read_store import PostgresReadStore
from dagmaster.store.postgres.reusable_results import PostgresReusableResults
from tests.integration.runtime.runtime_world import A_LEASE
from tests.unit.application.world import application_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.application.context import Application
    from tests.integration.runtime.runtime_world import World

CANARY = "hunter2-canary"
ECHO = """
workflow_id: echo
version: 1
inputs: {word: {type: string}, token: {type: string, secret: true, default: ""}}
nodes: {say: {handler: say, queue: q, params: {word: "{{ inputs.word }}"}}}
outputs: {said: "{{ nodes.say.output.said }}"}
"""
DDH = {"dataset_id": "floods", "resource_id": "tile-17", "version_id": "v1.0"}


@handler("say", queue="q")
async def say(word: str) -> dict[str, Any]:
    """Say a word; fail with one that nobody outside may see."""
    if word == "fail":
        raise PermanentError(f"{CANARY} at /srv/{CANARY}: SELECT {CANARY} FROM hosts")
    return {"said": word}


@contextlib.asynccontextmanager
async def serving(world: World, actor: str = "key:portal") -> AsyncIterator[Application]:
    """Provide the application as a server has it, with a published workflow."""
    world.handlers.append(say)
    await world.publish(ECHO)
    client, read = PostgresClientStore(world.address), PostgresReadStore(world.address)
    try:
        results = PostgresReusableResults(
            client.session, world.blobs, lease_seconds=A_LEASE, worker_lease_seconds=A_LEASE
        )
        app = application_on(read, client=client, blobs=world.blobs, env={}, results=results)
        yield app.on_behalf_of(ChangeOrigin(actor=actor))
    finally:
        await client.close()
        await read.close()


def asked(word: str = "hello", **more: Any) -> RequestBody:
    return RequestBody(workflow_id="echo", input_params={"word": word}, **more)


async def count(world: World, table: str) -> int:
    return int(await world.value(f"SELECT count(*) FROM {table}"))


async def test_a_request_leads_to_a_job_and_to_its_result(world: World):
    async with serving(world) as app:
        result = await submit_request(
            app, asked(submitted_by="ada", priority=0, callback_url="https://a.example/x")
        )
        assert (result.outcome, result.is_new) == (RequestOutcome.ACCEPTED, True)
        before = await request_status(app, result.request_id or "")
        assert (before.status, before.completed_at, before.result, before.error) == (
            "pending",
            None,
            None,
            None,
        )
        (row,) = await world.rows("SELECT * FROM dag_api_requests")
        (job,) = await world.rows("SELECT * FROM dag_jobs")
        assert (row["job_id"], row["priority"], job["priority"]) == (job["id"], 0, 0)
        assert (row["actor"], row["submitted_by"], job["submitted_by"]) == ("key:portal", "ada", "key:portal")
        assert job["correlation_id"] == result.request_id
        await world.start()
        await world.finished(result.job_id or "")
        after = await request_status(app, result.request_id or "")
        assert (after.status, after.result, after.error) == ("completed", {"said": "hello"}, None)
        assert after.completed_at is not None
        assert after.progress is not None
        assert (after.progress.percent, after.progress.completed, after.progress.total) == (100.0, 1, 1)


async def test_an_absent_priority_is_5(world: World):
    async with serving(world) as app:
        await submit_request(app, asked())
        (job,) = await world.rows("SELECT priority FROM dag_jobs")
        assert job["priority"] == 5


async def test_a_request_without_a_job_is_stored_and_says_why(world: World):
    async with serving(world) as app:
        for body, reason in (
            (RequestBody(workflow_id="nothing"), "workflow_not_found"),
            (RequestBody(workflow_id="echo", input_params={"word": 7}), "inputs_invalid"),
            (asked(platform_id="nowhere"), "platform_refs_invalid"),
        ):
            with pytest.raises(RequestRejected) as caught:
                await submit_request(app, body)
            assert caught.value.reason == reason
            status = await request_status(app, caught.value.request_id)
            assert (status.status, status.error_code) == ("failed", reason)
            assert status.completed_at == status.submitted_at
        assert (await count(world, "dag_jobs"), await count(world, "dag_api_requests")) == (0, 3)


async def test_the_same_key_and_body_give_the_same_answer(world: World):
    async with serving(world) as app:
        body = asked(idempotency_key="k", fields=DDH)
        first, again = await submit_request(app, body), await submit_request(app, body)
        assert (again.request_id, again.job_id) == (first.request_id, first.job_id)
        assert again.submitted_at == pytest.approx(first.submitted_at)
        assert (again.outcome, again.is_new) == (RequestOutcome.EXISTING, False)
        # Also if a new version of the workflow would reject it.
        await world.publish(
            ECHO.replace("version: 1", "version: 2").replace("type: string}, t", "type: integer}, t")
        )
        assert (await submit_request(app, body)).job_id == first.job_id
        for other in (asked("other", idempotency_key="k", fields=DDH), asked(idempotency_key="k")):
            with pytest.raises(IdempotencyConflict):
                await submit_request(app, other)
        assert await count(world, "dag_jobs") == 1


async def test_a_rejection_is_answered_again_and_another_body_is_a_conflict(world: World):
    async with serving(world) as app:
        wrong = RequestBody(workflow_id="echo", input_params={"word": 7}, idempotency_key="k")
        rejections = []
        for _ in range(2):
            with pytest.raises(RequestRejected) as caught:
                await submit_request(app, wrong)
            rejections.append(caught.value.to_dict())
        assert rejections[0] == rejections[1]
        with pytest.raises(IdempotencyConflict):
            await submit_request(app, asked(idempotency_key="k"))
        # Also once the workflow accepts it.
        await world.publish(
            ECHO.replace("version: 1", "version: 2").replace("type: string}, t", "type: integer}, t")
        )
        with pytest.raises(RequestRejected):
            await submit_request(app, wrong)
        assert await count(world, "dag_jobs") == 0


async def test_the_same_request_id_is_the_same_request(world: World):
    async with serving(world) as app, serving(world, "key:other") as other:
        request_id = str(uuid.uuid4())
        first = await submit_request(app, asked(request_id=request_id))
        again = await submit_request(app, asked(request_id=request_id.upper()))
        assert (first.request_id, again.job_id) == (request_id, first.job_id)
        with pytest.raises(IdempotencyConflict):
            await submit_request(app, asked("other", request_id=request_id))
        with pytest.raises(IdempotencyConflict):
            await submit_request(other, asked(request_id=request_id))


async def test_each_caller_has_its_own_keys(world: World):
    async with serving(world) as app, serving(world, "key:other") as other:
        one, two = [await submit_request(each, asked(idempotency_key="k")) for each in (app, other)]
        assert one.job_id != two.job_id


async def test_64_clients_with_one_key_make_one_job(world: World):
    async with contextlib.AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(serving(world)) for _ in range(8)]
        queues = [RequestQueue() for _ in apps]
        answers = await asyncio.gather(
            *(queues[n % 8].submit(apps[n % 8], asked(idempotency_key="k")) for n in range(64))
        )
        assert len({answer.job_id for answer in answers}) == 1
        assert [answer.is_new for answer in answers].count(True) == 1
        assert (await count(world, "dag_jobs"), await count(world, "dag_api_requests")) == (1, 1)


async def test_what_fails_on_our_side_stores_nothing_and_the_retry_finishes_it(world: World):
    """A request and its job are one statement: whatever part of it fails, neither is there."""
    async with serving(world) as app:
        body = asked(idempotency_key="k")
        for table in ("dag_api_requests", "dag_jobs", "dag_job_events", "dag_audit"):
            await world.rows(
                "CREATE FUNCTION dagapp.die() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END'"
            )
            await world.rows(
                f"CREATE TRIGGER die AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION dagapp.die()"
            )
            with pytest.raises(DatabaseUnavailable):
                await submit_request(app, body)
            await world.rows("DROP FUNCTION dagapp.die CASCADE")
            assert (await count(world, "dag_jobs"), await count(world, "dag_api_requests")) == (0, 0)
        assert (await submit_request(app, body)).outcome is RequestOutcome.ACCEPTED
        assert (await count(world, "dag_jobs"), await count(world, "dag_api_requests")) == (1, 1)


async def test_every_request_of_a_batch_has_its_outcome(world: World):
    async with serving(world) as app:
        await submit_request(app, asked(idempotency_key="k"))
        bodies = [
            asked("a"),
            RequestBody(workflow_id="nothing"),
            asked(priority=11),
            asked(idempotency_key="k"),
            asked("else", idempotency_key="k"),
            asked("b", idempotency_key="twice"),
            asked("b", idempotency_key="twice"),
        ]
        answers = await submit_requests(app, bodies)
        assert [answer.outcome.value for answer in answers] == [
            *("accepted", "rejected", "error", "existing", "error", "accepted", "existing")
        ]
        assert answers[1].request_id
        assert [(answer.error or {}).get("code") for answer in answers[1:5]] == [
            *("workflow_not_found", "request_invalid", None, "idempotency_conflict")
        ]
        assert (await count(world, "dag_jobs"), await count(world, "dag_api_requests")) == (3, 4)


async def test_a_tenant_makes_as_many_requests_a_day_as_its_quota_says(world: World):
    async with serving(world) as app:
        await world.rows("UPDATE dag_tenants SET requests_per_day = 3 WHERE name = 'default'")
        first = await submit_request(app, asked(idempotency_key="k"))
        answers = await submit_requests(app, [asked(str(n)) for n in range(4)])
        assert [answer.outcome.value for answer in answers] == ["accepted", "accepted", "error", "error"]
        with pytest.raises(RequestQuotaExceeded) as caught:
            await submit_request(app, asked())
        assert 0 < caught.value.retry_after_seconds <= 86_400
        # What was accepted before costs nothing.
        assert (await submit_request(app, asked(idempotency_key="k"))).job_id == first.job_id
        assert (await count(world, "dag_jobs"), await count(world, "dag_api_requests")) == (3, 3)
        await world.rows("UPDATE dag_tenant_usage SET day = day - 1")
        assert (await submit_request(app, asked())).is_new


async def test_requests_at_once_do_not_exceed_a_quota(world: World):
    async with contextlib.AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(serving(world)) for _ in range(4)]
        await world.rows("UPDATE dag_tenants SET requests_per_day = 10 WHERE name = 'default'")
        answers = await asyncio.gather(
            *(submit_request(apps[n % 4], asked(str(n))) for n in range(40)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, RequestQuotaExceeded)]
        assert (len(refused), await count(world, "dag_api_requests")) == (30, 10)


async def test_a_platform_has_its_own_fields(world: World):
    async with serving(world) as app:
        own, ours = await submit_requests(
            app,
            [
                asked(fields=DDH),
                asked(platform_id="arcgis", platform_refs={"item_id": "i", "layer_index": 3}),
            ],
        )
        rows = {str(row["request_id"]): row for row in await world.rows("SELECT * FROM dag_api_requests")}
        row = rows[own.request_id or ""]
        assert (row["platform_id"], json.loads(row["platform_refs"])) == ("ddh", DDH)
        assert json.loads(rows[ours.request_id or ""]["platform_refs"]) == {"item_id": "i", "layer_index": 3}


async def test_secret_inputs_are_recognized_and_not_stored(world: World):
    async with serving(world) as app:
        body = RequestBody(
            workflow_id="echo", input_params={"word": "w", "token": CANARY}, idempotency_key="k"
        )
        wrong = RequestBody(workflow_id="nothing", input_params={"password": CANARY}, idempotency_key="l")
        first = await submit_request(app, body)
        assert (await submit_request(app, body)).request_id == first.request_id
        with pytest.raises(RequestRejected):
            await submit_request(app, wrong)
        for other in (
            RequestBody(workflow_id="echo", input_params={"word": "w", "token": "x"}, idempotency_key="k"),
            RequestBody(workflow_id="nothing", input_params={"password": "x"}, idempotency_key="l"),
        ):
            with pytest.raises(IdempotencyConflict):
                await submit_request(app, other)
        rows = await world.rows("SELECT r::text AS text FROM dag_api_requests r")
        assert not any(CANARY in row["text"] for row in rows)


async def test_a_status_says_nothing_of_what_failed_inside(world: World):
    async with serving(world) as app:
        result = await submit_request(app, asked("fail"))
        await world.start()
        await world.finished(result.job_id or "")
        status = (await request_status(app, result.request_id or "")).to_dict()
        assert (status["status"], status["error"]) == ("failed", "The request could not be processed.")
        text = json.dumps(status)
        for hidden in (CANARY, result.job_id, "say", "default", "q:", "handler"):
            assert str(hidden) not in text


async def test_a_cancelled_job_is_a_failed_request(world: World):
    async with serving(world) as app:
        await world.publish("{workflow_id: wait, version: 1, nodes: {n: {type: wait, signal: go}}}")
        result = await submit_request(app, RequestBody(workflow_id="wait"))
        await world.start()
        await world.send(result.job_id or "", "cancel")
        await world.finished(result.job_id or "")
        status = await request_status(app, result.request_id or "")
        assert (status.status, status.error_code, status.error) == (
            *("failed", "cancelled"),
            "The request was cancelled.",
        )


async def test_a_job_that_exceeds_its_deadline_is_a_failed_request_that_took_too_long(world: World):
    async with serving(world) as app:
        late = "{workflow_id: late, version: 1, deadline_seconds: 0.1, nodes: {n: {type: wait, signal: go}}}"
        await world.publish(late)
        result = await submit_request(app, RequestBody(workflow_id="late"))
        await world.start()
        await world.finished(result.job_id or "")
        status = await request_status(app, result.request_id or "")
        assert (status.status, status.error_code) == ("failed", "deadline")


async def test_a_waiting_job_is_a_running_request(world: World):
    async with serving(world) as app:
        await world.publish("{workflow_id: wait, version: 1, nodes: {n: {type: wait, signal: go}}}")
        result = await submit_request(app, RequestBody(workflow_id="wait"))
        await world.start()
        await world.until_node(result.job_id or "", "n", "WAITING")
        status = await request_status(app, result.request_id or "")
        assert status.status == "running"
        assert status.progress is not None
        assert (status.progress.total, status.progress.running, status.progress.percent) == (1, 1, 0.0)


async def test_a_request_follows_the_job_that_resumes_its_job(world: World):
    async with serving(world) as app:
        result = await submit_request(app, asked("fail"))
        await world.start()
        await world.finished(result.job_id or "")
        again = await resume_job(app, result.job_id, ResumeRequest(sent_by="ada", inputs={"word": "ok"}))
        await world.finished(again.job_id or "")
        assert again.job_id != result.job_id
        status = await request_status(app, result.request_id or "")
        assert (status.status, status.result) == ("completed", {"said": "ok"})


async def test_an_id_that_is_none_is_answered_as_an_unknown_one(world: World):
    async with serving(world) as app:
        for request_id in (
            "",
            "x",
            "0" * 36,
            str(uuid.UUID(int=0)),
            str(uuid.uuid4()),
            "1; DROP",
            "\0",
            "é" * 36,
        ):
            with pytest.raises(RequestNotFound) as caught:
                await request_status(app, request_id)
            assert caught.value.to_dict() == RequestNotFound("there is no such request").to_dict()


async def test_a_body_of_the_wrong_form_is_not_stored(world: World):
    async with serving(world) as app:
        wrong: list[dict[str, Any]] = [
            {"priority": True},
            {"priority": -1},
            {"submitted_by": "a\0b"},
            {"submitted_by": "a" * 65},
            {"idempotency_key": ""},
            {"callback_url": "ftp://a.example"},
            {"callback_url": "https://user:pass@a.example"},
            {"callback_url": "https://[::1"},
            {"callback_url": "https:///x"},
            {"request_id": "1"},
            {"fields": {str(n): n for n in range(65)}},
        ]
        for more in wrong:
            with pytest.raises(RequestInvalid) as caught:
                await submit_request(app, asked(**more))
            assert [problem.path for problem in caught.value.problems] == list(more)
        assert await count(world, "dag_api_requests") == 0
