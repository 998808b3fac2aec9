"""Child jobs: a node that is another job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.runtime.runtime_world import read

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

CHILD = "{workflow_id: child, inputs: {n: {type: integer, required: true}}, nodes: {a: {handler: echo, params: {n: '{{ inputs.n * 2 }}'}}}, outputs: {twice: '{{ nodes.a.output.echoed_params.n }}'}}"
PARENT = "{workflow_id: parent, nodes: {sub: {type: workflow, workflow_id: child, inputs: {n: 21}, next: b}, b: {handler: echo, params: {n: '{{ nodes.sub.output.twice }}'}}}}"
FAILING = "{workflow_id: child, nodes: {a: {handler: fail, params: {message: tile 47, permanent: true}}}}"
WAITING = "{workflow_id: child, nodes: {w: {type: wait, seconds: 3600}}}"
CALLS = "{workflow_id: parent, nodes: {sub: {type: workflow, workflow_id: child}}}"


async def children(world: World, job_id: str) -> list[Any]:
    return await world.rows("SELECT * FROM dag_jobs WHERE parent_job_id = $1 ORDER BY id", int(job_id))


async def test_a_parent_uses_the_result_of_its_child(world: World):
    await world.publish(CHILD)
    report = await world.run(PARENT, priority=7, submitted_by="ada", correlation_id="c-1")
    assert report.status == "COMPLETED"
    assert report.nodes["b"]["output"] == {"echoed_params": {"n": 42}}
    (child,) = await children(world, report.job_id)
    assert (child["status"], child["priority"], child["submitted_by"], child["correlation_id"], child["depth"]) == (
        "COMPLETED", 7, "ada", "c-1", 1,
    )  # fmt: skip
    started, finished = await world.events(report.job_id, "ChildJobStarted", "ChildJobFinished")
    assert read(started["data"]) == {"job_id": str(child["id"])}
    assert read(finished["data"]) == {"status": "COMPLETED"}


async def test_a_child_that_came_with_the_job_wins_over_the_published_one(world: World):
    await world.publish(CHILD)
    brought = CHILD.replace("* 2", "* 3")
    report = await world.run(PARENT, brings=[brought])
    assert report.nodes["b"]["output"] == {"echoed_params": {"n": 63}}


async def test_children_come_along_to_any_depth(world: World):
    middle = CALLS.replace("workflow_id: child", "workflow_id: inner").replace(
        "workflow_id: parent", "workflow_id: child"
    )
    inner = "{workflow_id: inner, nodes: {a: {handler: echo}}}"
    report = await world.run(CALLS, brings=[middle, inner])
    assert report.status == "COMPLETED"
    assert [row["depth"] for row in await world.rows("SELECT depth FROM dag_jobs ORDER BY depth")] == [
        0,
        1,
        2,
    ]


async def test_a_fan_out_of_child_jobs_gathers_their_results(world: World):
    text = "{workflow_id: parent, nodes: {f: {type: fan_out, source: [1, 2, 3], max_parallel: 2, task: {type: workflow, workflow_id: child, inputs: {n: '{{ item }}'}}, next: all}, all: {type: fan_in, aggregation: sum}}, outputs: {total: '{{ nodes.all.output.total }}'}}"
    report = await world.run(text, brings=[CHILD])
    assert report.result == {"total": 12}
    assert len(await children(world, report.job_id)) == 3


async def test_a_child_that_fails_fails_its_node_with_the_reason(world: World):
    report = await world.run(CALLS, brings=[FAILING])
    assert report.status == "FAILED"
    assert "tile 47" in str(report.nodes["sub"]["error"])
    (child,) = await children(world, report.job_id)
    assert child["status"] == "FAILED"


@pytest.mark.parametrize(
    ("parent", "brings", "kind", "message"),
    [
        (CALLS, [], "unknown_workflow", "no workflow 'child' was found"),
        (CALLS.replace("child}", "child, version: 9}"), [CHILD], "unknown_workflow", "'child' version 9"),
        (CALLS, [CHILD], "invalid_inputs", "n"),
    ],
)
async def test_a_child_that_cannot_be_started_fails_its_node(
    world: World, parent: str, brings: Any, kind: str, message: str
):
    report = await world.run(parent, brings=brings)
    assert report.nodes["sub"]["error"]["kind"] == kind
    assert message in report.nodes["sub"]["error"]["message"]
    assert await children(world, report.job_id) == []
    assert await world.types(report.job_id, "ChildJobStarted") == []


async def test_children_nest_eight_deep_and_no_deeper(world: World):
    await world.publish("{workflow_id: again, nodes: {sub: {type: workflow, workflow_id: again}}}")
    report = await world.run("{workflow_id: top, nodes: {sub: {type: workflow, workflow_id: again}}}")
    assert report.status == "FAILED"
    assert "nest at most 8 deep" in str(
        await world.value("SELECT error FROM dag_node_states WHERE job_id = (SELECT max(id) FROM dag_jobs)")
    )
    assert await world.value("SELECT max(depth) FROM dag_jobs") == 7


async def test_a_cancel_reaches_the_children_of_children(world: World):
    middle = CALLS.replace("workflow_id: child", "workflow_id: inner").replace(
        "workflow_id: parent", "workflow_id: child"
    )
    await world.start()
    job = await world.submit(CALLS, brings=[middle, WAITING.replace("child", "inner")])
    await world.until("SELECT true FROM dag_node_states WHERE node_id = 'w' AND status = 'WAITING'")
    await world.send(job, "cancel")
    assert (await world.finished(job)).status == "CANCELLED"
    assert {row["status"] for row in await world.rows("SELECT status FROM dag_jobs")} == {"CANCELLED"}


async def test_a_child_that_is_cancelled_alone_fails_its_node(world: World):
    await world.start()
    job = await world.submit(CALLS, brings=[WAITING])
    await world.until("SELECT true FROM dag_node_states WHERE node_id = 'w' AND status = 'WAITING'")
    (child,) = await children(world, job)
    await world.send(str(child["id"]), "cancel")
    report = await world.finished(job)
    assert (report.status, report.nodes["sub"]["status"]) == ("FAILED", "FAILED")


async def test_a_child_continues_with_another_owner_than_its_parent(world: World):
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit(CALLS, brings=["{workflow_id: child, nodes: {w: {type: wait, signal: go}}}"])
    await world.until("SELECT true FROM dag_node_states WHERE node_id = 'w' AND status = 'WAITING'")
    (child,) = await children(world, job)
    # The child is taken away from the owner of the parent.
    second = await world.orchestrator()
    await world.stop(first)
    third = await world.orchestrator()
    assert second is not third
    await world.send(str(child["id"]), "signal", name="go", payload={"n": 1})
    assert (await world.finished(job)).status == "COMPLETED"


async def test_a_failed_parent_that_is_resumed_starts_a_new_child(world: World):
    await world.publish(FAILING)
    job = (await world.run(CALLS)).job_id
    await world.publish("{workflow_id: child, version: 2, nodes: {a: {handler: echo}}}")
    await world.send(job, "resume")
    assert (await world.finished(job, run=2)).status == "COMPLETED"
    assert [child["status"] for child in await children(world, job)] == ["FAILED", "COMPLETED"]


TWO_STEPS = "{workflow_id: child, version: 1, nodes: {a: {handler: echo, next: b}, b: {handler: fail, params: {message: tile 47, permanent: true}}}}"
REPAIRED = "{workflow_id: child, version: 2, nodes: {a: {handler: echo, next: b}, b: {handler: echo}}}"


async def reused(world: World, job_id: str) -> list[list[str]]:
    """Of each child of a job, the nodes whose results were there already."""
    completed = [
        await world.events(str(child["id"]), "NodeCompleted") for child in await children(world, job_id)
    ]
    return [
        [event["node_id"] for event in events if "reused_from" in (event["data"] or "")]
        for events in completed
    ]


async def test_what_a_failed_child_had_done_is_not_done_again_when_its_parent_is_resumed(world: World):
    await world.publish(TWO_STEPS)
    job = (await world.run(CALLS)).job_id
    await world.publish(REPAIRED)
    await world.send(job, "resume")
    assert (await world.finished(job, run=2)).status == "COMPLETED"
    first, second = await children(world, job)
    assert (first["resumed_from"], second["resumed_from"]) == (None, first["id"])
    assert await reused(world, job) == [[], ["a"]]
    (submitted,) = await world.events(str(second["id"]), "JobSubmitted")
    assert read(submitted["data"]) == {"resumed_from": str(first["id"])}


async def test_a_child_that_is_retried_continues_where_it_failed(world: World):
    await world.publish(TWO_STEPS)
    job = (await world.run(CALLS)).job_id
    await world.send(job, "retry", node="sub")
    assert (await world.finished(job, run=2)).status == "FAILED"
    assert await reused(world, job) == [[], ["a"]]


async def test_a_completed_node_that_is_run_again_starts_from_the_beginning(world: World):
    await world.publish(CHILD)
    failing = PARENT.replace(
        "b: {handler: echo, params: {n:", "b: {handler: fail, params: {permanent: true, message:"
    )
    job = (await world.run(failing)).job_id
    await world.send(job, "resume", nodes=["sub"])
    assert (await world.finished(job, run=2)).status == "FAILED"
    assert await reused(world, job) == [[], []]


async def test_the_result_of_a_child_may_be_large(world: World):
    child = "{workflow_id: child, nodes: {a: {handler: make_chunks, params: {count: 30000}}}, outputs: {chunks: '{{ nodes.a.output.chunks }}'}}"
    parent = "{workflow_id: parent, nodes: {sub: {type: workflow, workflow_id: child}}, outputs: {n: '{{ nodes.sub.output.chunks | length }}'}}"
    report = await world.run(parent, brings=[child])
    assert report.result == {"n": 30000}
