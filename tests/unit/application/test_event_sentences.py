"""Each event has a sentence, whatever its data is."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.application.event_sentences import event_sentence, event_status
from dagmaster.application.queries.events_and_logs import event_view
from dagmaster.cli.render.events import event_colour, event_line
from dagmaster.ports.audit_events import EventType, StoredEvent


def event(
    kind: str, node: str | None = "fetch", attempt: int | None = None, by: str = "ada", **data: Any
) -> StoredEvent:
    return StoredEvent(seq=3, type=kind, at=1.5, by=by, node_id=node, attempt=attempt, data=data)


@pytest.mark.parametrize("kind", list(EventType))
def test_every_event_has_a_sentence_also_without_data(kind):
    message = event_sentence(event(kind))
    assert message
    assert kind.value not in message
    view = event_view("7", event(kind), lambda value: value)
    assert event_line(view)
    event_colour(view.type, view.data)


def test_an_event_of_a_newer_version_is_named_by_its_type():
    assert event_sentence(event("NodePraised")) == "fetch: NodePraised"
    assert event_sentence(event("JobPraised", node=None)) == "the job: JobPraised"


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        (event("NodeDispatched", attempt=1), "fetch waits for a worker"),
        (event("NodeDispatched", attempt=2), "fetch waits for a worker, attempt 2"),
        (
            event("NodeDispatched", attempt=2, isolation="process"),
            "fetch waits for a worker, attempt 2, to run in a separate child process",
        ),
        (
            event("NodeDispatched", attempt=4, isolation="exclusive"),
            "fetch waits for a worker, attempt 4, to run alone on it",
        ),
        (
            event("AttemptLost", attempt=1, worker="h:7", alone=False),
            "fetch: worker h:7 died with attempt 1, one of several tasks; the loss is not charged",
        ),
        (
            event("AttemptLost", attempt=11, worker="h:7", alone=False, charged=True),
            "fetch: worker h:7 died with attempt 11, one of several tasks; the loss is charged",
        ),
        (event("NodeCompleted", branch="large"), "fetch completed and took branch large"),
        (event("NodeCompleted", node="tiles__start"), "the start of tiles completed"),
        (
            event("AttemptFailed", attempt=1, error={"message": "no"}, retry_at="2026-01-31T10:11:12.5Z"),
            "fetch: attempt 1 failed: no; next attempt at 10:11:12",
        ),
        (event("AttemptReleased", attempt=1), "fetch: attempt 1 was released unfinished"),
        (event("AttemptReleased", attempt=1, cancelled=True), "fetch: attempt 1 was cancelled"),
        (
            event(
                "AttemptFailed",
                attempt=1,
                error={"kind": "cancelled", "message": "the task was asked to stop"},
            ),
            "fetch: attempt 1 stopped on request",
        ),
        (
            event(
                "AttemptFailed", attempt=1, error={"kind": "cancelled", "message": "…", "signal": "SIGKILL"}
            ),
            "fetch: attempt 1 did not stop on request: killed",
        ),
        (
            event("AttemptFailed", attempt=1, error={"kind": "cancelled", "message": "…", "abandoned": True}),
            "fetch: attempt 1 did not stop on request: abandoned",
        ),
        (event("AttemptLost", attempt=1, worker="h:7"), "fetch: worker h:7 died with attempt 1"),
        (event("AttemptLost", attempt=1), "fetch: the worker of attempt 1 died"),
        (event("JobClaimed", by="orchestrator 2"), "claimed by orchestrator 2"),
        (event("JobClaimed", by="orchestrator 2", where="h:9"), "claimed by orchestrator h:9"),
        (
            event("JobClaimed", by="orchestrator 2", after="died", before="h:1"),
            "claimed by orchestrator 2; its owner h:1 died",
        ),
        (event("NodeExpanded", first=0, count=5, total=5), "fetch has 5 children"),
        (
            event("NodeExpanded", first=5000, count=5000, total=20000),
            "fetch has children 5,000 to 9,999 of 20,000",
        ),
        (event("Approved", comment="fine"), "ada approved fetch: fine"),
        (event("Rejected", comment=""), "ada rejected fetch"),
        (event("CommandRejected", node=None, command="retry", reason="no"), "retry by ada was rejected: no"),
        (
            event("CommandRejected", node=None, command="cancel", reason="the job is CANCELLED"),
            "cancel by ada was rejected: the job is CANCELLED",
        ),
        (
            event("JobResumed", node=None, run=2, count=4, children=100),
            "run 2 starts: 4 nodes and 100 children of fan-outs to run again",
        ),
        (event("StaleReportIgnored", node=None, reason="too late"), "nothing changed: too late"),
        (event("JobResumed", node=None, run=2, count=1), "run 2 starts: 1 node to run again"),
        (
            event("JobFinished", node=None, status="FAILED", error={"message": "node a failed: no"}),
            "the job finished: FAILED: node a failed: no",
        ),
    ],
)
def test_a_sentence_says_what_happened(stored, sentence):
    assert event_sentence(stored) == sentence


def test_programs_get_the_data_and_the_sentence():
    message = event_view("7", event("SignalReceived", node=None, signal="go"), lambda value: value).to_dict()
    assert message["at"] == "1970-01-01T00:00:01.500000Z"
    assert (message["data"], message["sentence"]) == ({"signal": "go"}, "signal go from ada")


def test_one_child_is_no_children():
    assert event_sentence(event("NodeExpanded", first=0, count=1, total=1)) == "fetch has 1 child"


@pytest.mark.parametrize(
    ("kind", "data", "status"),
    [
        ("NodeCompleted", {}, "success"),
        ("CheckpointSaved", {}, "success"),
        ("AttemptFailed", {}, "failure"),
        ("AttemptLost", {}, "warning"),
        ("NodeDispatched", {}, "info"),
        ("JobFinished", {"status": "COMPLETED"}, "success"),
        ("JobFinished", {"status": "FAILED"}, "failure"),
        ("ChildJobFinished", {"status": "CANCELLED"}, "warning"),
        ("OfANewerVersion", {"status": "FAILED"}, "info"),
    ],
)
def test_an_event_is_a_success_a_failure_a_warning_or_info(kind, data, status):
    assert event_status(event(kind, **data)) == status


def test_a_saved_checkpoint_has_its_name_in_the_view():
    view = event_view(
        "7",
        event("CheckpointSaved", "tile", 2, checkpoint_name="half", after_seconds=1.5, omitted=3),
        lambda value: value,
    )
    assert view.checkpoint_name == "half"
    assert view.sentence == "tile: attempt 2 saved checkpoint half after 1.5 s, after 3 others"
