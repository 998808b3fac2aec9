"""Tasks: who holds them, who may say something of them, and what becomes of those whose worker died."""

from __future__ import annotations

import asyncio
import json

import pytest

from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_ledger import TaskReport
from tests.conformance.jobs import Scene, a_task, stops_of, wait_for_event

COMPLETED = AttemptStatus.COMPLETED


# ── Claiming ──


async def test_a_claimed_task_is_what_was_dispatched(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    task = a_task(world, "a", params='{"z": 1, "a": [2]}')
    task.secrets, task.timeout_seconds = '{"places": []}', 1.5
    await scene.write(tasks=[task])
    (claimed,) = await worker.claim(10)
    assert (claimed.task_id, claimed.job_id, claimed.node_id, claimed.attempt) == (
        task.task_id,
        scene.job_id,
        "a",
        1,
    )
    assert (claimed.handler, claimed.params, claimed.secrets) == ("h", '{"z": 1, "a": [2]}', '{"places": []}')
    assert (claimed.timeout_seconds, claimed.checkpoint, claimed.queue) == (1.5, None, "q")
    assert claimed.workflow.endswith(" v1")
    assert not claimed.workflow.startswith(" ")
    assert claimed.dispatched_at == pytest.approx(scene.orchestrator.clock.now(), abs=60)


async def test_the_tasks_of_the_most_urgent_job_are_claimed_first_then_the_oldest(world):
    low = await Scene.begin(world, priority=0)
    high = await Scene.begin(world, low.orchestrator, priority=10)
    one, two = await low.dispatch("a"), await low.dispatch("b")
    three, four = await high.dispatch("a"), await high.dispatch("b")
    worker = await world.worker()
    assert [task.task_id for task in await worker.claim(3)] == [three, four, one]
    assert [task.task_id for task in await worker.claim(3)] == [two]
    assert await worker.claim(3) == []


async def test_a_worker_claims_only_from_its_queues_and_in_order_across_them(world):
    scene = await Scene.begin(world)
    urgent = await Scene.begin(world, scene.orchestrator, priority=9)
    one = await scene.dispatch("a", queue="light")
    two = await scene.dispatch("b", queue="heavy")
    other = await scene.dispatch("a", queue="other", attempt=2)
    first = await urgent.dispatch("a", queue="heavy")
    worker = await world.worker("light", "heavy")
    assert [task.task_id for task in await worker.claim(2)] == [first, one]
    assert [task.task_id for task in await worker.claim(5)] == [two]
    assert await world.queued() == {one, two, other, first}


async def test_a_worker_without_queues_serves_every_queue_but_that_of_a_live_run(world):
    scene = await Scene.begin(world)
    one = await scene.dispatch("a", queue="any")
    theirs = await scene.dispatch("b", queue="run:7")
    everybody, runs = await world.worker(), await world.worker("run:7")
    assert [task.task_id for task in await everybody.claim(5)] == [one]
    await runs.deregister()
    everybody.rescan_queues()
    assert [task.task_id for task in await everybody.claim(5)] == [theirs]


async def test_a_notification_of_one_queue_does_not_hide_tasks_of_another(world):
    scene = await Scene.begin(world)
    earlier = await scene.dispatch("a", queue="earlier")
    worker = await world.worker()
    later = await scene.dispatch("b", queue="later")
    await wait_for_event(worker.wakeup)
    # Fewer than the limit: there are no more.
    assert [task.task_id for task in await worker.claim(5)] == [earlier, later]


async def test_a_run_serves_its_own_queue(world):
    scene = await Scene.begin(world)
    task = await scene.dispatch("a", queue="run:7")
    runs = await world.worker("run:7")
    assert [each.task_id for each in await runs.claim(5)] == [task]


async def test_two_workers_hold_each_task_once(world):
    scene = await Scene.begin(world)
    tasks = [a_task(world, "a", attempt=number) for number in range(1, 25)]
    await scene.write(tasks=tasks)
    one, two = await world.worker("q"), await world.worker()
    rounds = [await asyncio.gather(one.claim(4), two.claim(4)) for _ in range(8)]
    claimed = [task.task_id for both in rounds for each in both for task in each]
    assert sorted(claimed) == sorted(task.task_id for task in tasks)


async def test_of_the_tasks_whose_handlers_run_apart_only_so_many_are_claimed(world):
    scene = await Scene.begin(world)
    tasks = [a_task(world, "a", attempt=number) for number in range(1, 7)]
    for number in (0, 1, 2, 4):
        tasks[number].handler = "plain"
    await scene.write(tasks=tasks)
    ids = [task.task_id for task in tasks]
    worker = await world.worker()
    assert [task.task_id for task in await worker.claim(2, ["plain"], 1)] == [ids[0], ids[3]]
    assert [task.task_id for task in await worker.claim(9, ["plain", "other"], 0)] == [ids[5]]
    assert [task.task_id for task in await worker.claim(2, ["plain"], 2)] == [ids[1], ids[2]]
    assert [task.task_id for task in await worker.claim(9, ["h"], 0)] == [ids[4]]


# ── Reporting ──


async def test_a_report_moves_the_task_to_the_results(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    report = TaskReport(
        task.task_id, task.token, COMPLETED, output=JsonText('{"b": 1, "a": null}'), metrics="{}"
    )
    assert await worker.report([report]) == {task.task_id}
    (result,) = await scene.orchestrator.read_results(10)
    assert (result.job_id, result.node_id, result.attempt) == (scene.job_id, "a", 1)
    assert (result.status, result.permanent, result.error) == (COMPLETED, False, None)
    assert result.output == JsonText('{"b": 1, "a": null}')
    assert await world.queued() == set()


async def test_a_failure_and_a_blob_are_reported_as_they_are(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    await scene.dispatch("b")
    one, two = await worker.claim(2)
    error = '{"kind": "error", "message": "no"}'
    await worker.report([
        TaskReport(one.task_id, one.token, AttemptStatus.FAILED, permanent=True, error=error),
        TaskReport(two.task_id, two.token, COMPLETED, output=JsonText(ref="blobs/x")),
    ])  # fmt: skip
    failed, good = sorted(await scene.orchestrator.read_results(10), key=lambda result: result.node_id)
    assert (failed.status, failed.permanent, failed.output) == ("FAILED", True, None)
    assert json.loads(failed.error or "") == json.loads(error)
    assert good.output == JsonText(ref="blobs/x")


async def test_a_task_is_reported_once(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    report = TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1"))
    assert await worker.report([report]) == {task.task_id}
    assert await worker.report([report]) == set()
    assert await scene.results() == [("a", 1, COMPLETED)]


async def test_a_report_with_a_wrong_token_is_rejected_and_the_other_of_the_call_is_accepted(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    await scene.dispatch("b")
    one, two = await worker.claim(2)
    taken = await worker.report([
        TaskReport(one.task_id, one.token + 1, COMPLETED, output=JsonText("1")),
        TaskReport(two.task_id, two.token, COMPLETED, output=JsonText("2")),
    ])  # fmt: skip
    assert taken == {two.task_id}
    assert await scene.results() == [("b", 1, COMPLETED)]
    assert await world.queued() == {one.task_id}


async def test_a_report_of_another_worker_is_refused(world):
    scene = await Scene.begin(world)
    worker, other = await world.worker(), await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    assert (
        await other.report([TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1"))]) == set()
    )
    assert await scene.results() == []


async def test_results_stay_until_the_turn_that_takes_them_is_written(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    await scene.dispatch("b")
    one, two = await worker.claim(2)
    await worker.report(
        [TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1")) for task in (one, two)]
    )
    results = await scene.orchestrator.read_results(10)
    assert await scene.orchestrator.read_results(1) == results[:1]
    await scene.write(results=[results[0].id])
    assert await scene.orchestrator.read_results(10) == results[1:]
    await scene.write(results=[results[1].id])
    assert await scene.orchestrator.read_results(10) == []
    assert [(each.node, each.attempt, each.status) for each in await world.attempts(scene.job_id)] == [
        ("a", 1, COMPLETED),
        ("b", 1, COMPLETED),
    ]


async def test_a_rejected_result_is_a_failed_attempt(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    await scene.dispatch("b")
    claimed = await worker.claim(2)
    await worker.report(
        [TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1")) for task in claimed]
    )
    results = {result.node_id: result.id for result in await scene.orchestrator.read_results(10)}
    await scene.write(results=list(results.values()), rejections={results["a"]: {"kind": "added_nodes"}})
    assert [(each.node, each.status, each.error) for each in await world.attempts(scene.job_id)] == [
        ("a", "FAILED", {"kind": "added_nodes"}),
        ("b", COMPLETED, None),
    ]


async def test_results_of_a_job_wait_for_its_next_owner(world):
    scene = await Scene.begin(world)
    worker, other = await world.worker(), await world.orchestrator()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await scene.orchestrator.deregister()
    assert await worker.report([TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1"))])
    assert await other.read_results(10) == []
    await other.claim(10)
    assert [(result.node_id, result.status) for result in await other.read_results(10)] == [("a", COMPLETED)]


# ── Dying ──


async def test_tasks_are_lost_once_and_only_after_their_workers_lease_has_expired(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    waiting = await scene.dispatch("b", queue="nobody")
    (task,) = await worker.claim(1)
    await worker.progress({task.task_id: (task.token, '{"done": 3}')})
    await world.move(2)
    assert await scene.orchestrator.mark_lost_tasks() == []
    await world.move(5)
    assert await scene.orchestrator.mark_lost_tasks() == [scene.job_id]
    assert await scene.orchestrator.mark_lost_tasks() == []
    assert await scene.results() == [("a", 1, "LOST")]
    assert await world.queued() == {waiting}
    (result,) = await scene.orchestrator.read_results(10)
    await scene.write(results=[result.id])
    (attempt,) = await world.attempts(scene.job_id)
    assert (attempt.status, attempt.progress) == ("LOST", {"done": 3})


async def test_after_a_task_was_lost_its_worker_is_asked_to_stop_and_its_report_is_rejected(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await world.move(7)
    await scene.orchestrator.mark_lost_tasks()
    assert await worker.heartbeat([task.task_id], {}) is None
    assert (
        await worker.report([TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1"))]) == set()
    )
    assert await scene.results() == [("a", 1, "LOST")]


async def test_an_expired_worker_claims_nothing(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await world.move(7)
    await scene.orchestrator.mark_lost_tasks()
    await scene.dispatch("a")
    assert await worker.claim(1) == []


async def test_a_heartbeat_keeps_tasks(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    for _ in range(3):
        await world.move(3)
        assert await stops_of(worker, [task.task_id], {"tasks": 1}) == set()
    assert await scene.orchestrator.mark_lost_tasks() == []
    assert await worker.report([TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1"))])


async def test_an_orchestrator_that_was_paused_itself_expires_no_worker(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    await worker.claim(1)
    await world.move(16)
    assert await scene.orchestrator.mark_lost_tasks() == []
    await world.silence(scene.orchestrator, 0)
    assert len(await scene.orchestrator.mark_lost_tasks()) == 1


async def test_a_claimed_task_that_its_worker_does_not_know_is_released(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    # The claim commits, and the connection breaks before its answer arrives.
    await worker.claim(1)
    await world.disconnect_worker(worker)
    assert await worker.claim(1) == []
    for _ in range(12):
        await world.move(5)
        assert await stops_of(worker, [], {}) == set()
        await scene.orchestrator.heartbeat({})
        await scene.orchestrator.mark_lost_tasks()
        await scene.orchestrator.release_stopped()
    assert [(node, attempt) for node, attempt, _ in await scene.results()] == [("a", 1)]


async def test_a_worker_that_deregisters_releases_its_tasks(world):
    scene = await Scene.begin(world)
    leaving, staying = await world.worker(), await world.worker()
    await scene.dispatch("a")
    await leaving.claim(1)
    await scene.dispatch("b")
    (kept,) = await staying.claim(1)
    waiting = await scene.dispatch("a", attempt=2)
    await leaving.deregister()
    assert await scene.results() == [("a", 1, "RELEASED")]
    assert await world.queued() == {kept.task_id, waiting}
    # It said goodbye: nobody has to give it up.
    await world.move(7)
    await world.silence(staying, 0)
    assert await scene.orchestrator.mark_lost_tasks() == []
