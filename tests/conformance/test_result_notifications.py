"""Reports that come with the wake-up: nobody reads them, so the turn that takes them looks whether they are stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.store.result_notifications import FORMAT, MAX_CHARACTERS, MAX_REPORTS, encode_results
from tests.conformance.jobs import Scene, a_task, a_turn, wait_for_event

if TYPE_CHECKING:
    from dagmaster.ports.turn_records import TaskResult
    from tests.conformance.stores import World


async def reported(scene: Scene, *texts: str) -> list[TaskResult]:
    """Report tasks with these outputs, and give what was pushed of them."""
    worker = await scene.world.worker("q")
    await scene.write(tasks=[a_task(scene.world, attempt=number + 1) for number in range(len(texts))])
    tasks = await worker.claim(len(texts))
    await quiet(scene)
    reports = [
        TaskReport(
            task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText(text), running_seconds=0.5
        )
        for task, text in zip(tasks, texts, strict=True)
    ]
    assert len(await worker.report(reports)) == len(texts)
    await wait_for_event(scene.orchestrator.wakeup)
    return list(scene.orchestrator.notified_results)


async def quiet(scene: Scene) -> None:
    await scene.world.deliver_notifications()
    scene.orchestrator.wakeup.clear()
    scene.orchestrator.pending_kinds.clear()


async def took(scene: Scene, *pushed: TaskResult) -> bool:
    """Whether a turn that takes what was pushed is written."""
    turn = a_turn(await scene.now(), results=[each.id for each in pushed], notified_results=list(pushed))
    return await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == {scene.job_id}


async def test_notified_results_equal_stored_ones(world):
    scene = await Scene.begin(world)
    odd = json.dumps(["ä😀", 'a"b\\', " x ", None, 1e300])
    pushed = await reported(scene, "1", odd, "null")
    assert scene.orchestrator.pending_kinds == set()
    assert pushed == await scene.orchestrator.read_results(10)
    assert pushed[1].output == JsonText(odd)


async def test_a_failure_is_notified_with_its_error(world):
    scene = await Scene.begin(world)
    worker = await world.worker("q")
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await quiet(scene)
    error = json.dumps({"kind": "error", "message": "no"})
    await worker.report(
        [TaskReport(task.task_id, task.token, AttemptStatus.FAILED, permanent=True, error=error)]
    )
    await wait_for_event(scene.orchestrator.wakeup)
    (pushed,) = scene.orchestrator.notified_results
    assert (pushed.status, pushed.permanent, pushed.output, pushed.error) == ("FAILED", True, None, error)
    assert await took(scene, pushed)


@pytest.mark.parametrize(
    "texts",
    [
        ["1"] * (MAX_REPORTS + 1),
        [json.dumps("x" * MAX_CHARACTERS)],
        [json.dumps("\x01" * (MAX_CHARACTERS // 7))],
    ],
)
async def test_results_that_are_too_large_for_a_notification_are_read_from_the_table(world: World, texts):
    scene = await Scene.begin(world)
    pushed = await reported(scene, *texts)
    results = await scene.orchestrator.read_results(100)
    assert len(results) == len(texts)
    if pushed:
        # Small here, and maybe large when it is spelled: then it is as it was said.
        assert pushed == results
    else:
        assert scene.orchestrator.pending_kinds == {"results"}


async def test_a_turn_commits_notified_results(world):
    scene = await Scene.begin(world)
    pushed = await reported(scene, "1", "2")
    assert await took(scene, *pushed)
    assert await scene.results() == []
    assert [each.attempt for each in await world.attempts(scene.job_id)] == [1, 2]


FORGED = {
    "number": lambda message: replace(message, id=message.id + 1_000),
    "node": lambda message: replace(message, node_id="b"),
    "attempt": lambda message: replace(message, attempt=2),
    "status": lambda message: replace(message, status="RELEASED"),
    "permanent": lambda message: replace(message, permanent=True),
    "output": lambda message: replace(message, output=JsonText("2")),
    "no output": lambda message: replace(message, output=None),
    "blob": lambda message: replace(message, output=JsonText(message.output.text, "a/blob")),
    "error": lambda message: replace(message, error="{}"),
    "start": lambda message: replace(message, started_at=1e300),
    "no start": lambda message: replace(message, started_at=None),
    "time": lambda message: replace(message, reported_at=float("nan")),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_turn_with_something_that_is_not_stored_so_changes_nothing(world, forged):
    scene = await Scene.begin(world)
    (pushed,) = await reported(scene, "1")
    before = await world.events(scene.job_id)
    turn = a_turn(
        await scene.now(),
        results=[pushed.id],
        notified_results=[forged(pushed)],
        tasks=[a_task(world, "b")],
        events=[AuditEvent(EventType.JOB_STARTED)],
    )
    assert await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == set()
    assert await world.events(scene.job_id) == before
    assert await world.queued() == set()
    assert await scene.results() == [("a", 1, "COMPLETED")]
    assert await took(scene, pushed)


async def test_a_committed_result_is_not_committed_again(world):
    scene = await Scene.begin(world)
    (pushed,) = await reported(scene, "1")
    assert await took(scene, pushed)
    assert not await took(scene, pushed)


async def test_a_refused_turn_does_not_hold_up_the_others(world):
    scene = await Scene.begin(world)
    other = await Scene.begin(world, scene.orchestrator)
    (pushed,) = await reported(scene, "1")
    forged = a_turn(await scene.now(), results=[pushed.id], notified_results=[replace(pushed, attempt=7)])
    sound = a_turn(await other.now(), tasks=[a_task(world, "b")])
    orchestrator = scene.orchestrator
    assert await orchestrator.commit_turns([forged, sound], orchestrator.clock.now()) == {other.job_id}
    assert await world.queued() == {sound.tasks[0].task_id}


async def test_results_notified_to_a_former_owner_are_left_to_the_next_one(world):
    scene = await Scene.begin(world)
    (pushed,) = await reported(scene, "1")
    stale = a_turn(await scene.now(), results=[pushed.id], notified_results=[pushed])
    await scene.write(release=True)
    other = await world.orchestrator()
    await other.claim(10)
    assert await scene.orchestrator.commit_turns([stale], scene.orchestrator.clock.now()) == set()
    assert await other.read_results(10) == [pushed]


@pytest.mark.parametrize(
    "words",
    [
        "{", "[1]", "[[]]", "{}", "null", "[[1, 2, null, 1, 'x']]",
        '[[1, 2, "a", 1, "DONE", false, null, null, null, null, 1, null]]',
        '[[1, "2", "a", 1, "COMPLETED", false, null, null, null, null, 1, null]]',
        '[[1, 2, 3, 1, "COMPLETED", false, null, null, null, null, 1, null]]',
        '[[1, 2, "a", 1, "COMPLETED", 0, null, null, null, null, 1, null]]',
        '[[1, 2, "a", 1, "COMPLETED", false, "{", null, null, null, 1, null]]',
        '[[1, 2, "a", 1, "COMPLETED", false, 7, null, null, null, 1, null]]',
        '[[1, 2, "a", 1, "FAILED", false, null, null, "[]", null, 1, null]]',
        '[[1, 2, "a", 1, "FAILED", false, null, null, null, null, "now", null]]',
        '[[1, 2, "a", 1, "COMPLETED", false, null, null, null, null, 1, 7]]',
        '[[9223372036854775808, 2, "a", 1, "COMPLETED", false, null, null, null, null, 1, null]]',
        '[[1, -2, "a", 1, "COMPLETED", false, null, null, null, null, 1, null]]',
        '[[1, 2, "a", 2147483648, "COMPLETED", false, null, null, null, null, 1, null]]',
        '[[1, 2, "a", 1, "COMPLETED", false, null, "x\\u0000", null, null, 1, null]]',
        f'[[1, 2, "a", 1, "COMPLETED", false, null, null, null, null, 1{"0" * 400}, null]]',
        "[" * 3_000,
    ],
)  # fmt: skip
async def test_an_invalid_payload_only_wakes(world, words):
    scene = await Scene.begin(world)
    await quiet(scene)
    await world.notify_owner(scene.orchestrator, f"results {FORMAT} {words}")
    await wait_for_event(scene.orchestrator.wakeup)
    assert scene.orchestrator.notified_results == []
    assert scene.orchestrator.pending_kinds == {"results"}


@pytest.mark.parametrize("payload_format", ["", "1 ", "3 "])
async def test_results_in_the_format_of_another_version_only_wake(world, payload_format):
    scene = await Scene.begin(world)
    (pushed,) = await reported(scene, "1")
    scene.orchestrator.notified_results.clear()
    await quiet(scene)
    rows = encode_results([pushed]).removeprefix(f"results {FORMAT} ")
    await world.notify_owner(scene.orchestrator, f"results {payload_format}{rows}")
    await wait_for_event(scene.orchestrator.wakeup)
    assert scene.orchestrator.notified_results == []
    assert scene.orchestrator.pending_kinds == {"results"}


async def test_a_service_of_schema_0002_does_not_misread_results(world):
    scene = await Scene.begin(world)
    (pushed,) = await reported(scene, "1")
    # What its `on_notification` does: the first word is the kind; what follows is ignored if it is not JSON.
    kind, _, results = encode_results([pushed]).partition(" ")
    assert kind == "results"
    with pytest.raises(ValueError, match="Extra data"):
        json.loads(results)


async def test_encoded_results_are_decoded_unchanged(world):
    scene = await Scene.begin(world)
    (pushed,) = await reported(scene, '{"a": [1, "ä"]}')
    scene.orchestrator.notified_results.clear()
    await world.notify_owner(scene.orchestrator, encode_results([pushed]))
    await world.deliver_notifications()
    assert scene.orchestrator.notified_results == [pushed]


async def test_a_result_with_checkpoints_is_read_from_the_table_and_from_no_notification(world):
    scene = await Scene.begin(world)
    worker = await world.worker("q")
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    progress = '{"current": 1, "checkpoints": [["half", 1.5]], "checkpoint_count": 1}'
    await worker.progress({task.task_id: (task.token, progress)})
    await quiet(scene)
    report = TaskReport(
        task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("1"), has_checkpoints=True
    )
    await worker.report([report])
    await wait_for_event(scene.orchestrator.wakeup)
    assert scene.orchestrator.notified_results == []
    (result,) = await scene.orchestrator.read_results(10)
    assert json.loads(result.checkpoints or "") == json.loads(progress)
    # As if its notification had come all the same.
    assert not await took(scene, replace(result, checkpoints=None))


async def test_progress_without_checkpoints_is_no_part_of_a_result(world):
    scene = await Scene.begin(world)
    worker = await world.worker("q")
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await worker.progress({task.task_id: (task.token, '{"current": 1}')})
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED)])
    (result,) = await scene.orchestrator.read_results(10)
    assert result.checkpoints is None
