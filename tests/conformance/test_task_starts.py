"""When the handler of a task started: in the queue, in results, in attempts, and in what readers see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dagmaster.engine.status import AttemptStatus, NodeStatus
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.read_store import NodeFilter, TaskFilter
from dagmaster.ports.task_ledger import TaskReport
from tests.conformance.jobs import Played, Scene

if TYPE_CHECKING:
    from dagmaster.ports.read_store import ReadStore
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.ports.turn_records import TaskResult
    from tests.conformance.stores import WorkerStore, World

THREE = """
name: three
nodes:
  a: {handler: h, queue: q}
  b: {handler: h, queue: q}
  c: {handler: h, queue: q}
"""
SECONDS = 40.0


async def claimed(world: World) -> tuple[Scene, WorkerStore, ClaimedTask]:
    """Return a job with a task, the worker that has claimed it, and the task."""
    scene, worker = await Scene.begin(world), await world.worker("q")
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    return scene, worker, task


async def only_result(scene: Scene) -> TaskResult:
    (result,) = await scene.orchestrator.read_results(10)
    return result


async def start_of(reader: ReadStore, task: ClaimedTask) -> float | None:
    (record,) = await reader.tasks(TaskFilter(job_id=task.job_id))
    return record.started_at


# ── Marking ──


async def test_a_claimed_task_has_not_started_until_it_is_marked(world):
    scene, worker, task = await claimed(world)
    reader = await world.reader()
    (record,) = await reader.tasks(TaskFilter())
    assert (record.status, record.started_at) == (NodeStatus.CLAIMED, None)
    now = scene.orchestrator.clock.now()
    await worker.mark_started({task.task_id: (task.token, SECONDS)})
    (record,) = await reader.tasks(TaskFilter())
    assert record.status is NodeStatus.RUNNING
    assert record.started_at == pytest.approx(now - SECONDS, abs=10)


async def test_only_the_holder_of_a_token_marks_its_task(world):
    _, worker, task = await claimed(world)
    reader = await world.reader()
    await worker.mark_started({task.task_id: (task.token + 1, SECONDS), "7": (task.token, SECONDS)})
    assert await start_of(reader, task) is None


async def test_a_released_task_has_not_started_and_an_old_token_does_not_mark_it(world):
    _, worker, task = await claimed(world)
    reader = await world.reader()
    await worker.mark_started({task.task_id: (task.token, SECONDS)})
    returned = TaskReport(task.task_id, task.token, AttemptStatus.RELEASED, returns_to_queue=True)
    assert await worker.release([returned]) == {task.task_id}
    await worker.mark_started({task.task_id: (task.token, SECONDS)})
    assert await start_of(reader, task) is None
    (again,) = await (await world.worker("q")).claim(1)
    await worker.mark_started({task.task_id: (task.token, SECONDS)})
    assert again.token != task.token
    assert await start_of(reader, again) is None


# ── Results ──


@pytest.mark.parametrize("status", [AttemptStatus.COMPLETED, AttemptStatus.FAILED, AttemptStatus.RELEASED])
async def test_a_report_says_when_the_handler_started(world, status):
    scene, worker, task = await claimed(world)
    await worker.report([TaskReport(task.task_id, task.token, status, running_seconds=SECONDS)])
    result = await only_result(scene)
    assert result.started_at == pytest.approx(result.reported_at - SECONDS, abs=10)


async def test_a_task_whose_handler_never_started_has_no_start(world):
    scene, worker, task = await claimed(world)
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.RELEASED)])
    assert (await only_result(scene)).started_at is None


async def test_a_start_that_was_marked_is_not_changed_by_the_report(world):
    scene, worker, task = await claimed(world)
    reader = await world.reader()
    await worker.mark_started({task.task_id: (task.token, SECONDS)})
    marked = await start_of(reader, task)
    # In an outage a report may be late: the time between is not subtracted.
    await world.move(100.0)
    await worker.report(
        [TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, running_seconds=SECONDS)]
    )
    assert (await only_result(scene)).started_at == marked


@pytest.mark.parametrize("is_marked", [True, False])
async def test_a_lost_task_has_the_start_of_its_queue_row(world, is_marked):
    scene, worker, task = await claimed(world)
    if is_marked:
        await worker.mark_started({task.task_id: (task.token, SECONDS)})
    await world.move(7)
    assert len(await scene.orchestrator.mark_lost_tasks()) == 1
    result = await only_result(scene)
    assert (result.status, result.started_at is not None) == (AttemptStatus.LOST, is_marked)


@pytest.mark.parametrize("is_marked", [True, False])
async def test_a_task_that_a_stopping_worker_releases_has_the_start_of_its_queue_row(world, is_marked):
    scene, worker, task = await claimed(world)
    if is_marked:
        await worker.mark_started({task.task_id: (task.token, SECONDS)})
    await worker.deregister()
    result = await only_result(scene)
    assert (result.status, result.started_at is not None) == (AttemptStatus.RELEASED, is_marked)


# ── Readers ──


async def test_nodes_are_dispatched_claimed_running_and_completed(world):
    played, reader = await Played.begin(world, THREE), await world.reader()
    one, two = await played.worker.claim(2)
    await played.worker.mark_started({two.task_id: (two.token, SECONDS)})

    async def listed(*statuses: NodeStatus) -> list[str]:
        of_job = await reader.list_nodes(NodeFilter(job_id=played.job_id, statuses=frozenset(statuses)))
        across = await reader.list_nodes(NodeFilter(statuses=frozenset(statuses)))
        assert [record.node_id for record in of_job] == [record.node_id for record in across]
        return [record.node_id for record in of_job]

    assert await listed(NodeStatus.CLAIMED) == [one.node_id]
    assert await listed(NodeStatus.RUNNING) == [two.node_id]
    assert len(await listed(NodeStatus.DISPATCHED)) == 1
    assert await listed(NodeStatus.CLAIMED, NodeStatus.RUNNING, NodeStatus.DISPATCHED) == ["a", "b", "c"]
    (running,) = await reader.nodes(played.job_id, [two.node_id])
    (attempt,) = await reader.attempts(played.job_id, two.node_id)
    assert (attempt.status, attempt.started_at) == ("RUNNING", running.started_at)
    assert running.started_at is not None
    completed = TaskReport(
        two.task_id, two.token, AttemptStatus.COMPLETED, output=JsonText("1"), running_seconds=SECONDS
    )
    await played.worker.report([completed])
    await played.gather()
    (attempt,) = await reader.attempts(played.job_id, two.node_id)
    assert (attempt.status, attempt.started_at) == ("COMPLETED", running.started_at)


async def test_the_start_of_a_node_is_that_of_its_handler(world):
    played, reader = await Played.begin(world, THREE), await world.reader()
    one, two, three = await played.worker.claim(3)
    await world.move(100.0)
    await played.worker.report(
        [
            TaskReport(
                one.task_id, one.token, AttemptStatus.COMPLETED, output=JsonText("1"), running_seconds=SECONDS
            ),
            TaskReport(two.task_id, two.token, AttemptStatus.FAILED, permanent=True, running_seconds=0.0),
            TaskReport(three.task_id, three.token, AttemptStatus.FAILED, permanent=True),
        ]
    )
    turn = await played.gather()
    assert turn.started.keys() == {one.node_id, two.node_id}
    records = {record.node_id: record for record in await reader.nodes(played.job_id, ["a", "b", "c"])}
    assert records[three.node_id].started_at is None
    for task in (one, two):
        (attempt,) = await reader.attempts(played.job_id, task.node_id)
        assert attempt.claimed_at is not None
        assert attempt.started_at is not None
        assert attempt.claimed_at < attempt.started_at == records[task.node_id].started_at


async def test_attempts_are_counted_when_their_handlers_start(world):
    played, reader = await Played.begin(world, THREE), await world.reader()

    async def count() -> int:
        return int(await reader.attempt_count(played.job_id))

    assert await count() == 0, "dispatched"
    one, two, three = await played.worker.claim(3)
    assert await count() == 0, "claimed"
    await played.worker.mark_started({one.task_id: (one.token, 1.0)})
    assert await count() == 1, "one runs"
    released = [TaskReport(two.task_id, two.token, AttemptStatus.RELEASED, running_seconds=0.1)]
    await played.worker.report([*released, TaskReport(three.task_id, three.token, AttemptStatus.RELEASED)])
    assert await count() == 2, "one was reported"
    await played.gather()
    assert await count() == 2, "and became a finished attempt"
    await played.worker.report(
        [TaskReport(one.task_id, one.token, AttemptStatus.COMPLETED, output=JsonText("1"))]
    )
    await played.gather()
    assert await count() == 2, "the one that ran was counted before"


async def test_a_completed_attempt_of_an_older_worker_counts_although_its_start_is_unknown(world):
    played, reader = await Played.begin(world, THREE), await world.reader()
    one, two, three = await played.worker.claim(3)
    await played.worker.report(
        [
            TaskReport(one.task_id, one.token, AttemptStatus.COMPLETED, output=JsonText("1")),
            TaskReport(
                two.task_id, two.token, AttemptStatus.FAILED, error='{"kind": "error"}', permanent=True
            ),
            TaskReport(three.task_id, three.token, AttemptStatus.RELEASED),
        ]
    )
    assert await reader.attempt_count(played.job_id) == 2
    await played.gather()
    assert await reader.attempt_count(played.job_id) == 2


async def test_why_distinguishes_claimed_and_running_tasks(world):
    played, reader = await Played.begin(world, THREE), await world.reader()
    one, two = await played.worker.claim(2)
    await played.worker.mark_started({two.task_id: (two.token, SECONDS)})
    facts = await reader.diagnosis(played.job_id)
    assert facts is not None
    assert sorted(task.status for task in facts.tasks.values()) == ["CLAIMED", "DISPATCHED", "RUNNING"]
    assert (facts.tasks[one.node_id].status, facts.tasks[two.node_id].status) == ("CLAIMED", "RUNNING")
    assert facts.tasks[two.node_id].started_at is not None
