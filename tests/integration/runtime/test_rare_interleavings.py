"""Where things meet that seldom do."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from typing import TYPE_CHECKING, Any, cast

import pytest

from dagmaster import (
    Group,
    HandlerContext,
    ResultCollector,
    RunningTask,
    create_task,
    get_current_context,
    handler_task,
)
from dagmaster.application.submission import JobRequest
from dagmaster.authoring.graph_parts import GraphPart, TaskPart
from dagmaster.engine.expressions.json_values import MAX_JSON_DEPTH
from dagmaster.errors import DatabaseUnavailable, StatementFailed, SubmissionRejected
from dagmaster.host.snowflakes import TASK_IDS
from dagmaster.orchestrator import service
from dagmaster.orchestrator.poll_schedule import PollSchedule
from dagmaster.ports.added_nodes import MemberKind
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate, read
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from dagmaster.store.postgres.worker_store import PostgresWorkerStore
    from tests.integration.runtime.runtime_world import World

ECHO_TASK = handler_task("echo")

ECHO = "{name: n, nodes: {a: {handler: echo}}}"

BUSY = """
name: busy
on_failure: continue
inputs: {n: {type: integer, default: 1}}
nodes:
  a: {handler: echo, next: [f, ok, w]}
  f: {type: fan_out, source: [1, 2, 3, 4, 5], tolerate_failures: 1, task: {handler: flaky, params: {fail_times: "{{ item % 3 }}"}, retry: {max_attempts: 2, initial_delay_seconds: 0.01}}, next: s}
  s: {type: fan_in, aggregation: sum, next: z}
  ok: {type: approval, approvers: [ada], timeout_seconds: 30, on_timeout: reject, next: z}
  w: {type: wait, signal: go, timeout_seconds: 30, on_timeout: fail, next: b}
  b: {handler: fail, retry: none, allow_failure: true}
  z: {handler: echo}
