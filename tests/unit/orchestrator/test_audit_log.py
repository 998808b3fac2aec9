"""The events of attempts: before their ends, and when they are lost."""

from __future__ import annotations

import json
from typing import Any

from dagmaster.engine.apply import MAX_SHARED_LOSSES
from dagmaster.engine.events import TaskLost
from dagmaster.engine.status import AttemptStatus
from dagmaster.orchestrator.audit_log import attempt_trail, to_audit_events
from dagmaster.orchestrator.inbox import PendingEvents
from dagmaster.orchestrator.turn import TurnResult
from dagmaster.ports.turn_records import TaskResult
from dagmaster.testing import Driver, a_job, task


def a_result(seconds: float, status: AttemptStatus = AttemptStatus.COMPLETED, **rest: Any) -> TaskResult:
    return TaskResult(
        1, "7", "tile__3", 2, status, False, None, None, 1_800_000_000.0, 1_800_000_000.0 + seconds, **rest
    )


def trail(result: TaskResult) -> list[tuple[str, Any]]:
    events = attempt_trail(result)
    assert all((event.node, event.attempt) == ("tile__3", 2) for event in events)
    return [(event.type.value, json.loads(event.data or "{}")) for event in events]


def test_an_attempt_of_less_than_a_second_without_checkpoints_has_no_start_event():
    assert trail(a_result(0.999)) == []


def test_a_longer_attempt_has_one_whatever_its_outcome():
    started = [("AttemptStarted", {"started_at": "2027-01-15T08:00:00Z"})]
    assert [trail(a_result(1.0, status)) for status in AttemptStatus] == [started] * len(AttemptStatus)


def test_a_task_that_no_worker_claimed_has_none():
    result = a_result(9.0, AttemptStatus.RELEASED)
    result.started_at = None
    assert trail(result) == []


def test_each_checkpoint_has_an_event_and_the_first_says_how_many_are_omitted():
    saved = json.dumps({"current": 2, "checkpoints": [["half", 0.2], ["whole", 0.4]], "checkpoint_count": 5})
    assert trail(a_result(0.5, checkpoints=saved)) == [
        ("AttemptStarted", {"started_at": "2027-01-15T08:00:00Z"}),
        ("CheckpointSaved", {"checkpoint_name": "half", "after_seconds": 0.2, "omitted": 3}),
        ("CheckpointSaved", {"checkpoint_name": "whole", "after_seconds": 0.4}),
    ]


def test_the_checkpoints_of_a_worker_that_died_before_it_stored_the_start_are_kept():
    saved = json.dumps({"checkpoints": [["half", 0.2]], "checkpoint_count": 1})
    result = a_result(6.0, AttemptStatus.LOST, checkpoints=saved)
    result.started_at = None
    assert trail(result) == [
        ("AttemptStarted", {}),
        ("CheckpointSaved", {"checkpoint_name": "half", "after_seconds": 0.2}),
    ]


def test_the_event_of_a_loss_together_with_other_tasks_says_whether_it_is_charged(caplog):
    driver = Driver(a_job(a=task()), now=100.0)
    driver.start()
    charged = []
    for _ in range(MAX_SHARED_LOSSES + 1):
        lost = TaskLost("a", driver.job.nodes["a"].attempt, "h:7", alone=False)
        result = TurnResult(decisions=driver.apply(lost), events=[(0, lost)])
        first, *_ = to_audit_events(driver.job, result, {}, PendingEvents())
        charged.append(json.loads(first.data or "{}")["charged"])
        pending = PendingEvents()
        pending.lost.append(lost)
        pending.log_lost("7", result.decisions)
    assert charged == [False] * MAX_SHARED_LOSSES + [True]
    assert ["not charged" in record.getMessage() for record in caplog.records] == [
        not charge for charge in charged
    ]
