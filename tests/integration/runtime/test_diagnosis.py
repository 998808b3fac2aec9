"""Why a job stands where it stands, read from a database while it stands there."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.host.clocks import loop_time
from dagmaster.orchestrator import job_advancer
from dagmaster.records.fleet import LeftJobsRecord, LeftTasksRecord, TaskNodeRecord
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.integration.runtime.runtime_world import Gate, read
from tests.integration.runtime.test_ownership import GATED, gated_by

if TYPE_CHECKING:
    from dagmaster.records.fleet import FleetRecord
    from dagmaster.worker.prefetch import PrefetchBudget
    from tests.integration.runtime.runtime_world import World

ECHO = "{name: n, nodes: {a: {handler: echo, next: b}, b: {handler: echo}}}"


def hurry(budget: PrefetchBudget) -> None:
    """Let a worker believe that its tasks are quick, from now on: it holds more than it runs."""
    budget.rate, budget._since = 20.0, loop_time() + 3600


async def fleet_of(world: World) -> FleetRecord:
    store = PostgresReadStore(world.address, lease_seconds=60.0, worker_lease_seconds=60.0)
    try:
        return await store.fleet()
    finally:
        await store.close()


async def test_the_diagnosis_of_a_job_without_an_orchestrator_says_so(world: World):
    job = await world.submit(ECHO)
    why = await world.why(job)
    assert (why.head().code, why.reason_for("a").code) == (ReasonCode.NO_ORCHESTRATOR, ReasonCode.NOT_STARTED)


async def test_a_job_without_a_worker_names_the_queue(world: World):
    await world.orchestrator()
    job = await world.submit(
        "{name: n, nodes: {a: {handler: echo, queue: container-tasks, next: b}, b: {handler: echo}}}"
    )
    assert "queued on container-tasks for" in await world.until_reason(job, "a", "no_worker")
    why = await world.why(job)
    assert [link.subject for link in why.chain("b")] == ["b", "a"]
    assert why.head().sentence.startswith("a has been queued on container-tasks")
    await world.worker()
    await world.finished(job)


async def test_queued_and_claimed_tasks_are_not_displayed_as_running(world: World):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    await world.orchestrator()
    worker = await world.worker(concurrency=1, heartbeat_seconds=0.05)
    hurry(worker.held._budget)
    job = await world.submit(
        "{name: n, nodes: {f: {type: fan_out, source: [1, 2, 3, 4, 5], task: {handler: gated}}}}"
    )
    await world.until_claimed(3)
    await world.rows(
        "UPDATE dag_task_queue SET claimed_at = claimed_at - interval '9 s' WHERE worker_id IS NOT NULL"
    )
    # It has run since its handler started, not since it was claimed.
    assert "has been running for 9 s" not in await world.until_reason(job, "f__0", "running")
    assert "9 s ago and has not started" in await world.until_reason(job, "f__1", "claimed")
    queued = await world.until_reason(job, "f__4", "queued")
    assert "position 2; 1 live worker, 1 of 1 slots busy" in queued
    (registered,) = (await fleet_of(world)).workers
    assert (registered.running, registered.prefetched, registered.concurrency) == (1, 2, 1)
    gate.open()
    assert (await world.finished(job)).status == "COMPLETED"


async def test_a_task_that_waits_for_a_process_has_not_started(world: World):
    await world.orchestrator()
    worker = await world.worker(processes=1, heartbeat_seconds=0.05)
    hurry(worker.held._process_budget)
    job = await world.submit(
        "{name: n, nodes: {f: {type: fan_out, source: [1, 2], task: {handler: listening, queue: q}}}}"
    )
    await world.until_claimed(2)
    await world.until_reason(job, "f__0", "running")
    await world.until_reason(job, "f__1", "claimed")
    await world.send(job, "cancel")
    await world.finished(job)


async def test_plain_functions_that_wait_for_a_process_say_so(world: World):
    await world.orchestrator()
    await world.worker(processes=1, heartbeat_seconds=0.05)
    job = await world.submit(
        "{name: n, nodes: {f: {type: fan_out, source: [1, 2], task: {handler: listening, queue: q}}}}"
    )
    message = ""
    while "its 1 process for plain functions is busy (DAGMASTER_PROCESSES)" not in message:
        message = await world.until_reason(job, "f__1", "queued")
    (registered,) = (await fleet_of(world)).workers
    assert (registered.processes, registered.processes_busy) == (1, 1)
    await world.send(job, "cancel")
    await world.finished(job)


async def test_the_fleet_counts_all_that_a_dead_worker_left(world: World):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    first = await world.worker(concurrency=100)
    await world.orchestrator()
    items = list(range(60))
    job = await world.submit(
        f"{{name: n, nodes: {{f: {{type: fan_out, source: {items}, task: {{handler: gated}}}}}}}}"
    )
    await world.until_claimed(60)
    await world.kill(first)
    await world.silence(first)
    await world.until("SELECT count(*) = 60 FROM dag_task_queue WHERE worker_id IS NULL")
    for item in (0, 59):
        await world.until_reason(job, f"f__{item}", "no_worker")
    # It is long dead by now: only that of the last hour is shown.
    await world.rows("UPDATE dag_workers SET heartbeat_at = clock() - interval '10 min'")
    (dead,) = (await fleet_of(world)).workers
    assert dead.left == LeftTasksRecord(tasks=60, not_reclaimed=0, now={"dispatched": 60})
    # To run them would take a child process for each: they were lost together.
    await world.send(job, "cancel")
    await world.finished(job)


async def test_a_dead_worker_is_named_until_its_task_is_retried_and_the_fleet_lists_what_it_left(
    world: World,
):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    first = await world.worker()
    owner = await world.orchestrator()
    job = await world.submit(GATED)
    await world.until_claimed()
    await world.kill(owner)
    await world.kill(first)
    await world.silence(first)
    assert (await world.why(job)).reason_for("a").code is ReasonCode.WORKER_DIED
    await world.silence(owner)
    assert (await world.why(job)).head().code is ReasonCode.NO_ORCHESTRATOR
    await world.orchestrator()
    assert "no live worker serves this queue" in await world.until_reason(job, "a", "no_worker")
    # They are long dead by now: only that of the last hour is shown.
    await world.rows("UPDATE dag_workers SET heartbeat_at = clock() - interval '10 min'")
    await world.rows(
        "UPDATE dag_orchestrators SET heartbeat_at = clock() - interval '10 min' WHERE stopped_at IS NOT NULL"
    )
    fleet = await fleet_of(world)
    (dead,) = fleet.workers
    alone_with = TaskNodeRecord(job_id=job, node_id="a")
    left = LeftTasksRecord(tasks=1, not_reclaimed=0, now={"dispatched": 1}, alone_with=alone_with)
    assert (dead.has_died, dead.left) == (True, left)
    (gone,) = [each for each in fleet.orchestrators if not each.is_alive]
    assert gone.has_died
    assert gone.left == LeftJobsRecord(jobs=1, owned_again=1, unowned=0, not_reclaimed=0, reassigned=0)
    claims = [read(event["data"]) for event in await world.events(job, "JobClaimed")]
    assert [claim.get("after") for claim in claims] == [None, "died"]
    assert all(claim["where"] == f"{dead.host}:{dead.pid}" for claim in claims)
    (lost,) = await world.events(job, "AttemptLost")
    assert read(lost["data"])["worker"] == f"{dead.host}:{dead.pid}"
    gate.open()
    await world.worker()
    await world.finished(job)


async def test_the_fleet_shows_that_a_worker_drains(world: World):
    began, gate = Gate(), Gate()

    @handler("holds", queue="q")
    async def holds() -> None:
        began.open()
        await gate.wait()

    world.handlers.append(holds)
    await world.orchestrator()
    worker = await world.worker(drain_seconds=60)
    job = await world.submit("{name: n, nodes: {a: {handler: holds}}}")
    await began.wait()
    assert [each.is_draining for each in (await fleet_of(world)).workers] == [False]
    stopping = asyncio.create_task(world.stop(worker))
    await world.until("SELECT bool_or((counters ->> 'draining')::boolean) FROM dag_workers")
    assert [each.is_draining for each in (await fleet_of(world)).workers] == [True]
    gate.open()
    await stopping
    assert [each.is_draining for each in (await fleet_of(world)).workers] == [False]
    await world.finished(job)


async def test_a_claim_after_a_release_names_the_previous_owner(world: World):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit(GATED)
    await world.until_claimed()
    await world.stop(first)
    await world.orchestrator()
    gate.open()
    await world.finished(job)
    # An orchestrator that finished a job has not left it.
    await world.send(job, "resume", nodes=["a"])
    await world.finished(job, run=2)
    claims = [read(event["data"]) for event in await world.events(job, "JobClaimed")]
    assert [claim.get("after") for claim in claims] == [None, "released", None]


async def test_a_retry_tells_when_and_after_what(world: World):
    await world.start()
    job = await world.submit(
        "{name: n, nodes: {a: {handler: fail, retry: {max_attempts: 3, initial_delay_seconds: 600, max_delay_seconds: 600, jitter: false}}}}"
    )
    reasons = await world.until_reason(job, "a", "retry")
    assert reasons.startswith("waits for a retry: attempt 2 of 3 in ")
    await world.send(job, "cancel", by="alice")
    await world.finished(job)
    why = await world.why(job)
    assert why.head().sentence.startswith("was cancelled by alice ")
    assert why.reason_for("a").code is ReasonCode.CANCELLED


async def test_the_value_of_a_branch_that_was_not_taken_is_redacted(world: World):
    text = """{name: n, inputs: {word: {type: string, secret: true}}, nodes: {
        a: {handler: echo, params: {size: 150, text: "no {{ inputs.word }}"}, next: [r, s]},
        r: {type: conditional, condition_field: "{{ nodes.a.output.echoed_params.size }}",
            branches: [{name: small, condition: "< 100", next: b}, {default: true, next: c}]},
        s: {type: conditional, condition_field: "{{ nodes.a.output.echoed_params.text }}",
            branches: [{name: known, condition: "== 'x'", next: d}, {default: true}]},
        b: {handler: echo}, c: {handler: echo}, d: {handler: echo}}}"""
    await world.start()
    job = await world.submit(text, {"word": "hunter2hunter2"})
    await world.finished(job)
    why = await world.why(job)
    assert (
        why.reason_for("b").sentence
        == "was skipped: value = 150, branch small (< 100) was false; r took default"
    )
    everything = json.dumps([why.reason_for(node.id).to_dict() for node in why.nodes()])
    assert "branch known (== 'x') was false" in why.reason_for("d").sentence
    assert "hunter2" not in everything
    assert why.reason_for("a").sentence.startswith("completed on worker ")


async def test_pauses_and_child_jobs_are_followed(world: World):
    child = (
        "{workflow_id: child, name: c, nodes: {ask: {type: approval, message: 'Go on?', approvers: [ada]}}}"
    )
    await world.start()
    job = await world.submit(
        "{name: n, nodes: {w: {type: workflow, workflow_id: child, next: s}, s: {type: wait, signal: go}}}",
        brings=[child],
    )
    await world.until_reason(job, "w", "child_job")
    inner = (await world.why(job)).reason_for("w").data["job_id"]
    assert await world.until_reason(inner, "ask", "approval") == "waits for approval by ada: Go on?"
    await world.send(inner, "approve", node="ask")
    assert await world.until_reason(job, "s", "signal") == "waits for signal go"
    await world.send(job, "signal", name="go")
    await world.finished(job)


async def test_a_job_that_cannot_be_advanced_is_troubled(world: World, monkeypatch: Any):
    async def stumble(*_: Any, **__: Any) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(job_advancer, "run_turn", stumble)
    await world.orchestrator()
    job = await world.submit(ECHO)
    await world.until("SELECT jsonb_exists(counters -> 'quarantined', $1) FROM dag_orchestrators", job)
    head = (await world.why(job)).head()
    assert (head.code, head.data["error"]) == (ReasonCode.ADVANCE_FAILED, "KeyError")
    # The auditor looks at every job that is left.
    for table, column in (("dag_node_states", "job_id"), ("dag_job_events", "job_id"), ("dag_jobs", "id")):
        await world.rows(f"DELETE FROM {table} WHERE {column} = $1", int(job))
    assert "could not be advanced by its owner" in head.sentence


async def test_a_job_whose_rows_make_no_sense_is_explained_nevertheless(world: World):
    job = await world.submit(ECHO)
    await world.rows("UPDATE dag_jobs SET status = 'RUNNING', started_at = clock() WHERE id = $1", int(job))
    await world.rows(
        "INSERT INTO dag_node_states (job_id, node_id, status) VALUES ($1, 'nowhere', 'WAITING')", int(job)
    )
    await world.orchestrator()
    await world.until("SELECT owner_id IS NOT NULL FROM dag_jobs WHERE id = $1", int(job))
    head = (await world.why(job)).head()
    assert (head.code, head.data["error"]) == (ReasonCode.ADVANCE_FAILED, "KeyError")
    # The auditor looks at every job that is left.
    for table, column in (("dag_node_states", "job_id"), ("dag_job_events", "job_id"), ("dag_jobs", "id")):
        await world.rows(f"DELETE FROM {table} WHERE {column} = $1", int(job))
