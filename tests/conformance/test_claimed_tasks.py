"""Tasks that are out: stopping them, taking them back, what they say on the way, and who is woken."""

from __future__ import annotations

import json

import pytest

from dagmaster.engine.status import AttemptStatus, Isolation
from dagmaster.ports.handler_reports import Checkpoint, data_to_store
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.turn_records import Withdrawal
from dagmaster.store import foreign_handlers
from tests.conformance.jobs import Scene, a_task, stops_of, wait_for_event

COMPLETED = AttemptStatus.COMPLETED


# ── Stopping and taking back ──


async def test_a_stop_reaches_the_heartbeat_of_the_worker_of_the_task(world):
    scene = await Scene.begin(world)
    worker, other = await world.worker(), await world.worker()
    await scene.dispatch("a")
    await scene.dispatch("b")
    one, two = await worker.claim(2)
    held = [one.task_id, two.task_id]
    assert await stops_of(worker, held, {}) == set()
    await scene.write(stops=[one.task_id])
    await wait_for_event(worker.stops)
    assert await stops_of(worker, held, {}) == {one.task_id}
    assert await stops_of(other, [], {}) == set()
    assert not other.stops.is_set()
    assert await worker.report([TaskReport(one.task_id, one.token, AttemptStatus.RELEASED)]) == {one.task_id}


