"""Each event has a sentence, whatever its data is."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.cli.commands.jobs_events import colour_of, event_document, event_line, sentence_of
from dagmaster.ports.audit_events import EventType, StoredEvent


def event(
    kind: str, node: str | None = "fetch", attempt: int | None = None, by: str = "ada", **data: Any
) -> StoredEvent:
    return StoredEvent(seq=3, type=kind, at=1.5, by=by, node=node, attempt=attempt, data=data)


@pytest.mark.parametrize("kind", list(EventType))
def test_every_event_has_a_sentence_also_without_data(kind):
    said = sentence_of(event(kind))
    assert said
    assert kind.value not in said
    assert event_line(event(kind))
    colour_of(event(kind))


def test_an_event_of_a_newer_version_is_told_by_its_name():
    assert sentence_of(event("NodePraised")) == "fetch: NodePraised"
    assert sentence_of(event("JobPraised", node=None)) == "the job: JobPraised"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (event("NodeDispatched", attempt=1), "fetch waits for a worker"),
        (event("NodeDispatched", attempt=2), "fetch waits for a worker, attempt 2"),
        (event("NodeCompleted", branch="large"), "fetch completed and took branch large"),
        (
            event("AttemptFailed", attempt=1, error={"message": "no"}, retry_at="2026-01-31T10:11:12.5Z"),
            "fetch: attempt 1 failed: no; tried again at 10:11:12",
        ),
        (event("AttemptReleased", attempt=1), "fetch: attempt 1 came back unfinished"),
        (event("AttemptReleased", attempt=1, cancelled=True), "fetch: attempt 1 was called off"),
        (
            event("AttemptFailed", attempt=1, error={"kind": "cancelled", "message": "the task was asked to stop"}),
            "fetch: attempt 1 stopped, as it was asked to",
        ),
        (event("AttemptLost", attempt=1, worker="h:7"), "fetch: worker h:7 died with attempt 1"),
        (event("AttemptLost", attempt=1), "fetch: the worker of attempt 1 died"),
        (event("JobClaimed", by="orchestrator 2"), "owned by orchestrator 2"),
        (event("JobClaimed", by="orchestrator 2", where="h:9"), "owned by orchestrator h:9"),
        (
            event("JobClaimed", by="orchestrator 2", after="died", before="h:1"),
            "owned by orchestrator 2: the one before, h:1, died",
        ),
        (event("NodeExpanded", first=0, count=5, total=5), "fetch has 5 children"),
        (event("NodeExpanded", first=5000, count=5000, total=20000), "fetch has children 5,000 to 9,999 of 20,000"),
        (event("Approved", comment="fine"), "ada approved fetch: fine"),
        (event("Rejected", comment=""), "ada rejected fetch"),
        (event("CommandRejected", node=None, command="retry", reason="no"), "retry of ada was refused: no"),
        (
            event("CommandRejected", node=None, command="cancel", reason="the job is CANCELLED"),
            "ada asked for the job to stop, once more: the job is CANCELLED",
        ),
        (
            event("JobResumed", node=None, run=2, count=4, children=100),
            "run 2 begins: 4 nodes and 100 children of fan-outs run again",
        ),
        (event("StaleReportIgnored", node=None, reason="too late"), "nothing was changed: too late"),
        (event("JobResumed", node=None, run=2, count=1), "run 2 begins: 1 node run again"),
        (
            event("JobFinished", node=None, status="FAILED", error={"message": "node a failed: no"}),
            "the job is over: FAILED: node a failed: no",
        ),
    ],
)
def test_a_sentence_says_what_happened(told, said):
    assert sentence_of(told) == said


def test_programs_get_the_data_and_the_sentence():
    said = event_document(event("SignalReceived", node=None, signal="go"))
    assert said["at"] == "1970-01-01T00:00:01.500000Z"
    assert (said["data"], said["sentence"]) == ({"signal": "go"}, "signal go from ada")


def test_one_child_is_no_children():
    assert sentence_of(event("NodeExpanded", first=0, count=1, total=1)) == "fetch has 1 child"
