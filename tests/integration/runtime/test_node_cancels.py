"""Cancel of single nodes with real services: the others go on, and a cancel survives the owner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

from dagmaster.ports.command_kinds import CommandKind
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate, read

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

TILES = """
name: tiles
nodes:
  tiles:
    type: fan_out
    source: [0, 1, 2, 3, 4, 5, 6, 7]
    task: {handler: tile, params: {number: "{{ item }}"}, retry: {max_attempts: 5, initial_delay_seconds: 0}}
"""


def tile_until(began: Gate, finish: Gate, calls: list[int]) -> Any:
    """Return a handler whose tile 3 never ends in its first call; the others wait for `finish`."""

    @handler("tile", queue="q")
    async def tile(number: int) -> dict[str, int]:
        calls.append(number)
        if number == 3 and not began.is_open:
            began.open()
            await asyncio.Event().wait()
        await finish.wait()
        return {"number": number}

    return tile


async def test_one_running_tile_is_cancelled_the_others_complete_and_a_resume_runs_exactly_that_one(
    world: World,
):
    began, finish, calls = Gate(), Gate(), list[int]()
    world.handlers.append(tile_until(began, finish, calls))
    await world.start()
    job = await world.submit(TILES)
    await began.wait()
    await world.send(job, CommandKind.CANCEL_NODES, nodes=["tiles__3"])
    await world.until_node(job, "tiles__3", "FAILED")
    (event,) = await world.events(job, "NodeCancelRequested")
    assert (event["by"], event["node_id"]) == ("ada", "tiles__3")
    assert read(event["data"]) == {"nodes": ["tiles__3"], "count": 1, "command_id": ANY}
    finish.open()
    report = await world.finished(job)
    assert report.status == "FAILED"
    assert report.nodes["tiles__3"]["error"] == {
        "kind": "cancelled",
        "message": "cancelled by ada",
        "by": "ada",
    }
    others = [f"tiles__{number}" for number in range(8) if number != 3]
    assert {report.nodes[node]["status"] for node in others} == {"COMPLETED"}
    assert await world.attempts(job, "tiles__3") == ["FAILED"]
    calls.clear()
    await world.send(job, CommandKind.RESUME)
    assert (await world.finished(job, run=2)).status == "COMPLETED"
    assert calls == [3]


async def test_a_cancel_survives_the_death_of_the_owner_between_request_and_report(world: World):
    began, noticed, finish = Gate(), Gate(), Gate()

    @handler("slow", queue="q")
    async def slow() -> None:
        began.open()
        try:
            await asyncio.Event().wait()
        finally:
            noticed.open()
            await finish.wait()

    world.handlers.append(slow)
    first = await world.orchestrator()
    await world.worker(heartbeat_seconds=3600)
    job = await world.submit(
        "{name: n, on_failure: continue, nodes: {a: {handler: slow, retry: {max_attempts: 5, initial_delay_seconds: 0}}, b: {handler: echo}}}"
    )
    await began.wait()
    await world.send(job, CommandKind.CANCEL_NODES, nodes=["a", "b"])
    await noticed.wait()
    await world.kill(first)
    await world.silence(first)
    finish.open()
    await world.orchestrator()
    report = await world.finished(job)
    assert report.nodes["a"]["status"] == "FAILED"
    assert report.nodes["a"]["error"]["message"] == "cancelled by ada"
    assert await world.attempts(job, "a") == ["FAILED"]


async def test_a_node_in_the_queue_is_withdrawn_and_never_reaches_a_worker(world: World):
    await world.orchestrator()
    job = await world.submit(
        "{name: n, on_failure: continue, nodes: {a: {handler: echo}, b: {handler: echo}}}"
    )
    await world.until_node(job, "b", "DISPATCHED")
    await world.send(job, CommandKind.CANCEL_NODES, nodes=["a"])
    await world.until_node(job, "a", "FAILED")
    assert await world.attempts(job, "a") == ["RELEASED"]
    (back,) = await world.events(job, "AttemptReleased")
    assert read(back["data"]) == {"cancelled": True}
    await world.start()
    report = await world.finished(job)
    assert (report.nodes["a"]["status"], report.nodes["b"]["status"]) == ("FAILED", "COMPLETED")


async def test_a_node_is_cancelled_before_anybody_owns_its_job(world: World):
    job = await world.submit(
        "{name: n, on_failure: continue, nodes: {a: {handler: echo, next: c}, b: {handler: echo}, c: {handler: echo}}}"
    )
    await world.send(job, CommandKind.CANCEL_NODES, nodes=["a"])
    await world.start()
    report = await world.finished(job)
    assert {name: node["status"] for name, node in report.nodes.items()} == {
        "a": "FAILED",
        "b": "COMPLETED",
        "c": "SKIPPED",
    }


async def test_the_child_job_of_a_cancelled_node_is_cancelled(world: World):
    await world.publish("{name: child, nodes: {w: {type: wait, signal: never}}}")
    await world.start()
    job = await world.submit("{name: n, nodes: {a: {type: workflow, workflow_id: child}}}")
    await world.until("SELECT count(*) = 1 FROM dag_node_states WHERE status = 'WAITING'")
    await world.send(job, CommandKind.CANCEL_NODES, nodes=["a"])
    report = await world.finished(job)
    assert report.nodes["a"]["error"]["message"] == "cancelled by ada"
    assert await world.value("SELECT status FROM dag_jobs WHERE parent_job_id = $1", int(job)) == "CANCELLED"


async def test_several_failed_nodes_are_retried_in_one_run_while_the_job_runs(world: World):
    repaired, hold = Gate(), Gate()

    @handler("fragile", queue="q")
    async def fragile(number: int) -> None:
        if number == 9:
            await hold.wait()
        elif not repaired.is_open:
            raise RuntimeError("broken")

    world.handlers.append(fragile)
    await world.start()
    job = await world.submit(
        "{name: n, nodes: {f: {type: fan_out, source: [1, 2, 3, 9], task: {handler: fragile, params: {number: '{{ item }}'}, retry: none}}}}"
    )
    await world.until(
        "SELECT count(*) = 3 FROM dag_node_states WHERE job_id = $1 AND status = 'FAILED'", int(job)
    )
    repaired.open()
    # The last one runs: it is skipped.
    await world.send(job, CommandKind.RETRY, nodes=["f__0", "f__2", "f__3"])
    await world.until(
        "SELECT count(*) = 2 FROM dag_node_states WHERE job_id = $1 AND status = 'COMPLETED'", int(job)
    )
    hold.open()
    report = await world.finished(job, run=2)
    assert {name: node["status"] for name, node in report.nodes.items() if name != "f"} == {
        "f__0": "COMPLETED",
        "f__1": "FAILED",
        "f__2": "COMPLETED",
        "f__3": "COMPLETED",
    }
    assert len(await world.events(job, "JobResumed")) == 1


async def test_a_cancel_that_changes_nothing_is_rejected_with_the_reason(world: World):
    report = await world.run("{name: n, nodes: {a: {handler: echo, next: w}, w: {type: wait, seconds: 0.1}}}")
    await world.send(report.job_id, CommandKind.CANCEL_NODES, nodes=["a"])
    await world.send(report.job_id, CommandKind.CANCEL_NODES, nodes=["nope"])
    await world.until("SELECT count(*) = 2 FROM dag_job_events WHERE type = 'CommandRejected'")
    reasons = [
        read(event["data"])["reason"] for event in await world.events(report.job_id, "CommandRejected")
    ]
    # One that names no node of the job is rejected before the other one, if both are read at once.
    assert sorted(reasons) == ["the job has no node 'nope'", "the job is COMPLETED"]
