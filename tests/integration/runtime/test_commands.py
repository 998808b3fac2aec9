"""What people ask of jobs: signals, approvals, cancel, retry, resume."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from dagmaster.application.commands.control import send_signal
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.integration.runtime.runtime_world import Gate, read
from tests.unit.application.world import application_on

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

NONE = "retry: none"


# ── Waits and signals ──


async def test_a_wait_lasts_for_its_seconds(world: World):
    report = await world.run("{name: n, nodes: {w: {type: wait, seconds: 0.2, next: a}, a: {handler: echo}}}")
    assert report.status == "COMPLETED"
    sql = "SELECT finished_at - (SELECT at FROM dag_job_events WHERE type = 'NodeWaiting') >= make_interval(secs => 0.199) FROM dag_node_states WHERE node_id = 'w'"
    assert await world.value(sql)


async def test_a_signal_ends_the_wait_for_it_and_its_payload_is_the_output(world: World):
    await world.start()
    job = await world.submit(
        "{name: n, nodes: {w: {type: wait, signal: go, next: a}, a: {handler: echo, params: {n: '{{ nodes.w.output.n }}'}}}}"
    )
    await world.until_node(job, "w", "WAITING")
    await world.send(job, CommandKind.SIGNAL, name="go", payload={"n": 7})
    report = await world.finished(job)
    assert report.nodes["a"]["output"] == {"echoed_params": {"n": 7}}
    (event,) = await world.events(job, "SignalReceived")
    assert (event["by"], read(event["data"])) == ("ada", {"signal": "go", "command_id": ANY})


async def test_each_of_two_senders_gets_the_result_of_its_signal(world: World):
    await world.start()
    waits = ", ".join(f"{name}: {{type: wait, signal: {name}}}" for name in ("go", "stop", "never"))
    job = await world.submit(f"{{name: n, nodes: {{{waits}}}}}")
    await world.until_node(job, "never", "WAITING")
    store = PostgresReadStore(world.address)
    app = application_on(store, client=world.client)
    senders = {"go": "ada", "stop": "bob"}
    try:
        results = await asyncio.gather(
            *(
                send_signal(app, job, name, sent_by=sender, wait_seconds=30.0)
                for name, sender in senders.items()
            )
        )
    finally:
        await store.close()
    events = [result.event for result in results if result.event is not None]
    assert [(event.data["signal"], event.by) for event in events] == list(senders.items())
    assert [event.data["command_id"] for event in events] == [result.command_id for result in results]


async def test_a_signal_that_comes_before_anybody_waits_is_kept(world: World):
    gate = Gate()

    @handler("gated", queue="q")
    async def gated() -> None:
        await gate.wait()

    world.handlers.append(gated)
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit("{name: n, nodes: {a: {handler: gated, next: w}, w: {type: wait, signal: go}}}")
    await world.until_claimed()
    await world.send(job, CommandKind.SIGNAL, name="go", payload={"n": 8})
    await world.until_event(job, "SignalReceived")
    # Kept in the row, not in the memory of one orchestrator.
    await world.stop(first)
    await world.orchestrator()
    gate.open()
    assert (await world.finished(job)).nodes["w"]["output"] == {"n": 8}


@pytest.mark.parametrize(("what", "status"), [("go_on", "COMPLETED"), ("fail", "FAILED")])
async def test_a_signal_that_does_not_come_in_time(world: World, what: str, status: str):
    report = await world.run(
        f"{{name: n, nodes: {{w: {{type: wait, signal: go, timeout_seconds: 0.1, on_timeout: {what}}}}}}}"
    )
    assert report.nodes["w"]["status"] == status


# ── Approvals ──

APPROVAL = "{name: n, nodes: {ok: {type: approval, approvers: [ada, bob], message: 'release {{ job.id }}?', next: a}, a: {handler: hello_world, params: {name: '{{ nodes.ok.output.approved_by }}'}}}}"


async def test_an_approval_continues_the_job_and_names_the_approver(world: World):
    await world.start()
    job = await world.submit(APPROVAL)
    await world.until_event(job, "ApprovalRequested")
    (asked,) = await world.events(job, "ApprovalRequested")
    assert read(asked["data"]) == {"message": f"release {job}?"}
    await world.send(job, CommandKind.APPROVE, by="bob", node="ok", comment="fine")
    report = await world.finished(job)
    assert report.nodes["a"]["output"] == {"message": "Hello, bob!"}
    (event,) = await world.events(job, "Approved")
    assert (event["by"], event["node_id"], read(event["data"])) == (
        "bob",
        "ok",
        {"comment": "fine", "command_id": ANY},
    )


async def test_a_rejection_fails_the_approval(world: World):
    await world.start()
    job = await world.submit(APPROVAL)
    await world.until_event(job, "ApprovalRequested")
    await world.send(job, CommandKind.REJECT, by="ada", node="ok", comment="not yet")
    report = await world.finished(job)
    assert report.status == "FAILED"
    assert report.nodes["ok"]["error"]["kind"] == "rejected"
    assert "not yet" in report.nodes["ok"]["error"]["message"]


@pytest.mark.parametrize(
    ("by", "body", "message"),
    [
        ("eve", {"node": "ok"}, "eve may not answer ok: its approvers are ada, bob"),
        ("ada", {"node": "a"}, "node a is not an approval"),
        ("ada", {"node": "nowhere"}, "no node 'nowhere'"),
        ("ada", {}, "no node None"),
    ],
)
async def test_an_answer_that_cannot_be_is_refused_and_the_job_waits_on(
    world: World, by: str, body: Any, message: str
):
    await world.start()
    job = await world.submit(APPROVAL)
    await world.until_event(job, "ApprovalRequested")
    await world.send(job, CommandKind.APPROVE, by=by, **body)
    await world.until_event(job, "CommandRejected")
    (event,) = await world.events(job, "CommandRejected")
    assert event["by"] == by
    assert message in read(event["data"])["reason"]
    await world.send(job, CommandKind.APPROVE, node="ok")
    assert (await world.finished(job)).status == "COMPLETED"


@pytest.mark.parametrize(("what", "status"), [("approve", "COMPLETED"), ("reject", "FAILED")])
async def test_an_approval_without_an_answer_times_out(world: World, what: str, status: str):
    report = await world.run(
        f"{{name: n, nodes: {{ok: {{type: approval, timeout_seconds: 0.1, on_timeout: {what}}}}}}}"
    )
    assert report.nodes["ok"]["status"] == status


async def test_an_answer_to_a_finished_job_is_rejected_with_an_event(world: World):
    report = await world.run(
        "{name: n, nodes: {ok: {type: approval, timeout_seconds: 0.1, on_timeout: approve}}}"
    )
    await world.send(report.job_id, CommandKind.REJECT, node="ok")
    await world.until_event(report.job_id, "CommandRejected")
    assert (await world.finished(report.job_id)).status == "COMPLETED"


# ── Cancel ──


async def test_a_job_that_is_cancelled_in_the_queue_never_reaches_a_worker(world: World):
    await world.orchestrator()
    job = await world.submit("{name: n, nodes: {a: {handler: echo, next: b}, b: {handler: echo}}}")
    await world.until_node(job, "a", "DISPATCHED")
    await world.send(job, CommandKind.CANCEL, by="bob", comment="the wrong day")
    report = await world.finished(job)
    assert report.status == "CANCELLED"
    assert report.nodes["a"]["status"] == "CANCELLED"
    assert await world.attempts(job, "a") == ["RELEASED"]
    (back,) = await world.events(job, "AttemptReleased")
    assert read(back["data"]) == {"cancelled": True}
    (event,) = await world.events(job, "CancelRequested")
    assert event["by"] == "bob"
    assert read(event["data"])["comment"] == "the wrong day"


async def test_a_job_can_be_cancelled_before_anybody_owns_it(world: World):
    job = await world.submit("{name: n, nodes: {a: {handler: echo}}}")
    await world.send(job, CommandKind.CANCEL)
    await world.start()
    assert (await world.finished(job)).status == "CANCELLED"


async def test_a_cancel_reaches_a_running_coroutine(world: World):
    began, cleaned = Gate(), Gate()

    @handler("waits", queue="q")
    async def waits() -> None:
        began.open()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.open()

    world.handlers.append(waits)
    await world.start()
    job = await world.submit("{name: n, nodes: {a: {handler: waits}}}")
    await began.wait()
    await world.send(job, CommandKind.CANCEL)
    report = await world.finished(job)
    assert report.status == "CANCELLED"
    assert cleaned.is_open
    assert report.nodes["a"]["status"] == "CANCELLED"


@pytest.mark.parametrize("name", ["listening", "deaf"])
async def test_a_cancel_ends_a_plain_function_whether_it_listens_or_not(world: World, name: str):
    await world.start()
    job = await world.submit(f"{{name: n, nodes: {{a: {{handler: {name}}}}}}}")
    await world.until("SELECT progress IS NOT NULL FROM dag_task_queue WHERE job_id = $1", int(job))
    pid = await world.value(
        "SELECT (progress->>'current')::int FROM dag_task_queue WHERE job_id = $1", int(job)
    )
    await world.send(job, CommandKind.CANCEL)
    assert (await world.finished(job)).status == "CANCELLED"
    if name == "deaf":
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("name", ["waiting", "listening", "listening_on_thread"])
async def test_a_cancel_reaches_running_tasks_before_the_next_heartbeat_and_every_node_has_the_reason(
    world: World, name: str
):
    await world.orchestrator()
    await world.worker(heartbeat_seconds=3600)
    text = "{name: n, nodes: {a: {handler: NAME, next: b}, b: {handler: echo, next: [c, f]}, c: {handler: echo}, f: {type: fan_out, source: [1], task: {handler: echo}}}}"
    job = await world.submit(text.replace("NAME", name))
    await world.until("SELECT progress IS NOT NULL FROM dag_task_queue WHERE job_id = $1", int(job))
    await world.send(job, CommandKind.CANCEL)
    report = await world.finished(job)
    assert report.status == "CANCELLED"
    assert report.nodes["a"]["error"]["kind"] == "cancelled"
    assert {node["status"] for node in report.nodes.values()} == {"CANCELLED"}
    # The trail tells who asked, and then of each node that it is over.
    events = await world.events(job, "CancelRequested", "NodeCancelled")
    assert (events[0]["type"], events[0]["by"]) == ("CancelRequested", "ada")
    assert sorted(event["node_id"] for event in events[1:]) == sorted(report.nodes)


async def test_a_cancel_abandons_a_thread_that_does_not_stop(world: World):
    release, began = threading.Event(), Gate()

    @handler("stubborn", queue="q", isolation="thread")
    def stubborn() -> None:
        began.open()
        release.wait()

    world.handlers.append(stubborn)
    await world.start()
    job = await world.submit("{name: n, nodes: {a: {handler: stubborn}}}")
    await began.wait()
    await world.send(job, CommandKind.CANCEL)
    try:
        assert (await world.finished(job)).status == "CANCELLED"
    finally:
        release.set()


async def test_a_job_that_waits_is_cancelled_at_once(world: World):
    await world.start()
    job = await world.submit(
        "{name: n, nodes: {w: {type: wait, seconds: 3600}, ok: {type: approval}, s: {type: wait, signal: go, next: a}, a: {handler: echo}}}"
    )
    await world.until_node(job, "s", "WAITING")
    await world.send(job, CommandKind.CANCEL)
    report = await world.finished(job)
    assert report.status == "CANCELLED"
    assert {node["status"] for node in report.nodes.values()} <= {"CANCELLED", "SKIPPED"}


async def test_a_cancel_of_a_finished_job_changes_nothing(world: World):
    report = await world.run("{name: n, nodes: {a: {handler: echo}}}")
    await world.send(report.job_id, CommandKind.CANCEL)
    await world.until_event(report.job_id, "CommandRejected")
    after = await world.finished(report.job_id)
    assert (after.status, after.nodes) == (report.status, report.nodes)


async def test_of_two_cancels_only_one_counts(world: World):
    await world.start()
    job = await world.submit("{name: n, nodes: {w: {type: wait, seconds: 3600}}}")
    await world.until_node(job, "w", "WAITING")
    await asyncio.gather(*(world.send(job, CommandKind.CANCEL, by=f"p{n}") for n in range(3)))
    assert (await world.finished(job)).status == "CANCELLED"
    await world.until("SELECT NOT EXISTS (SELECT FROM dag_inbox)")
    await world.finished(job)
    assert len(await world.events(job, "JobFinished")) == 1


# ── Once more ──


def breaks_until(gate: Gate) -> Any:
    @handler("breaks", queue="q")
    async def breaks(ctx: HandlerContext) -> dict[str, Any]:
        if not gate.is_open:
            raise RuntimeError("broken")
        return {"attempt": ctx.attempt}

    return breaks


MENDABLE = "{name: n, nodes: {a: {handler: echo, next: b}, b: {handler: breaks, retry: none, next: c}, c: {handler: echo, params: {n: '{{ nodes.b.output.attempt }}'}}}, outputs: {n: '{{ nodes.c.output.echoed_params.n }}'}}"


@pytest.mark.parametrize(
    ("command", "body"), [("resume", {}), ("resume", {"nodes": ["b"]}), ("retry", {"node": "b"})]
)
async def test_a_failed_job_that_is_retried_continues_where_it_failed(world: World, command: str, body: Any):
    repaired = Gate()
    world.handlers.append(breaks_until(repaired))
    failed = await world.run(MENDABLE)
    assert failed.status == "FAILED"
    job = failed.job_id
    repaired.open()
    await world.send(job, command, by="bob", **body)
    report = await world.finished(job, run=2)
    assert (report.status, report.result, report.error) == ("COMPLETED", {"n": 2}, None)
    # What had worked did not run again, and attempts are counted on.
    assert await world.attempts(job, "a") == ["COMPLETED"]
    assert await world.attempts(job, "b") == ["FAILED", "COMPLETED"]
    assert len(await world.events(job, "JobClaimed")) == 2


@pytest.mark.parametrize(("command", "body"), [("resume", {}), ("retry", {"node": "b"})])
async def test_the_event_of_another_run_names_its_requester(world: World, command: str, body: Any):
    repaired = Gate()
    world.handlers.append(breaks_until(repaired))
    job = (await world.run(MENDABLE)).job_id
    repaired.open()
    await world.send(job, command, by="bob", **body)
    await world.finished(job, run=2)
    (event,) = await world.events(job, "JobResumed")
    assert event["by"] == "bob"


async def test_a_job_can_fail_and_be_resumed_again_and_again(world: World):
    repaired = Gate()
    world.handlers.append(breaks_until(repaired))
    job = (await world.run(MENDABLE)).job_id
    for run in (2, 3):
        await world.send(job, CommandKind.RESUME)
        assert (await world.finished(job, run=run)).status == "FAILED"
    repaired.open()
    await world.send(job, CommandKind.RESUME)
    assert (await world.finished(job, run=4)).status == "COMPLETED"
    assert await world.attempts(job, "b") == ["FAILED", "FAILED", "FAILED", "COMPLETED"]


async def test_a_cancelled_job_can_be_resumed(world: World):
    await world.start()
    job = await world.submit("{name: n, nodes: {w: {type: wait, signal: go, next: a}, a: {handler: echo}}}")
    await world.until_node(job, "w", "WAITING")
    await world.send(job, CommandKind.CANCEL)
    assert (await world.finished(job)).status == "CANCELLED"
    await world.send(job, CommandKind.RESUME)
    await world.until_node(job, "w", "WAITING")
    await world.send(job, CommandKind.SIGNAL, name="go", payload={})
    assert (await world.finished(job, run=2)).status == "COMPLETED"
    assert await world.value("SELECT cancel_requested_at IS NULL FROM dag_jobs WHERE id = $1", int(job))


async def test_one_child_of_a_fan_out_can_be_tried_again(world: World):
    repaired = Gate()
    world.handlers.append(breaks_until(repaired))
    text = "{name: n, nodes: {f: {type: fan_out, source: [1, 2, 3], task: {handler: breaks, retry: none}, next: all}, all: {type: fan_in, aggregation: sum}}, outputs: {total: '{{ nodes.all.output.total }}'}}"
    job = (await world.run(text)).job_id
    repaired.open()
    await world.send(job, CommandKind.RESUME)
    report = await world.finished(job, run=2)
    assert (report.status, report.result) == ("COMPLETED", {"total": 6})


async def test_a_resume_of_a_job_that_completed_is_refused_or_ignored(world: World):
    report = await world.run("{name: n, nodes: {a: {handler: echo}}}")
    await world.send(report.job_id, CommandKind.RESUME)
    await world.until(
        "SELECT count(*) > 0 FROM dag_job_events WHERE type IN ('StaleReportIgnored', 'CommandRejected')"
    )
    assert (await world.finished(report.job_id)).status == "COMPLETED"
    assert await world.attempts(report.job_id, "a") == ["COMPLETED"]


async def test_a_command_for_a_job_that_is_not_there_is_not_accepted(world: World):
    assert not await world.client.send("123", CommandKind.CANCEL, {}, "ada")
