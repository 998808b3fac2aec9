"""What a job waits for, as sentences for people and as codes for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.application import blocking_reasons as module
from dagmaster.engine.diagnosis.context import QueueState
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.ports.read_store import PendingCommand
from dagmaster.records.fleet import FleetCounts, QueueBacklog
from dagmaster.records.jobs import OwnerRecord
from dagmaster.records.nodes import NodeRecord, WaitInfo
from tests.unit.application.world import ASKED, DONE, SECRET, a_snapshot

if TYPE_CHECKING:
    from dagmaster.application.job_snapshot import JobSnapshot

BUSY = QueueState(workers=2, slots=8, busy=7)


def blocking_reasons(snapshot: JobSnapshot) -> list[str]:
    return [reason.sentence for reason in module.blocking_reasons(snapshot)]


def test_what_a_job_waits_for_has_a_sentence_a_code_and_data():
    (approval,) = module.blocking_reasons(a_snapshot(DONE, ASKED))
    assert (approval.sentence, approval.code) == ("release waits for approval by ada", ReasonCode.APPROVAL)
    assert approval.node_id == "release"
    (signal,) = module.blocking_reasons(
        a_snapshot(DONE, NodeRecord(node_id="after", status=NodeStatus.WAITING))
    )
    assert (signal.sentence, signal.data["signal"]) == ("after waits for signal go", "go")


def test_a_node_that_is_being_cancelled_is_named_with_who_asked():
    error: dict[str, Any] = {"kind": "cancelled", "message": "cancelled by ada", "by": "ada"}
    running = NodeRecord(node_id="fetch", status=NodeStatus.RUNNING, stopped=True, error=error)
    (reason,) = module.blocking_reasons(a_snapshot(running))
    assert reason.sentence == "fetch is being cancelled by ada; what runs was asked to stop"
    assert (reason.code, reason.data) == (ReasonCode.STOPPING, {"by": "ada"})
    # The failure of an attempt before, or of the node itself, is no request.
    failed = NodeRecord(node_id="fetch", status=NodeStatus.FAILED, error=error)
    retried = NodeRecord(node_id="fetch", status=NodeStatus.RUNNING, error=error)
    assert [blocking_reasons(a_snapshot(node)) for node in (failed, retried)] == [[], []]


def test_tasks_that_wait_for_a_process_say_so_although_slots_are_free():
    state = QueueState(workers=2, slots=64, busy=12, processes=12, processes_busy=12)
    (reason,) = blocking_reasons(a_snapshot(DONE, around={"backlog": (QueueBacklog("q", 26, 70.0, state),)}))
    assert reason == (
        "26 tasks are queued on q; 2 live workers, 12 of 64 slots busy, and their 12 processes for plain functions are"
        " busy (DAGMASTER_PROCESSES)"
    )


def test_a_queue_that_no_worker_serves_is_named():
    backlog = (
        QueueBacklog("light", 3, 1.0),
        QueueBacklog("heavy", 1, 70.0, BUSY),
        QueueBacklog("fine", 9, 1.0, QueueState(workers=1)),
    )
    light, heavy = blocking_reasons(a_snapshot(DONE, around={"backlog": backlog}))
    assert light == "3 tasks are queued on light; no live worker serves this queue"
    assert heavy.startswith("1 task has been queued on heavy for 1 min; 2 live workers, 7 of 8")


def test_a_task_that_must_run_alone_waits_for_an_idle_worker():
    backlog = (QueueBacklog("heavy", 1, 70.0, BUSY), QueueBacklog("heavy", 2, 9.0, BUSY, is_exclusive=True))
    _, alone = blocking_reasons(a_snapshot(DONE, around={"backlog": backlog}))
    assert alone == (
        "2 tasks wait for a worker of heavy that runs nothing else, since workers died that ran them next to other tasks; "
        "2 live workers, 7 of 8 slots busy"
    )


def test_a_job_without_a_live_orchestrator_says_so():
    around = {"fleet": FleetCounts(0, 1)}
    (sentence,) = blocking_reasons(a_snapshot(around=around, owner=None, status=JobStatus.PENDING))
    assert "none is alive" in sentence


def test_an_owner_that_was_expired_before_its_lease_ended_is_dead():
    owner = OwnerRecord(orchestrator_id="1", host="h", pid=4, silent_seconds=2.0, is_over=True)
    (sentence,) = blocking_reasons(a_snapshot(DONE, owner=owner))
    assert (
        sentence
        == "the job waits for an orchestrator; its owner h:4 died 2 s ago, and another takes over within seconds"
    )


def test_a_finished_job_waits_for_nothing():
    assert blocking_reasons(a_snapshot(DONE, ASKED, status=JobStatus.CANCELLED, finished_at=109.0)) == []


def test_a_command_to_a_finished_job_waits_for_an_orchestrator():
    commands = (PendingCommand("3", "resume", "ada", 12.3), PendingCommand("3", "approve", "", 1.0))
    finished = {"status": JobStatus.FAILED, "finished_at": 109.0}
    rest = "for an orchestrator; none is alive"
    around = {"commands": commands, "fleet": FleetCounts(0, 1)}
    assert blocking_reasons(a_snapshot(DONE, around=around, **finished)) == [
        f"a resume by ada has been waiting 12 s {rest}",
        f"an approve has been waiting 1 s {rest}",
    ]
    around = {"commands": commands, "fleet": FleetCounts(1, 1)}
    assert blocking_reasons(a_snapshot(DONE, around=around, **finished)) == [
        "a resume by ada has been waiting 12 s to be processed"
    ]


def test_many_sentences_are_cut():
    backlog = tuple(QueueBacklog(f"q{number}", 1, 1.0) for number in range(50))
    assert blocking_reasons(a_snapshot(DONE, around={"backlog": backlog}))[-1] == "and 44 more"


def test_a_message_with_a_secret_is_redacted():
    waits = {"release": WaitInfo(103.0, f"use {SECRET}?")}
    assert SECRET not in "".join(blocking_reasons(a_snapshot(DONE, ASKED, around={"waits": waits})))