async def test_an_unclaimed_task_that_is_to_stop_cannot_be_claimed_and_is_released(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    task = await scene.dispatch("a")
    await scene.write(stops=[task])
    assert await worker.claim(5) == []
    assert await scene.orchestrator.release_stopped() == 1
    assert await scene.orchestrator.release_stopped() == 0
    assert await scene.results() == [("a", 1, "RELEASED")]
    assert await world.queued() == set()


async def test_a_task_that_was_dispatched_and_stopped_in_one_turn_cannot_be_claimed(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    task = a_task(world)
    await scene.write(tasks=[task], stopped_at_dispatch={task.task_id})
    assert await worker.claim(5) == []
    assert await scene.orchestrator.release_stopped() == 1
    assert await scene.results() == [("a", 1, "RELEASED")]


async def test_a_released_task_that_never_started_keeps_its_position_and_has_no_result(world):
    scene = await Scene.begin(world)
    one, two = await world.worker(), await world.worker()
    first = await scene.dispatch("a")
    (task,) = await one.claim(5)
    last = await scene.dispatch("b")
    await world.deliver_notifications()
    two.wakeup.clear()
    assert await one.release(
        [TaskReport(task.task_id, task.token, AttemptStatus.RELEASED, returns_to_queue=True)]
    ) == {first}
    await wait_for_event(two.wakeup)
    assert await scene.results() == []
    # It is nobody's now.
    assert await one.report([TaskReport(task.task_id, task.token, COMPLETED)]) == set()
    assert (
        await one.release(
            [TaskReport(task.task_id, task.token, AttemptStatus.RELEASED, returns_to_queue=True)]
        )
        == set()
    )
    again = await two.claim(5)
    assert [(each.task_id, each.attempt) for each in again] == [(first, 1), (last, 1)]
    assert await two.report([TaskReport(first, again[0].token, COMPLETED)]) == {first}
    assert await scene.results() == [("a", 1, COMPLETED)]


async def test_a_task_of_another_worker_or_one_that_is_to_stop_is_not_released(world):
    scene = await Scene.begin(world)
    one, two = await world.worker(), await world.worker()
    await scene.dispatch("a")
    await scene.dispatch("b")
    stopped, held = await one.claim(2)
    await scene.write(stops=[stopped.task_id])
    values = [
        TaskReport(each.task_id, each.token, AttemptStatus.RELEASED, returns_to_queue=True)
        for each in (stopped, held)
    ]
    assert await two.release(values) == set()
    wrong = TaskReport(held.task_id, held.token + 1, AttemptStatus.RELEASED, returns_to_queue=True)
    assert await one.release([wrong]) == set()
    assert await one.release(values) == {held.task_id}
    assert await one.report([values[0]]) == {stopped.task_id}


async def test_what_a_worker_holds_is_not_swept_up(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await scene.write(stops=[task.task_id])
    assert await scene.orchestrator.release_stopped() == 0
    assert await worker.report([TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1"))])


async def test_only_the_owner_of_its_job_stops_or_takes_back_a_task(world):
    scene = await Scene.begin(world)
    task = await scene.dispatch("a")
    outsider = await Scene.begin(world, await world.orchestrator())
    await outsider.write(stops=[task], withdrawals=[Withdrawal(task, AttemptStatus.RELEASED)])
    assert await scene.orchestrator.release_stopped() == 0
    assert await scene.results() == []
    assert await world.queued() == {task}


async def test_only_an_unclaimed_task_is_withdrawn(world):
    scene = await Scene.begin(world)
    worker = await world.worker("held")
    waiting = await scene.dispatch("a")
    held = await scene.dispatch("b", queue="held")
    await worker.claim(1)
    error = '{"kind": "timeout", "message": "no worker"}'
    await scene.write(
        withdrawals=[
            Withdrawal(waiting, AttemptStatus.FAILED, error),
            Withdrawal(held, AttemptStatus.RELEASED),
        ]
    )
    (result,) = await scene.orchestrator.read_results(10)
    assert (result.node_id, result.status, result.started_at) == ("a", "FAILED", None)
    assert json.loads(result.error or "") == json.loads(error)
    assert await world.queued() == {held}


# ── What tasks say on the way ──


async def test_the_next_attempt_gets_the_newest_checkpoint(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await worker.checkpoint([CheckpointWrite(task.task_id, task.token, "one", "1", ())])
    await worker.checkpoint([
        CheckpointWrite(task.task_id, task.token, "two", "2", ()),
        CheckpointWrite(task.task_id, task.token, "three", '{"at": 3}', ("x/1", "x/2")),
    ])  # fmt: skip
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.RELEASED)])
    await scene.dispatch("a", attempt=2)
    await scene.dispatch("b", attempt=2)
    again, other = await worker.claim(2)
    assert json.loads(again.checkpoint or "") == {
        "phase": "three",
        "data": {"at": 3},
        "artifacts": ["x/1", "x/2"],
    }
    assert other.checkpoint is None


async def test_the_next_attempt_gets_the_earlier_checkpoints_with_the_newest(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    earlier = (Checkpoint("two", {"at": 2}, ("x/1",), {"x/1": "v1"}), Checkpoint("one", {"at": 1}))
    saved = Checkpoint("three", {"at": 3}, ("x/1", "x/2"), {"x/1": "v1"}, earlier)
    data = json.dumps(data_to_store(saved.to_json()))
    await worker.checkpoint([CheckpointWrite(task.task_id, task.token, "three", data, ("x/1", "x/2"))])
    # A worker that lost the task changes nothing of it.
    await worker.checkpoint([CheckpointWrite(task.task_id, task.token - 1, "four", "{}", ())])
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.RELEASED)])
    await scene.dispatch("a", attempt=2)
    (again,) = await worker.claim(1)
    assert Checkpoint.from_stored(json.loads(again.checkpoint or "")) == saved


async def test_a_first_attempt_gets_no_checkpoint(world):
    scene = await Scene.begin(world)
    other = await Scene.begin(world, scene.orchestrator)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await worker.checkpoint([CheckpointWrite(task.task_id, task.token, "one", "1", ())])
    await other.dispatch("a", attempt=2)
    (theirs,) = await worker.claim(1)
    assert theirs.checkpoint is None


async def test_logs_are_kept_in_order_and_each_piece_once(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await worker.append_logs(
        [LogChunk(task.task_id, task.token, 2, "c\n"), LogChunk(task.task_id, task.token, 0, "ä")]
    )
    await worker.append_logs(
        [LogChunk(task.task_id, task.token, 1, "b"), LogChunk(task.task_id, task.token, 0, "no")]
    )
    assert await world.log(task.task_id) == ["ä", "b", "c\n"]


async def test_progress_is_kept_with_the_task_and_then_with_the_attempt(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await worker.progress({task.task_id: (task.token, '{"percent": 10}')})
    await worker.progress({task.task_id: (task.token, '{"percent": 20}')})
    assert await world.progress(task.task_id) == {"percent": 20}
    await worker.report(
        [TaskReport(task.task_id, task.token, AttemptStatus.FAILED, error='{"kind": "error"}')]
    )
    (result,) = await scene.orchestrator.read_results(10)
    await scene.write(results=[result.id])
    (attempt,) = await world.attempts(scene.job_id)
    assert (attempt.progress, attempt.error) == ({"percent": 20}, {"kind": "error"})


async def test_journal_entries_with_a_stale_token_are_ignored(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    stale = task.token - 1
    await worker.append_logs([LogChunk(task.task_id, stale, 0, "no")])
    await worker.checkpoint([CheckpointWrite(task.task_id, stale, "no", "1", ())])
    await worker.progress({task.task_id: (stale, "1")})
    assert await world.log(task.task_id) == []
    assert await world.progress(task.task_id) is None
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.RELEASED)])
    await worker.append_logs([LogChunk(task.task_id, task.token, 0, "no")])
    await worker.checkpoint([CheckpointWrite(task.task_id, task.token, "no", "1", ())])
    await scene.dispatch("a", attempt=2)
    (again,) = await worker.claim(1)
    assert await world.log(task.task_id) == []
    assert again.checkpoint is None


async def test_a_worker_is_asked_to_stop_tasks_that_it_lost(world):
    scene = await Scene.begin(world)
    worker, other = await world.worker(), await world.worker("theirs")
    await scene.dispatch("a")
    await scene.dispatch("b")
    over, mine = await worker.claim(2)
    theirs = await scene.dispatch("a", attempt=2, queue="theirs")
    # Its claim was lost with the database, and it may be claimed again here.
    waiting = await scene.dispatch("b", attempt=2)
    await other.claim(1)
    await worker.report([TaskReport(over.task_id, over.token, AttemptStatus.RELEASED)])
    held = [over.task_id, mine.task_id, theirs, waiting]
    assert await stops_of(worker, held, {}) == {over.task_id, theirs}


async def test_journal_entries_of_a_lost_task_are_ignored(world):
    scene = await Scene.begin(world)
    dead, alive = await world.worker("q"), await world.worker("again")
    await scene.dispatch("a")
    (lost,) = await dead.claim(1)
    await world.move(7)
    await world.silence(alive, 0)
    assert len(await scene.orchestrator.mark_lost_tasks()) == 1
    await scene.dispatch("a", attempt=2, queue="again")
    (task,) = await alive.claim(1)
    await alive.checkpoint([CheckpointWrite(task.task_id, task.token, "newer", "2", ())])
    await alive.progress({task.task_id: (task.token, "2")})

    for task_id, token in ((lost.task_id, lost.token), (task.task_id, lost.token)):
        await dead.checkpoint([CheckpointWrite(task_id, token, "older", "1", ())])
        await dead.progress({task_id: (token, "1")})
        await dead.append_logs([LogChunk(task_id, token, 0, "no")])
        assert (
            await dead.report([TaskReport(task_id, token, COMPLETED, output=JsonText(ref="blobs/old"))])
            == set()
        )

    assert await world.progress(task.task_id) == 2
    assert await world.log(lost.task_id) + await world.log(task.task_id) == []
    assert await scene.results() == [("a", 1, "LOST")]
    await alive.report([TaskReport(task.task_id, task.token, AttemptStatus.RELEASED)])
    await scene.dispatch("a", attempt=3, queue="again")
    (third,) = await alive.claim(1)
    assert json.loads(third.checkpoint or "")["phase"] == "newer"


# ── Workers that die ──


async def test_only_the_sole_task_of_a_dead_worker_was_alone(world):
    scene = await Scene.begin(world)
    crowded, lonely = await world.worker("crowded"), await world.worker("lonely")
    await scene.dispatch("a", queue="crowded")
    await scene.dispatch("b", queue="crowded")
    await scene.dispatch("a", attempt=2, queue="lonely")
    assert (len(await crowded.claim(5)), len(await lonely.claim(5))) == (2, 1)
    await world.move(7)
    assert len(await scene.orchestrator.mark_lost_tasks()) == 3
    results = await scene.orchestrator.read_results(100)
    alone = {(result.node_id, result.attempt): json.loads(result.error or "")["alone"] for result in results}
    assert alone == {("a", 1): False, ("b", 1): False, ("a", 2): True}


async def test_an_isolated_task_needs_a_process_of_a_worker_that_has_processes(world):
    scene = await Scene.begin(world)
    worker = await world.worker("q")
    await scene.dispatch("a", isolation=Isolation.PROCESS)
    await scene.dispatch("b")
    assert [task.node_id for task in await worker.claim(5, process_slots=0)] == ["b"]
    (isolated,) = await worker.claim(5, process_slots=1)
    assert (isolated.node_id, isolated.isolation) == ("a", Isolation.PROCESS)


async def test_an_isolated_task_is_claimed_like_others_by_a_worker_without_processes(world):
    scene = await Scene.begin(world)
    worker = await world.worker("q")
    await scene.dispatch("a", isolation=Isolation.PROCESS)
    assert [task.node_id for task in await worker.claim(5)] == ["a"]


H = {"h": "1"}


async def sees_exclusive(worker, held=()):
    answer = await worker.heartbeat(list(held), {})
    assert answer is not None
    return answer.has_exclusive


async def test_an_exclusive_task_is_announced_to_an_idle_worker_and_claimed_once(world):
    scene = await Scene.begin(world)
    worker, other = await world.worker("q", handlers=H), await world.worker("other", handlers=H)
    await scene.dispatch("a", isolation=Isolation.EXCLUSIVE)
    await scene.dispatch("b", isolation=Isolation.EXCLUSIVE)
    for one in (worker, other):
        assert await one.claim(5, process_slots=5) == []
    assert (await sees_exclusive(worker), await sees_exclusive(other)) == (True, False)
    assert await other.claim_exclusive() is None
    task = await worker.claim_exclusive()
    assert task is not None
    assert (task.node_id, task.isolation) == ("a", Isolation.EXCLUSIVE)
    assert await worker.report([TaskReport(task.task_id, task.token, COMPLETED)]) == {task.task_id}
    second = await worker.claim_exclusive()
    assert second is not None
    assert second.node_id == "b"
    assert await worker.claim_exclusive() is None
    assert not await sees_exclusive(worker)


async def test_an_exclusive_entrypoint_goes_to_a_worker_that_has_its_package(world):
    scene = await Scene.begin(world)
    has_it = await world.worker("q", handlers={"app.*": "1"})
    has_not = await world.worker("q", handlers={"ap.*": "1", "app.tasks.load.*": "1", "app.taskss": "1"})
    await scene.dispatch("a", isolation=Isolation.EXCLUSIVE, handler="app.tasks.load")
    assert (await sees_exclusive(has_it), await sees_exclusive(has_not)) == (True, False)
    assert await has_not.claim_exclusive() is None
    task = await has_it.claim_exclusive()
    assert task is not None
    assert task.handler == "app.tasks.load"


async def test_an_exclusive_task_is_left_to_idle_workers_for_some_time_and_to_the_first_of_the_others(world):
    scene = await Scene.begin(world)
    first, second = await world.worker("q", handlers=H), await world.worker("q", handlers=H)
    await scene.dispatch("a")
    await scene.dispatch("a", attempt=2)
    held = {worker: [task.task_id for task in await worker.claim(1)] for worker in (first, second)}
    await scene.dispatch("b", isolation=Isolation.EXCLUSIVE)
    seen = []
    for _ in range(6):
        seen.append([await sees_exclusive(worker, held[worker]) for worker in (first, second)])
        await world.move(4)
    # At 0, 4, 8, 12, 16 and 20 seconds.
    assert seen == [[False, False]] * 3 + [[True, False]] * 2 + [[True, True]]


async def test_an_exclusive_task_is_only_for_workers_that_have_its_handler(world):
    scene = await Scene.begin(world)
    without, able = await world.worker("q", handlers={"other": "1"}), await world.worker("q", handlers=H)
    await scene.dispatch("a", isolation=Isolation.EXCLUSIVE)
    assert (await sees_exclusive(without), await sees_exclusive(able)) == (False, True)
    assert await without.claim_exclusive() is None
    assert await able.claim_exclusive() is not None


async def test_an_exclusive_task_of_a_live_run_is_not_for_others(world):
    scene = await Scene.begin(world)
    everyone, run = await world.worker(handlers=H), await world.worker("run:1", handlers=H)
    await scene.dispatch("a", queue="run:1", isolation=Isolation.EXCLUSIVE)
    assert (await sees_exclusive(everyone), await sees_exclusive(run)) == (False, True)
    assert await everyone.claim_exclusive() is None
    assert await run.claim_exclusive() is not None


async def test_nothing_to_say_is_no_mistake(world):
    worker = await world.worker()
    assert await worker.report([]) == set()
    await worker.append_logs([])
    await worker.checkpoint([])
    await worker.progress({})


# ── Waking ──


async def test_a_dispatch_wakes_the_workers_of_its_queue(world):
    scene = await Scene.begin(world)
    everybody, mine, other = await world.worker(), await world.worker("q"), await world.worker("other")
    await scene.dispatch("a")
    await wait_for_event(everybody.wakeup)
    await wait_for_event(mine.wakeup)
    await world.deliver_notifications()
    assert not other.wakeup.is_set()


@pytest.mark.parametrize("how", ["report", "lose", "leave", "sweep"])
async def test_a_result_wakes_the_owner_of_its_job(world, how):
    scene = await Scene.begin(world)
    worker, owner = await world.worker(), scene.orchestrator
    stopped = await scene.dispatch("a", queue="nobody")
    await scene.dispatch("b")
    await scene.write(stops=[stopped])
    worker.rescan_queues()
    (task,) = await worker.claim(1)
    await world.deliver_notifications()
    owner.wakeup.clear()
    owner.pending_kinds.clear()
    if how == "report":
        await worker.report([TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("1"))])
    elif how == "lose":
        await world.move(7)
        await owner.mark_lost_tasks()
    elif how == "leave":
        await worker.deregister()
    else:
        await owner.release_stopped()
    await wait_for_event(owner.wakeup)
    # What a worker says in few words comes with the wake-up.
    assert owner.pending_kinds == (set() if how == "report" else {"results"})
    assert len(owner.notified_results) == (how == "report")


