"""Cancel, approve, reject, signal, retry: preconditions, results, and the wait for the effect."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.commands import sending
from dagmaster.application.commands.control import (
    approve_node,
    cancel_job,
    cancel_node,
    cancel_nodes,
    reject_node,
    retry_node,
    retry_nodes,
    send_signal,
)
from dagmaster.application.job_watch import watch_job
from dagmaster.application.queries.events_and_logs import list_events
from dagmaster.application.queries.nodes import node_detail
from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.errors import (
    ApprovalNotPending,
    ApproverNotAllowed,
    CommandInvalid,
    DagmasterError,
    JobFinished,
    JobNotFound,
    NodeNotCancellable,
    NodeNotFound,
    NodeNotRetriable,
    SignalNotExpected,
)
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.records.nodes import NodeRecord
from dagmaster.sdk.handler_registry import Registry
from tests.unit.application.commands.doubles import Reads, an_app, an_event, processed
from tests.unit.application.memory_application import finished, served_application
from tests.unit.application.world import ASKED, DONE, SECRET, a_record, run

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

FAILED = NodeRecord(node_id="fetch", status=NodeStatus.FAILED, job_id="7", attempt=3)


def reads(*nodes: NodeRecord, **job: Any) -> Reads:
    return Reads(records=[a_record(**job)], node_records=list(nodes))


# ── The effect ──


def test_a_command_returns_the_event_that_its_owner_writes():
    store = reads(ASKED)
    processed(store, an_event(10, EventType.APPROVED, "release", comment="fine"))
    app, client = an_app(store)
    result = run(approve_node(app, "7", "release", sent_by="ada", comment="fine"))
    assert client.sent == [("7", CommandKind.APPROVE, {"node": "release", "comment": "fine"}, "ada")]
    assert (result.accepted, result.is_done, result.seq, result.event.type) == (True, True, 10, "Approved")
    assert result.sentence == "ada approved release: fine"
    document = result.to_dict()
    assert (document["job_id"], document["command"], document["node_id"]) == ("7", "approve", "release")
    assert document["event"]["seq"] == document["seq"] == 10


def test_the_effect_is_found_by_notification_and_not_by_polling():
    store = reads(ASKED)
    processed(store, an_event(10, EventType.REJECTED, "release"))
    app, _ = an_app(store)
    result = run(reject_node(app, "7", "release", sent_by="ada", wait_seconds=60.0))
    assert result.is_done
    assert store.timeouts == [sending.SAFETY_SECONDS]
    assert sending.SAFETY_SECONDS >= 10 * sending.POLL_SECONDS


def test_a_lost_notification_delays_a_command_and_does_not_stop_it(monkeypatch):
    monkeypatch.setattr(sending, "SAFETY_SECONDS", 0.01)
    result, reads_of_events, _ = _cancel_without_notifications(reads())
    assert (result.is_done, reads_of_events) == (True, 4)


def test_where_no_notifications_arrive_the_effect_is_found_by_polling(monkeypatch):
    monkeypatch.setattr(sending, "POLL_SECONDS", 0.01)
    store = reads()
    store.has_notifications = False
    result, reads_of_events, timeouts = _cancel_without_notifications(store)
    assert (result.is_done, reads_of_events, set(timeouts)) == (True, 4, {0.01})


def _cancel_without_notifications(store: Reads) -> tuple[Any, int, list[float]]:
    """Cancel a job whose owner answers after three reads; return the result, the reads and the waits between them."""
    app, _ = an_app(store)
    seen = 0

    async def events(*_arguments: Any, **_options: Any) -> Any:
        nonlocal seen
        seen += 1
        return [an_event(10, EventType.CANCEL_REQUESTED)] if seen == 4 else []

    store.events = events  # type: ignore[method-assign]
    return run(cancel_job(app, "7", sent_by="ada", wait_seconds=60.0)), seen, store.timeouts


def test_a_rejection_by_the_owner_is_not_accepted():
    store = reads(ASKED)
    processed(store, an_event(10, EventType.COMMAND_REJECTED, None, command="approve", reason="too late"))
    app, _ = an_app(store)
    result = run(approve_node(app, "7", "release", sent_by="ada"))
    assert (result.accepted, result.is_done) == (False, True)
    assert "too late" in result.sentence


def test_events_about_other_nodes_commands_and_reports_are_no_answer(monkeypatch):
    monkeypatch.setattr(sending, "SAFETY_SECONDS", 0.001)
    store = reads(ASKED)
    store.stored_events += [
        an_event(9, EventType.APPROVED, "release"),  # before the command was sent
        an_event(10, EventType.APPROVED, "other"),
        an_event(11, EventType.COMMAND_REJECTED, None, command="cancel", reason="no"),
        replace(an_event(12, EventType.STALE_REPORT_IGNORED, "release"), attempt=1),
    ]
    app, _ = an_app(store)
    result = run(approve_node(app, "7", "release", sent_by="ada", wait_seconds=0.02))
    assert (result.accepted, result.is_done, result.event) == (True, False, None)
    assert "not processed yet" in result.sentence


def test_the_event_of_another_command_is_no_answer_even_of_the_same_kind_and_sender():
    store = reads()
    processed(
        store,
        an_event(10, EventType.CANCEL_REQUESTED, command_id="99"),
        an_event(11, EventType.COMMAND_REJECTED, command="cancel", command_id="1", reason="it is ending"),
    )
    app, _ = an_app(store)
    result = run(cancel_job(app, "7", sent_by="ada"))
    assert (result.command_id, result.accepted, result.seq) == ("1", False, 11)


def test_an_event_without_an_id_answers_only_the_command_of_its_sender():
    store = reads()
    processed(store, replace(an_event(10, EventType.CANCEL_REQUESTED), by="eve"))
    app, _ = an_app(store)
    result = run(cancel_job(app, "7", sent_by="ada"))
    assert (result.is_done, result.event) == (True, None)


def test_a_command_is_pending_behind_many_others():
    store = reads()
    app, client = an_app(store)
    for _ in range(30):
        run(client.send("7", CommandKind.SIGNAL, {}, "eve"))
    result = run(cancel_job(app, "7", sent_by="ada", wait_seconds=0.01))
    assert (result.accepted, result.is_done) == (True, False)


def test_a_command_that_changed_nothing_does_not_wait_to_the_end():
    store = reads()
    processed(store)
    app, _ = an_app(store)
    result = run(cancel_job(app, "7", sent_by="ada"))
    assert (result.accepted, result.is_done, result.event) == (True, True, None)
    # It was woken once, and waited for no more.
    assert len(store.timeouts) == 1


def test_without_an_orchestrator_a_command_is_stored_and_not_waited_for():
    store = reads()
    store.orchestrators = 0
    app, client = an_app(store)
    result = run(cancel_job(app, "7", sent_by="ada"))
    assert (result.accepted, result.is_done, store.timeouts, len(client.sent)) == (True, False, [], 1)
    assert "no orchestrator is alive" in result.sentence


def test_a_command_need_not_wait():
    store = reads()
    app, client = an_app(store)
    result = run(cancel_job(app, "7", sent_by="ada", wait_seconds=0))
    assert (result.accepted, result.is_done, store.timeouts, len(client.sent)) == (True, False, [], 1)


def test_a_secret_in_an_event_is_redacted():
    store = reads(ASKED)
    processed(store, an_event(10, EventType.APPROVED, "release", comment=f"token is {SECRET}"))
    app, _ = an_app(store)
    result = run(approve_node(app, "7", "release", sent_by="ada"))
    assert SECRET not in str(result.to_dict())
    assert "***" in result.sentence


def test_a_signal_carries_its_payload():
    store = reads()
    processed(store, an_event(10, EventType.SIGNAL_RECEIVED, None, signal="go"))
    app, client = an_app(store)
    assert run(send_signal(app, "last", "go", {"rows": 3}, sent_by="ada")).is_done
    assert client.sent[0][1:3] == (CommandKind.SIGNAL, {"name": "go", "payload": {"rows": 3}})


@pytest.mark.parametrize(
    "node",
    [
        FAILED,
        replace(FAILED, status=NodeStatus.CANCELLED),
        replace(FAILED, status=NodeStatus.READY, wake_at=200.0),
    ],
    ids=["failed", "cancelled", "waits for its next attempt"],
)
def test_a_node_is_retried(node: NodeRecord):
    store = reads(node, status=JobStatus.FAILED, finished_at=110.0)
    processed(store, an_event(10, EventType.JOB_RESUMED, run=2, nodes=["fetch"]))
    app, client = an_app(store)
    assert run(retry_node(app, "7", "fetch", sent_by="ada")).is_done
    assert client.sent[0][1:3] == (CommandKind.RETRY, {"node": "fetch"})


def test_several_nodes_are_retried_by_one_command():
    store = reads(FAILED, ASKED)
    processed(store, an_event(10, EventType.JOB_RESUMED, run=2, nodes=["fetch"], count=1, skipped=1))
    app, client = an_app(store)
    result = run(retry_nodes(app, "7", ["fetch", "release", "fetch"], sent_by="ada"))
    assert client.sent[0][1:3] == (CommandKind.RETRY, {"nodes": ["fetch", "release"]})
    assert result.sentence == "run 2 starts: 1 node to run again; 1 other could not be retried"
    assert result.node_id is None


def test_a_retry_of_several_that_wait_for_their_next_attempts_is_answered_by_a_dispatch():
    waiting = replace(FAILED, status=NodeStatus.READY, wake_at=200.0)
    store = reads(waiting, ASKED)
    processed(store, an_event(10, EventType.NODE_DISPATCHED, "fetch"))
    app, _ = an_app(store)
    assert run(retry_nodes(app, "7", ["release", "fetch"], sent_by="ada")).seq == 10


def test_nodes_are_cancelled_and_the_finished_ones_skipped():
    store = reads(DONE, ASKED)
    # Of a group, the event names a member.
    processed(
        store,
        an_event(
            10, EventType.NODE_CANCEL_REQUESTED, "inner", command_id="1", nodes=["inner"], count=1, skipped=1
        ),
    )
    app, client = an_app(store)
    result = run(cancel_nodes(app, "7", ["fetch", "release"], sent_by="ada"))
    assert client.sent == [("7", CommandKind.CANCEL_NODES, {"nodes": ["fetch", "release"]}, "ada")]
    assert result.sentence == "ada requested cancellation of inner; 1 other could not be cancelled"


# ── Preconditions ──


STOPPING = replace(
    FAILED,
    status=NodeStatus.RUNNING,
    stopped=True,
    error={"kind": "cancelled", "message": "cancelled by bob", "by": "bob"},
)
FINISHED: dict[str, Any] = {"status": JobStatus.COMPLETED, "finished_at": 110.0}


@pytest.mark.parametrize(
    ("store", "command", "error", "text"),
    [
        (reads(), lambda app: cancel_job(app, "8", sent_by="ada"), JobNotFound, "there is no job '8'"),
        (reads(**FINISHED), lambda app: cancel_job(app, "7", sent_by="ada"), JobFinished, "it is COMPLETED"),
        (reads(**FINISHED), lambda app: send_signal(app, "7", "go", sent_by="ada"), JobFinished, "has finished"),
        (reads(), lambda app: send_signal(app, "7", "goo", sent_by="ada"), SignalNotExpected, "'go'"),
        (reads(), lambda app: approve_node(app, "7", "relase", sent_by="ada"), NodeNotFound, "Did you mean 'release'"),
        (reads(DONE), lambda app: approve_node(app, "7", "fetch", sent_by="ada"), CommandInvalid, "approvals: release"),
        (reads(), lambda app: reject_node(app, "7", "release", sent_by="ada"), ApprovalNotPending, "is PENDING"),
        (reads(ASKED), lambda app: approve_node(app, "7", "release", sent_by="bob"), ApproverNotAllowed, "are ada"),
        (reads(DONE), lambda app: retry_node(app, "7", "fetch", sent_by="ada"), NodeNotRetriable, "is COMPLETED"),
        (reads(), lambda app: retry_node(app, "7", "nosuch", sent_by="ada"), NodeNotFound, "no node 'nosuch'"),
        (reads(DONE), lambda app: cancel_node(app, "7", "fetch", sent_by="ada"), NodeNotCancellable, "is COMPLETED"),
        (
            reads(STOPPING),
            lambda app: cancel_node(app, "7", "fetch", sent_by="ada"),
            NodeNotCancellable,
            "being cancelled already",
        ),
        (reads(**FINISHED), lambda app: cancel_node(app, "7", "fetch", sent_by="ada"), JobFinished, "it is COMPLETED"),
        (reads(), lambda app: cancel_node(app, "7", "relase", sent_by="ada"), NodeNotFound, "Did you mean 'release'"),
        (
            reads(),
            lambda app: cancel_nodes(app, "7", ["fetch", "nosuch"], sent_by="ada"),
            NodeNotFound,
            "no node 'nosuch'",
        ),
        (reads(), lambda app: cancel_nodes(app, "7", [], sent_by="ada"), CommandInvalid, "1 to 1,000 nodes, not 0"),
        (
            reads(),
            lambda app: retry_nodes(app, "7", [f"t__{n}" for n in range(1_001)], sent_by="ada"),
            CommandInvalid,
            "1 to 1,000 nodes, not 1,001",
        ),
        (reads(DONE), lambda app: retry_nodes(app, "7", ["fetch"], sent_by="ada"), NodeNotRetriable, "is COMPLETED"),
        (reads(), lambda app: cancel_job(app, "7", sent_by="x" * 114), CommandInvalid, "1 to 113"),
        (reads(), lambda app: cancel_job(app, "7", sent_by=""), CommandInvalid, "1 to 113"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_sent(
    store: Reads, command: Any, error: type[DagmasterError], text: str
):
    app, client = an_app(store)
    with pytest.raises(error, match=text):
        run(command(app))
    assert client.sent == []


# ── What people write ──

GUESSED = """
workflow_id: guessed
inputs: {pin: {type: string, secret: true}}
nodes:
  receive: {type: wait, signal: go, next: ask}
  ask: {type: approval, message: "Go on with {{ nodes.receive.output.guesses }}?"}
outputs: {received: "{{ nodes.receive.output }}"}
"""


def test_what_people_write_does_not_say_whether_it_has_a_secret():
    """A payload with every PIN, of which one came back as ***, would name it."""

    async def main() -> None:
        async with served_application(Registry([])) as app:
            graph = compile_text(GUESSED).graph
            job = JobRequest(graph=graph, submitted_by="ada", inputs={"pin": "canary-7"})
            job_id = str((await submit_job(app, job)).job_id)
            guesses: list[JsonValue] = [f"canary-{digit}" for digit in range(10)]
            await send_signal(app, job_id, "go", {"guesses": guesses}, sent_by="eve")
            async for view in watch_job(app, job_id):
                if view.statuses.get("ask") is NodeStatus.WAITING:
                    break
            approved = await approve_node(app, job_id, "ask", sent_by="eve", comment=f"try {guesses}")
            finished_job = await finished(app, job_id)
            assert finished_job.result == {"received": {"guesses": guesses}}
            node = await node_detail(app, job_id, "receive")
            events = (await list_events(app, job_id)).items
            shown = json.dumps([view.to_dict() for view in (approved, node, *events)])
            assert "***" not in shown
            assert "canary-7" in approved.sentence

    asyncio.run(main())
