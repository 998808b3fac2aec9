"""What a turn writes is what is read back: rows, values, the trail; and the jobs that jobs start."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.events import (
    CancelRequested,
    NodeCancelRequested,
    ResumeRequested,
    SignalReceived,
    TimerFired,
)
from dagmaster.engine.model import Job
from dagmaster.engine.status import AttemptStatus, JobStatus
from dagmaster.errors import PermanentError
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_records import ParentNode
from dagmaster.ports.json_text import MAX_INLINE, JsonText
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.turn_records import Withdrawal
from tests.conformance.jobs import (
    ONE,
    Played,
    Scene,
    a_job,
    a_task,
    a_turn,
    nearly,
    rows_of,
    submitted,
    wait_for_event,
)

NESTED = """
name: nested
deadline_seconds: 3600
nodes:
  plan: {handler: h, queue: q, next: outer}
  outer:
    type: fan_out
    source: "{{ nodes.plan.output.rows }}"
    task:
      type: fan_out
      source: "{{ item }}"
      task: {handler: h, queue: q, params: {cell: "{{ item }}"}}
    next: all
  all: {type: fan_in, aggregation: collect, next: last}
  last: {handler: h, queue: q}
outputs: {all: "{{ nodes.all.output }}"}
"""

RETRIED = """
name: retried
nodes:
  a: {handler: h, queue: q, retry: {max_attempts: 3, initial_delay_seconds: 100}, next: b}
  b: {handler: h, queue: q}
"""

WAITING = """
name: waiting
deadline_seconds: 3600
nodes:
  a: {handler: h, queue: q, next: w}
  w: {type: wait, signal: go}
"""

BRANCHING = """
name: branching
nodes:
  size: {handler: h, queue: q, next: which}
  which:
    type: conditional
    condition_field: "{{ nodes.size.output.n }}"
    branches:
      - {name: big, condition: "> 10", next: large}
      - {name: small, default: true, next: little}
  large: {handler: h, queue: q}
  little: {handler: h, queue: q}
"""


# ── Rows ──


async def test_a_job_with_nested_fan_outs_is_the_same_from_its_rows_after_every_turn(world):
    played = await Played.begin(world, NESTED)
    await played.check_rows()
    await played.work({"plan": {"rows": [["a", "b"], ["c"]]}})
    await played.check_rows()
    await played.work({"outer__0__0": "A", "outer__0__1": {"x": 1}, "outer__1__0": None})
    await played.check_rows()
    await played.work({"last": 1})
    seen = await world.job(played.job_id)
    assert (seen.status, seen.owner) == ("COMPLETED", None)


async def test_the_next_owner_gets_the_same_job_with_the_tasks_that_are_out(world):
    played = await Played.begin(world, NESTED)
    await played.work({"plan": {"rows": [["a", "b"], ["c"]]}})
    job = played.held.job
    await played.orchestrator.deregister()
    other = await world.orchestrator()
    (claimed,) = await other.claim(10)
    assert rows_of(Job.rebuild(job.graph, claimed.row, claimed.nodes)) == nearly(rows_of(job))
    children = ("outer__0__0", "outer__0__1", "outer__1__0")
    assert {claimed.tasks[child] for child in children} == await world.queued()
    assert claimed.event_seq == played.held.event_seq + 1


async def test_the_values_of_a_job_are_loaded_by_kind(world):
    played = await Played.begin(world, NESTED)
    await played.work({"plan": {"rows": [["a", "b"], ["c"]]}})
    await played.work({"outer__0__0": "A", "outer__0__1": {"x": 1}, "outer__1__0": None})
    outer, inner = ValueKey(ValueKind.OUTPUTS, "outer"), ValueKey(ValueKind.OUTPUTS, "outer__0")
    items, cells = ValueKey(ValueKind.ITEMS, "outer"), ValueKey(ValueKind.ITEMS, "outer__1")
    outputs = await played.orchestrator.load_outputs(played.job_id, {"plan", "outer__1__0", "last", "nope"})
    assert outputs == {"plan": {"rows": [["a", "b"], ["c"]]}, "outer__1__0": None}
    keys = {outer, inner, items, cells, ValueKey(ValueKind.ITEMS, "plan")}
    result = await played.orchestrator.load(played.job_id, keys)
    assert result == {
        outer: [["A", {"x": 1}], [None]],
        inner: ["A", {"x": 1}],
        items: [["a", "b"], ["c"]],
        cells: ["c"],
    }


async def test_the_outputs_below_an_inner_fan_out_that_is_not_over_are_given(world):
    played = await Played.begin(world, NESTED)
    await played.work({"plan": {"rows": [["a", "b"], ["c"]]}})
    await played.work({"outer__0__0": "A", "outer__0__1": RuntimeError("again"), "outer__1__0": "C"})
    outer = ValueKey(ValueKind.OUTPUTS, "outer")
    assert await played.orchestrator.load(played.job_id, {outer}) == {outer: [["A", None], ["C"]]}


async def test_the_outputs_of_a_fan_out_come_in_order_with_none_for_a_child_without_one(world):
    text = """