# ── A handler that is not here ──


async def test_another_worker_has_a_handler_if_it_is_alive_and_serves_the_queue(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    assert not await worker.other_worker_has_handler(task.task_id)
    for queues, handlers, expected in [
        (["q"], {"other": "1"}, False),
        (["another"], {"h": "1"}, False),
        (["q"], {"h": "1"}, True),
        ([], {"h": "1"}, True),
        (["q"], {"h.*": "1"}, False),
    ]:
        other = await world.worker()
        await other.register(queues, 1, handlers)
        assert await worker.other_worker_has_handler(task.task_id) is expected
        # Its tasks wait for it: it may be undrained, or be replaced in a moment.
        await other.heartbeat([], {"draining": True})
        assert await worker.other_worker_has_handler(task.task_id) is expected
        await other.deregister()
    assert not await worker.other_worker_has_handler(task.task_id)


async def test_another_worker_has_an_entrypoint_if_it_has_a_package_above_it(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a", handler="app.tasks.load")
    (task,) = await worker.claim(1)
    for handlers, by_package, by_name in [
        ({"app.*": ""}, True, False),
        ({"app.tasks.*": ""}, True, False),
        ({"app.tasks.load": "1"}, True, True),
        (
            {
                "app.tas.*": "",
                "pp.*": "",
                "app.tasks.load.*": "",
                "app": "1",
                "app.tasks": "1",
                "app.taskss": "1",
            },
            False,
            False,
        ),
    ]:
        other = await world.worker()
        await other.register(["q"], 1, handlers)
        assert await worker.other_worker_has_handler(task.task_id) is by_package
        assert await worker.other_worker_has_handler(task.task_id, by_package=False) is by_name
        await other.deregister()


async def test_a_worker_leaves_tasks_of_a_handler_that_another_one_has_to_it_for_some_seconds(
    world, monkeypatch
):
    scene = await Scene.begin(world)
    worker, other = await world.worker(), await world.worker()
    await other.register(["q"], 1, {"h": "1"})
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    assert await worker.other_worker_has_handler(task.task_id)
    await scene.dispatch("b")
    await scene.dispatch("c", handler="another")
    assert [claimed.handler for claimed in await worker.claim(10)] == ["another"]
    assert [claimed.node_id for claimed in await other.claim(10)] == ["b"]
    # The other may have gone: then this one has to report that there is no such handler.
    monkeypatch.setattr(foreign_handlers, "FOREIGN_SECONDS", 0.0)
    assert await worker.other_worker_has_handler(task.task_id)
    await scene.dispatch("d")
    assert [claimed.node_id for claimed in await worker.claim(10)] == ["d"]


# ── The fencing token ──


async def test_a_later_claim_of_a_task_has_a_greater_fencing_token(world):
    scene = await Scene.begin(world)
    one, two = await world.worker(), await world.worker()
    await scene.dispatch("a")
    (first,) = await one.claim(1)
    await one.release([TaskReport(first.task_id, first.token, AttemptStatus.RELEASED, returns_to_queue=True)])
    await world.move(0.002)
    (second,) = await two.claim(1)
    assert (second.task_id, second.attempt) == (first.task_id, 1)
    assert first.fencing_token < second.fencing_token < 2**63


async def test_a_later_attempt_has_a_greater_fencing_token_even_if_the_clock_of_the_store_was_set_back(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    (first,) = await worker.claim(1)
    await worker.report([TaskReport(first.task_id, first.token, AttemptStatus.RELEASED)])
    await scene.dispatch("a", attempt=2)
    await world.move(-3600)
    (second,) = await worker.claim(1)
    assert second.claimed_at < first.claimed_at
    assert second.fencing_token > first.fencing_token