"""
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("cancel", {}),
    ("signal", {"name": "go", "payload": {"n": 1}}),
    ("signal", {"name": "stop"}),
    ("approve", {"node": "ok"}),
    ("reject", {"node": "ok", "comment": "no"}),
    ("approve", {"node": "f"}),
]
AGAIN: list[tuple[str, dict[str, Any]]] = [
    ("retry", {"node": "b"}),
    ("retry", {"node": "f__1"}),
    ("retry", {"node": "f"}),
    ("retry", {"node": "z"}),
    ("resume", {}),
    ("resume", {"nodes": ["a"]}),
    ("resume", {"nodes": ["nowhere"]}),
    ("resume", {"nodes": ["f__0", "s"]}),
]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(ASKED, id="once"),
        pytest.param(
            ASKED + AGAIN,
            id="again",
        ),
    ],
)
@pytest.mark.parametrize("seed", range(2))
async def test_whatever_is_asked_at_whatever_time_jobs_come_to_an_end(
    world: World,
    seed: int,
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """The database is audited when the world is closed."""
    monkeypatch.setattr(service, "QUARANTINE_SECONDS", 0.2)
    chance = random.Random(seed)
    await world.orchestrator()
    await world.orchestrator()
    await world.worker()
    jobs = [await world.submit(BUSY) for _ in range(8)]

    async def asks(job: str) -> None:
        for _ in range(chance.randrange(3, 9)):
            kind, body = chance.choice(asked)
            await world.send(job, kind, by=chance.choice(["ada", "eve", ""]), **body)
            await asyncio.sleep(chance.choice([0, 0, 0.01, 0.05]))

    await asyncio.gather(*map(asks, jobs))
    await world.until("SELECT NOT EXISTS (SELECT FROM dag_inbox)")
    for job in jobs:
        await world.send(job, "cancel")
    await world.until("SELECT NOT EXISTS (SELECT FROM dag_inbox)")
    for job in jobs:
        assert (await world.finished(job)).status in ("COMPLETED", "FAILED", "CANCELLED")
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


async def test_a_job_may_end_and_be_resumed_in_one_turn(world: World):
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit("{name: n, nodes: {w: {type: wait, signal: go, next: a}, a: {handler: echo}}}")
    await world.until_node(job, "w", "WAITING")
    await world.stop(first)
    await world.send(job, "cancel")
    await world.send(job, "resume")
    await world.orchestrator()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await world.until("SELECT run = 2 FROM dag_jobs")
    await world.send(job, "signal", name="go", payload={})
    assert (await world.finished(job, run=2)).status == "COMPLETED"


async def test_a_node_may_complete_and_run_again_in_one_turn(world: World):
    """Its completion belongs to the first attempt, and a cancel reaches the second one."""
    gate = Gate()

    @handler("gated", queue="q")
    async def gated(ctx: HandlerContext) -> None:
        if ctx.attempt == 1:
            await gate.wait()
        else:
            await asyncio.Event().wait()

    world.handlers.append(gated)
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit("{name: n, nodes: {a: {handler: gated}}}")
    await world.until_claimed()
    await world.stop(first)
    gate.open()
    await world.until("SELECT EXISTS (SELECT FROM dag_task_results)")
    await world.send(job, "cancel")
    await world.send(job, "resume", nodes=["a"])
    await world.orchestrator()
    await world.until("SELECT run = 2 FROM dag_jobs")
    await world.until_claimed()
    await world.send(job, "cancel")
    assert (await world.finished(job, run=2)).status == "CANCELLED"
    assert [event["attempt"] for event in await world.events(job, "NodeCompleted")] == [1]


async def test_the_next_owner_continues_the_expansion_of_a_fan_out(world: World):
    first = await world.orchestrator()
    await world.worker(concurrency=64)
    job = await world.submit(
        "{name: n, nodes: {p: {handler: make_chunks, params: {count: 6000}, next: f}, f: {type: fan_out, source: '{{ nodes.p.output.chunks }}', task: {handler: chunk_processor, params: {chunk: '{{ item }}'}}, next: s}, s: {type: fan_in, aggregation: sum}}, outputs: {total: '{{ nodes.s.output.total }}'}}"
    )
    await world.until_event(job, "NodeExpanded")
    await world.kill(first)
    await world.orchestrator()
    await world.silence(first)
    report = await world.finished(job)
    assert (report.status, report.result) == ("COMPLETED", {"total": 6000 + 5999 * 3000})
    expanded = [read(event["data"]) for event in await world.events(job, "NodeExpanded")]
    assert sum(each["count"] for each in expanded) == 6000


async def test_an_output_as_deep_as_it_may_be_is_stored(world: World):
    @handler("deep", queue="q")
    async def deep() -> dict[str, Any]:
        nested: Any = 1
        for _ in range(MAX_JSON_DEPTH - 2):
            nested = [nested]
        return {"n": nested}

    world.handlers.append(deep)
    report = await world.run(
        "{name: n, nodes: {a: {handler: deep, retry: none, next: b}, b: {handler: echo, params: {n: 1}}}}"
    )
    assert report.status == "COMPLETED", report.error


async def test_of_several_jobs_of_which_one_is_refused_none_is_stored(world: World):
    graph = world.graph("{name: n, inputs: {n: {type: integer, default: 1}}, nodes: {a: {handler: echo}}}")
    await world.intake.submit(graph, JobRequest(inputs={"n": 1}, idempotency_key="k"))
    with pytest.raises(SubmissionRejected):
        await world.intake.submit(graph, JobRequest(), JobRequest(inputs={"n": 2}, idempotency_key="k"))
    assert await world.value("SELECT count(*) FROM dag_jobs") == 1


@pytest.mark.parametrize("of", ["report", "append_logs"])
async def test_a_statement_of_a_worker_that_is_refused_stops_no_other_report(world: World, of: str):
    await world.orchestrator()
    worker = await world.worker(drain_seconds=0.2)
    real = getattr(worker.ledger, of)
    has_refused = asyncio.Event()

    async def refusing(*arguments: Any) -> Any:
        if not has_refused.is_set():
            has_refused.set()
            raise StatementFailed("a row that breaks a constraint")
        return await real(*arguments)

    setattr(worker.ledger, of, refusing)
    first = await world.submit("{name: n, nodes: {a: {handler: talk, params: {word: x}, retry: none}}}")
    await has_refused.wait()
    second = await world.submit(ECHO)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await world.finished(second)
        await world.send(first, "cancel")
        await world.finished(first)


async def test_a_rejected_report_is_delivered_after_an_outage(world: World):
    await world.orchestrator()
    worker = await world.worker()
    real = worker.ledger.report
    problems = [StatementFailed("a row that breaks a constraint"), DatabaseUnavailable("away")]

    async def failing(reports: Any) -> Any:
        if problems:
            raise problems.pop(0)
        return await real(reports)

    worker.ledger.report = failing  # type: ignore[method-assign]
    report = await world.finished(await world.submit("{name: n, nodes: {a: {handler: echo}}}"))
    assert "the report was rejected: a row that breaks a constraint" in (report.error or {})["message"]


async def test_a_worker_that_cannot_report_any_more_ends_and_others_have_its_tasks(world: World):
    await world.orchestrator()
    worker = await world.worker()

    async def failing(_reports: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    worker.ledger.report = failing  # type: ignore[method-assign, assignment]
    job = await world.submit("{name: n, nodes: {a: {handler: echo}}}")
    life = world._running.pop(worker)
    await asyncio.wait([life])
    assert isinstance(life.exception(), RuntimeError)
    await cast("PostgresWorkerStore", worker.ledger).close()
    await world.silence(worker)
    await world.worker()
    assert (await world.finished(job)).status == "COMPLETED"
    assert await world.attempts(job, "a") == ["LOST", "COMPLETED"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("object", {"password": "canary-77"}), ("array", ["canary-77"]), ("integer", 7755337733)],
)
async def test_a_secret_input_that_is_no_text_is_hidden_as_well(world: World, kind: str, value: Any):
    text = f"{{name: n, inputs: {{key: {{type: {kind}, secret: true, required: true}}}}, nodes: {{a: {{handler: echo, params: {{key: '{{{{ inputs.key }}}}'}}}}}}}}"
    await world.run(text, {"key": value})
    everything = await world.everything()
    assert "canary-77" not in everything
    assert "7755337733" not in everything


async def test_a_secret_input_that_a_child_declares_secret_stays_secret(world: World):
    child = "{workflow_id: child, inputs: {key: {type: string, secret: true, required: true}}, nodes: {a: {handler: tell, params: {secret: '{{ inputs.key }}', how: return}}}}"
    text = "{name: n, inputs: {key: {type: string, secret: true, required: true}}, nodes: {a: {type: workflow, workflow_id: child, inputs: {key: '{{ inputs.key }}'}}}}"
    report = await world.run(text, {"key": "canary-77"}, brings=[child])
    assert report.status == "COMPLETED"
    assert "canary-77" not in await world.everything()


async def test_a_job_whose_blob_is_missing_fails_with_the_reason(world: World):
    await world.start()
    job = await world.submit(
        "{name: n, nodes: {a: {handler: make_chunks, params: {count: 20000}, next: w}, w: {type: wait, signal: go, next: b}, b: {handler: echo, params: {n: '{{ nodes.a.output.count }}'}}}}"
    )
    await world.until_node(job, "w", "WAITING")
    shutil.rmtree(world.blobs.root)
    await world.send(job, "signal", name="go")
    async with asyncio.timeout(PATIENCE_SECONDS):
        report = await world.finished(job)
    assert report.status == "FAILED"


async def test_a_worker_that_starts_before_any_orchestrator_and_a_job_before_both(world: World):
    job = await world.submit(ECHO)
    await world.worker()
    await world.orchestrator()
    assert (await world.finished(job)).status == "COMPLETED"


async def test_many_submits_of_one_key_at_once_are_one_job(world: World):
    async def submits() -> str:
        return await world.submit(ECHO, idempotency_key="k")

    jobs = set(await asyncio.gather(*(submits() for _ in range(32))))
    assert len(jobs) == 1
    await world.start()
    assert (await world.finished(jobs.pop())).status == "COMPLETED"


async def test_what_a_task_adds_at_once_is_read_before_its_result_although_the_notification_was_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    gate = Gate()

    @handler("grow", queue="q")
    async def grow(ctx: HandlerContext) -> dict[str, Any]:
        # `b` waits for it. It would start with the success of this task.
        new = TaskPart(TASK_IDS.new(), "extra", {"handler": "echo", "queue": "q"}, "extra")
        edge = (MemberKind.TASK, new.id, MemberKind.TASK, 1)
        ctx.add_nodes_at_once(GraphPart([new], [], [edge], {1: "b"}))
        # It does not wait until they are accepted.
        await gate.wait()
        return {}

    due = PollSchedule.due
    monkeypatch.setattr(PollSchedule, "due", lambda schedule: due(schedule) - {"commands"})
    world.handlers.append(grow)
    await world.start()
    job_id = await world.submit(
        "{name: grows, nodes: {a: {handler: grow, queue: q, next: b}, b: {handler: echo}}}"
    )
    await world.until("SELECT true FROM dag_inbox WHERE job_id = $1", int(job_id))
    gate.open()
    report = await world.finished(job_id)
    assert report.status == "COMPLETED"
    assert {node: report.nodes[node]["status"] for node in ("extra", "b")} == {
        "extra": "COMPLETED",
        "b": "COMPLETED",
    }


async def test_commands_that_one_read_leaves_wait_for_no_poll(world: World, monkeypatch: pytest.MonkeyPatch):
    init = PollSchedule.__init__
    monkeypatch.setattr(PollSchedule, "__init__", lambda schedule, store, _: init(schedule, store, 3600.0))
    monkeypatch.setattr(service, "MAX_COMMANDS", 1)
    nodes = ", ".join(f"n{number}: {{type: approval, message: '?'}}" for number in range(6))
    job_id = await world.submit(f"{{name: asks, nodes: {{{nodes}}}}}")
    owner = await world.orchestrator()
    await world.until(
        "SELECT count(*) = 6 FROM dag_node_states WHERE job_id = $1 AND status = 'WAITING'", int(job_id)
    )
    await world.stop(owner)
    for number in range(6):
        await world.send(job_id, "approve", node=f"n{number}")
    await world.orchestrator()
    assert (await world.finished(job_id)).status == "COMPLETED"


async def test_a_task_does_not_end_before_a_call_at_once_that_it_does_not_wait_for(world: World):
    @handler("grow", queue="q")
    async def grow() -> dict[str, Any]:
        context = get_current_context()
        assert isinstance(context, RunningTask)
        context.apply(create_task(ECHO_TASK, queue="q", name="extra"), at_once=True)
        return {}

    world.handlers.append(grow)
    report = await world.run("{name: grows, nodes: {a: {handler: grow, queue: q}}}")
    assert report.status == "COMPLETED"
    assert report.nodes["extra"]["status"] == "COMPLETED"


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_node_that_is_run_again_replaces_what_it_had_added(world: World, at_once: bool):
    sizes = iter([3, 2])

    @handler("grow", queue="q")
    async def grow() -> dict[str, Any]:
        context = get_current_context()
        assert isinstance(context, RunningTask)
        parts = Group(
            "parts", [create_task(ECHO_TASK, {"n": n}, queue="q", name=f"p{n}") for n in range(next(sizes))]
        )
        total = create_task(ECHO_TASK, {"all": ResultCollector(parts.tasks)}, queue="q", name="total")
        await context.apply([parts, total], at_once=at_once)
        return {}

    world.handlers.append(grow)
    job_id = await world.submit(
        "{name: grows, nodes: {a: {handler: grow, queue: q, next: b}, b: {handler: echo}}}"
    )
    await world.start()
    assert (await world.finished(job_id)).status == "COMPLETED"
    await world.send(job_id, "resume", nodes=["a"])
    report = await world.finished(job_id, run=2)
    assert report.status == "COMPLETED"
    rows = await world.rows(
        "SELECT node_id, status, skip_reason, attempt, output FROM dag_node_states WHERE job_id = $1",
        int(job_id),
    )
    nodes = {row["node_id"]: row for row in rows}
    attempts = {
        node: (nodes[node]["status"], nodes[node]["attempt"]) for node in ("a", "b", "p0", "p1", "total")
    }
    assert attempts == dict.fromkeys(attempts, ("COMPLETED", 2))
    assert nodes["p2"]["skip_reason"] == "superseded"
    parts = [{"echoed_params": {"n": 0}}, {"echoed_params": {"n": 1}}]
    assert json.loads(nodes["total"]["output"]) == {"echoed_params": {"all": parts}}