name: fan
nodes:
  work:
    type: fan_out
    source: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    on_item_error: tolerate
    task: {handler: h, queue: q}
"""
    played = await Played.begin(world, text)
    outputs = {f"work__{place}": place * 10 for place in range(11)}
    await played.work({**outputs, "work__2": PermanentError("no")})
    key = ValueKey(ValueKind.OUTPUTS, "work")
    result = await played.orchestrator.load(played.job_id, [key])
    assert result[key] == [0, 10, None, 30, 40, 50, 60, 70, 80, 90, 100]


async def test_an_error_and_a_timer_are_the_same_from_the_rows(world):
    played = await Played.begin(world, RETRIED)
    await played.work({"a": ValueError("ä no")})
    await played.check_rows()
    node = (await played.stored()).nodes["a"]
    assert node.wake_at is not None
    assert (node.attempt, node.failed_attempts) == (1, 1)
    # Time has come: the error of the attempt before is gone, and so is the timer.
    node = played.held.job.nodes["a"]
    node.wake_at = 1.5
    await played.turn(TimerFired("a"))
    await played.check_rows()
    await played.work({"a": 1})
    await played.check_rows()


async def test_a_branch_that_was_not_taken_is_the_same_from_the_rows(world):
    played = await Played.begin(world, BRANCHING)
    await played.work({"size": {"n": 11}})
    await played.check_rows()
    rows = {node.id: node for node in (await played.stored()).nodes.values()}
    assert (rows["which"].branch, rows["little"].status.value) == ("big", "SKIPPED")


async def test_signals_deadlines_and_a_cancel_are_the_same_from_the_rows(world):
    played = await Played.begin(world, WAITING)
    await played.turn(SignalReceived("go", {"n": [1]}))
    await played.check_rows()
    stored = await played.stored()
    assert stored.signals == {"go": {"n": [1]}}
    assert stored.deadline_at is not None
    await played.worker.claim(10)
    await played.turn(CancelRequested())
    await played.check_rows()
    stored = await played.stored()
    assert (stored.cancel_requested, stored.ending, stored.stopping) == (True, True, True)


async def test_a_cancel_of_a_node_in_flight_is_the_same_from_the_rows(world):
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q}, b: {handler: h, queue: q}}}"
    )
    await played.worker.claim(10)
    await played.turn(NodeCancelRequested(("a",), "ada"))
    await played.check_rows()
    stored = await played.stored()
    assert {node.id: node.stopped for node in stored.nodes.values()} == {"a": True, "b": False}
    assert stored.nodes["a"].error == {"kind": "cancelled", "message": "cancelled by ada", "by": "ada"}


async def test_a_loaded_job_has_the_ids_of_its_tasks_in_flight(world):
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q}, b: {handler: h, queue: r}}}"
    )
    (claimed,) = await played.orchestrator.load_owned()
    assert claimed.tasks == played.held.tasks
    assert set(claimed.tasks.values()) == await world.queued()


async def test_an_open_node_has_no_output_any_more(world):
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q, next: b}, b: {handler: h, queue: q}}}"
    )
    await played.work({"a": 1})
    await played.work({"b": PermanentError("no")})
    assert await reopened(played) == {"a": 1}
    await played.turn(ResumeRequested(("a",)))
    await played.check_rows()
    assert await played.orchestrator.load_outputs(played.job_id, ["a", "b"]) == {}
    await played.work({"a": 2})
    assert await played.orchestrator.load_outputs(played.job_id, ["a"]) == {"a": 2}


async def test_a_node_that_completed_and_is_opened_again_starts_without_its_checkpoint(world):
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q, next: b}, b: {handler: h, queue: q}}}"
    )
    for node, status, output_text, error in (
        ("a", AttemptStatus.COMPLETED, JsonText("1"), None),
        ("b", AttemptStatus.FAILED, None, "{}"),
    ):
        (task,) = await played.worker.claim(1)
        assert task.node_id == node
        await played.worker.checkpoint([CheckpointWrite(task.task_id, task.token, "half", "1", ())])
        report = TaskReport(task.task_id, task.token, status, permanent=True, output=output_text, error=error)
        await played.worker.report([report])
        await played.gather()
    await reopened(played)
    await played.turn(ResumeRequested(("a",)))
    (again,) = await played.worker.claim(1)
    assert (again.node_id, again.checkpoint) == ("a", None)
    await played.worker.report(
        [TaskReport(again.task_id, again.token, AttemptStatus.COMPLETED, output=JsonText("2"))]
    )
    await played.gather()
    (other,) = await played.worker.claim(1)
    assert (other.node_id, json.loads(other.checkpoint or "null")["phase"]) == ("b", "half")


@pytest.mark.parametrize("status", [AttemptStatus.COMPLETED, AttemptStatus.FAILED])
async def test_a_child_of_a_list_that_is_made_again_starts_without_the_checkpoint_of_its_predecessor(
    world, status
):
    played = await Played.begin(
        world, "{name: n, nodes: {f: {type: fan_out, source: [1], task: {handler: h, queue: q}}}}"
    )
    (task,) = await played.worker.claim(1)
    await played.worker.checkpoint([CheckpointWrite(task.task_id, task.token, "half", "1", ())])
    output = JsonText("1") if status is AttemptStatus.COMPLETED else None
    error = None if status is AttemptStatus.COMPLETED else "{}"
    await played.worker.report(
        [TaskReport(task.task_id, task.token, status, permanent=True, output=output, error=error)]
    )
    await played.gather()
    await reopened(played)
    await played.turn(ResumeRequested(("f",)))
    (again,) = await played.worker.claim(1)
    assert (again.node_id, again.attempt, again.checkpoint) == ("f__0", 2, None)


async def reopened(played: Played) -> dict[str, object]:
    """Own the job again, which is over."""
    client = await played.world.client()
    await client.send(played.job_id, CommandKind.RESUME, {}, "")
    (claimed,) = await played.orchestrator.claim(10)
    played.held.epoch, played.held.event_seq = claimed.epoch, claimed.event_seq
    return dict(await played.orchestrator.load_outputs(played.job_id, ["a", "b"]))


async def test_an_output_that_is_a_blob_is_read_from_it(world):
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q, next: b}, b: {handler: h, queue: q}}}"
    )
    (task,) = await played.worker.claim(1)
    large = "x" * (MAX_INLINE + 1)
    await world.blobs.write("a/blob", json.dumps(large).encode())
    await played.worker.report(
        [TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText(ref="a/blob"))]
    )
    await played.gather()
    assert await played.orchestrator.load_outputs(played.job_id, ["a"]) == {"a": large}
    assert await played.orchestrator.resolve_value(JsonText(ref="a/blob")) == large
    assert await played.orchestrator.blob_bytes(played.job_id, ["a", "b", "none"]) == len(large) + 2
    reported = [JsonText(ref="a/blob"), JsonText("[1]"), JsonText(ref="gone")]
    assert await played.orchestrator.blob_bytes(played.job_id, [], reported) == len(large) + 2
    assert await played.orchestrator.resolve_value(JsonText("[1]")) == [1]


# ── The trail ──


async def test_the_events_have_no_gaps_after_many_turns(world):
    played = await Played.begin(world, NESTED)
    await played.work({"plan": {"rows": [["a"]]}})
    await played.turn(SignalReceived("go"))
    await played.work({"outer__0__0": 1})
    await played.work({"last": 1})
    events = await world.events(played.job_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = [event.type for event in events]
    assert kinds[:3] == ["JobSubmitted", "JobClaimed", "JobStarted"]
    assert kinds[-1] == "JobFinished"
    dispatched = [(event.node_id, event.attempt) for event in events if event.type == "NodeDispatched"]
    assert dispatched == [("plan", 1), ("outer__0__0", 1), ("last", 1)]
    assert {event.by for event in events[1:]} == {events[1].by}


async def test_an_event_names_its_author_if_it_is_not_the_owner(world):
    scene = await Scene.begin(world)
    event = AuditEvent(EventType.APPROVED, "a", 1, '{"comment": "ok"}', "ada")
    await scene.write(events=[event])
    last = (await world.events(scene.job_id))[-1]
    assert (last.seq, last.type, last.by, last.node_id, last.attempt) == (3, "Approved", "ada", "a", 1)
    assert last.data == {"comment": "ok"}
    assert (await scene.now()).event_seq == 3


async def test_the_result_of_a_job_is_stored_when_it_finishes(world):
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q}}, outputs: {x: '{{ nodes.a.output }}'}}"
    )
    await played.work({"a": {"z": 1, "b": None}})
    seen = await world.job(played.job_id)
    assert (seen.status, seen.result, seen.error) == ("COMPLETED", {"x": {"z": 1, "b": None}}, None)


async def test_why_a_job_failed_is_stored_with_its_end(world):
    played = await Played.begin(world, "{name: n, nodes: {a: {handler: h, queue: q}}}")
    await played.work({"a": PermanentError("no")})
    seen = await world.job(played.job_id)
    assert (seen.status, seen.result, seen.owner) == ("FAILED", None, None)
    assert seen.error["message"]


# ── Child jobs ──


async def with_child(world, **fields) -> tuple[Scene, str]:
    """Return a job whose node `a` started another job."""
    scene = await Scene.begin(world, priority=8, env='{"E": "1"}', submitted_by="ada", **fields)
    child = a_job(world, inputs='{"i": 1}', parent=ParentNode(scene.job_id, "a", 1), depth=1)
    await scene.write(children=[child])
    return scene, child.id


async def test_a_child_job_has_what_its_parent_has(world):
    scene, child = await with_child(world)
    other = await world.orchestrator()
    (claimed,) = await other.claim(10)
    assert (claimed.row.id, claimed.new.depth, claimed.new.priority) == (child, 1, 8)
    assert claimed.new.parent == ParentNode(scene.job_id, "a", 1)
    assert (claimed.inputs, claimed.env) == ({"i": 1}, {"E": "1"})
    assert (claimed.new.workflow_id, claimed.new.content_hash) == (ONE.workflow_id, ONE.content_hash)
    assert (await world.job(child)).submitted_by == "ada"
    assert [(event.seq, event.type) for event in await world.events(child)] == [
        (1, "JobSubmitted"),
        (2, "JobClaimed"),
    ]


async def test_a_child_job_goes_to_the_queue_of_its_parent(world):
    scene, child = await with_child(world, queue="run:7", workflows='{"w": "h"}')
    (claimed,) = await scene.orchestrator.claim(10, "run:7")
    assert (claimed.row.id, claimed.new.queue, claimed.workflows) == (child, "run:7", {"w": "h"})


async def test_a_new_child_job_wakes_the_orchestrators(world):
    other = await world.orchestrator()
    scene = await Scene.begin(world)
    await world.deliver_notifications()
    other.wakeup.clear()
    other.pending_kinds.clear()
    await scene.write(children=[a_job(world, parent=ParentNode(scene.job_id, "a", 1), depth=1)])
    await wait_for_event(other.wakeup)
    assert other.pending_kinds == {"jobs"}


async def test_the_parent_of_a_finished_job_gets_its_outcome(world):
    scene, child = await with_child(world)
    other = await world.orchestrator()
    (claimed,) = await other.claim(10)
    await world.deliver_notifications()
    scene.orchestrator.wakeup.clear()
    scene.orchestrator.pending_kinds.clear()
    turn = a_turn(claimed, events=[AuditEvent(EventType.JOB_FINISHED)], parent=claimed.new.parent)
    turn.job.status = JobStatus.FAILED
    turn.finished = FinishJob(JobStatus.FAILED, None, {"kind": "error", "message": "no"})
    assert await other.commit_turns([turn], other.clock.now()) == {child}
    await wait_for_event(scene.orchestrator.wakeup)
    assert scene.orchestrator.pending_kinds == {"commands"}
    (command,) = await scene.orchestrator.read_commands(10)
    assert command.kind == "child_finished"
    assert command.body == {
        "node": "a",
        "attempt": 1,
        "status": "FAILED",
        "result": None,
        "error": {"kind": "error", "message": "no"},
        "job_id": child,
    }


@pytest.mark.parametrize(
    ("ended", "result"), [(JobStatus.FAILED, True), (JobStatus.COMPLETED, False), (None, False)]
)
async def test_the_last_child_of_a_node_is_found_if_it_did_not_work_out(world, ended, result):
    scene, child = await with_child(world)
    if ended is not None:
        other = await world.orchestrator()
        (claimed,) = await other.claim(10)
        turn = a_turn(claimed, events=[AuditEvent(EventType.JOB_FINISHED)], parent=claimed.new.parent)
        turn.job.status, turn.finished = ended, FinishJob(ended, None, None)
        assert await other.commit_turns([turn], other.clock.now()) == {child}
    places = [(scene.job_id, "a"), (scene.job_id, "b")]
    known = {(scene.job_id, "a"): child} if result else {}
    assert await scene.orchestrator.unfinished_children(places) == known
    await scene.write(
        children=[a_job(world, parent=ParentNode(scene.job_id, "a", 2), depth=1, resumed_from=child)]
    )
    assert await scene.orchestrator.unfinished_children(places) == {}
    *_, again = sorted(await (await world.orchestrator()).claim(10), key=lambda each: int(each.row.id))
    assert again.new.resumed_from == child


@pytest.mark.parametrize(("asked", "hears"), [([("a", 1)], ["cancel"]), ([("a", 2), ("b", 1)], [])])
async def test_a_cancelled_child_job_is_asked_to_stop_and_no_other(world, asked, hears):
    scene, child = await with_child(world)
    other = await world.orchestrator()
    await other.claim(10)
    await scene.write(cancelled_children=asked)
    if hears:
        await wait_for_event(other.wakeup)
    commands = await other.read_commands(10)
    assert [(command.job_id, command.kind) for command in commands] == [(child, kind) for kind in hears]


# ── Fences ──


async def test_no_part_of_a_turn_of_a_former_owner_is_written(world):
    scene, child = await with_child(world)
    worker, other = await world.worker("q"), await world.orchestrator()
    await scene.dispatch("a")
    waiting, kept = (
        await scene.dispatch("b", queue="nobody"),
        await scene.dispatch("b", attempt=2, queue="nobody"),
    )
    (task,) = await worker.claim(1)
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("1"))])
    await scene.client.send(scene.job_id, CommandKind.CANCEL, {}, "")
    (result,) = await scene.orchestrator.read_results(10)
    (command,) = await scene.orchestrator.read_commands(10)
    stale = await scene.now()
    await scene.write(release=True)
    await other.claim(10)

    async def all_there_is() -> list[object]:
        # To load is to claim again: the epoch goes up by that.
        jobs = [
            ((await world.job(job_id))._replace(epoch=0), await world.events(job_id))
            for job_id in (scene.job_id, child)
        ]
        taken = await other.read_results(10), await other.read_commands(10)
        loaded = [replace(each, epoch=0) for each in await other.load_owned()]
        return [jobs, taken, loaded, await world.queued(), await world.attempts(scene.job_id)]

    before = await all_there_is()
    turn = a_turn(
        stale,
        results=[result.id],
        commands=[command.id],
        tasks=[a_task(world)],
        withdrawals=[Withdrawal(waiting, AttemptStatus.RELEASED)],
        stops=[kept],
        children=[a_job(world, parent=ParentNode(scene.job_id, "b", 1), depth=1)],
        cancelled_children=[("a", 1)],
        events=[AuditEvent(EventType.JOB_FINISHED)],
        # As if it were its own child's child.
        parent=ParentNode(child, "a", 1),
        finished=FinishJob(JobStatus.COMPLETED),
    )
    turn.added.append(turn.job.nodes["a"])
    turn.job.status = JobStatus.COMPLETED
    assert await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == set()
    assert await all_there_is() == before
    assert await other.claim(10) == []
    assert await other.release_stopped() == 0


async def test_a_node_that_is_not_held_keeps_its_row(world):
    played = await Played.begin(world, RETRIED)
    (stale,) = await played.orchestrator.load_owned()
    await played.orchestrator.deregister()
    other = await world.orchestrator()
    (claimed,) = await other.claim(10)
    turn = a_turn(stale, played.held.job.graph)
    node = turn.job.nodes["a"]
    node.attempt = 7
    turn.changed.append(node)
    assert await other.commit_turns([turn], other.clock.now()) == set()
    assert (await other.load_owned())[0].nodes == claimed.nodes


# ── Text ──


async def test_text_comes_back_as_it_was_whatever_is_in_it(world):
    odd = ["NULL", "null", "", '"', "\\", "{a,b}", "a\nb\t", "'", "ä😀", " x ", "\\N", '\\"', "$1 :by"]
    client, orchestrator, worker = await world.client(), await world.orchestrator(), await world.worker()
    await submitted(world, client, submitted_by="NULL", inputs=json.dumps(odd), env=json.dumps({"e": odd[5]}))
    (claimed,) = await orchestrator.claim(10)
    assert (claimed.inputs, claimed.env) == (odd, {"e": "{a,b}"})
    events = [
        AuditEvent(EventType.APPROVED, text, None, json.dumps({"said": text}), text or None) for text in odd
    ]
    task = a_task(world, params=json.dumps({"odd": odd}))
    await orchestrator.commit_turns([a_turn(claimed, events=events, tasks=[task])], orchestrator.clock.now())
    details = (await world.events(claimed.row.id))[2:]
    assert [(event.node_id, event.data["said"]) for event in details] == [(text, text) for text in odd]
    assert [event.by for event in details if event.node_id] == [text for text in odd if text]
    (held,) = await worker.claim(1)
    assert json.loads(held.params) == {"odd": odd}
    await worker.append_logs(
        [LogChunk(held.task_id, held.token, place, text) for place, text in enumerate(odd)]
    )
    assert await world.log(held.task_id) == odd
    await worker.report(
        [TaskReport(held.task_id, held.token, AttemptStatus.COMPLETED, output=JsonText(json.dumps(odd)))]
    )
    (result,) = await orchestrator.read_results(1)
    assert result.output == JsonText(json.dumps(odd))
