"""The audit events of a turn: engine events and decisions, in their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.engine import decisions as d
from dagmaster.engine import events as ev
from dagmaster.engine.graph import ConditionalSpec, EndSpec, GroupSpec, StartSpec, WaitSpec
from dagmaster.engine.groups import is_group_start
from dagmaster.engine.status import NodeStatus, isolation_after
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dagmaster.engine.decisions import Decision
    from dagmaster.engine.events import EngineEvent
    from dagmaster.engine.model import Job, Node
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.orchestrator.inbox import PendingEvents
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.turn_records import Command, TaskResult


MIN_TRAIL_SECONDS: Final = 1.0
"""An attempt of at least this duration has a start event."""


class _Context(NamedTuple):
    """Details of decisions: ids of child jobs and approval messages by node, and nodes that reuse results."""

    children: Mapping[str, str]
    messages: Mapping[str, str]
    reused: Collection[str]


def to_audit_events(
    job: Job, result: TurnResult, children: Mapping[str, str], pending: PendingEvents
) -> list[AuditEvent]:
    """Return the audit events of a turn that applied what was pending.

    `children`: ids of new child jobs by node.
    """
    commands, trails = pending.command_events, pending.trails
    audit_events: list[AuditEvent] = []
    decisions, starts = result.decisions, [index for index, _ in result.events]
    context = _Context(
        children, {request.node: request.message for request in result.approvals}, result.reused
    )
    for index in range(starts[0] if starts else len(decisions)):
        _append(audit_events, job, decisions[index], context)
    for number, (start, event) in enumerate(result.events):
        end = starts[number + 1] if number + 1 < len(starts) else len(decisions)
        before = len(audit_events)
        # An ignored event has exactly one decision.
        if start < end and type(decisions[start]) is d.Ignore:
            audit_events.append(_ignored(event, decisions[start]))
        else:
            audit_events += trails.get(number, ())
            if type(event) not in _FULLY_DECIDED:
                audit_events += _of_event(event, decisions[start:end])
        for index in range(start, end):
            _append(audit_events, job, decisions[index], context)
        if number in commands:
            _attribute(audit_events[before:], commands[number])
    audit_events += _signal_waits(result)
    return audit_events


def _attribute(audit_events: Iterable[AuditEvent], command: Command) -> None:
    """Record in the events about a command who sent it, and its id: its sender waits for that."""
    for audit_event in audit_events:
        if audit_event.type in _COMMAND_EFFECTS:
            audit_event.by = command.sent_by
            data = {} if audit_event.data is None else json.loads(audit_event.data)
            audit_event.data = _json({**data, "command_id": str(command.id)})


_COMMAND_EFFECTS = frozenset(
    {
        EventType.CANCEL_REQUESTED,
        EventType.NODE_CANCEL_REQUESTED,
        EventType.APPROVED,
        EventType.REJECTED,
        EventType.SIGNAL_RECEIVED,
        EventType.JOB_RESUMED,
        EventType.NODES_ADDED,
        EventType.COMMAND_REJECTED,
    }
)
# The decisions of these events say everything.
_FULLY_DECIDED = frozenset(
    {
        ev.TaskSucceeded,
        ev.NodesAdded,
        ev.BacklogDue,
        ev.ResultReused,
        ev.TimerFired,
        ev.ValuesLoaded,
        ev.ResolutionFailed,
        ev.NodeCancelRequested,
        ev.RetryRequested,
    }
)
_COMMANDS = {
    ev.CancelRequested: CommandKind.CANCEL,
    ev.NodeCancelRequested: CommandKind.CANCEL_NODES,
    ev.Approved: CommandKind.APPROVE,
    ev.Rejected: CommandKind.REJECT,
    ev.SignalReceived: CommandKind.SIGNAL,
    ev.RetryRequested: CommandKind.RETRY,
    ev.ResumeRequested: CommandKind.RESUME,
    ev.NodesAdded: CommandKind.ADD_NODES,
}


def attempt_trail(result: TaskResult) -> list[AuditEvent]:
    """Return the events of an attempt before its end: its start and its checkpoints.

    Of a short attempt the end says enough: a start event for each of 10,000 no-op tasks took 13 % more CPU
    (ADR 0020).
    """
    began, node, attempt = result.started_at, result.node_id, result.attempt
    if result.checkpoints is None and (began is None or result.reported_at - began < MIN_TRAIL_SECONDS):
        return []
    # Of an attempt whose worker died at once, only its checkpoints say that it had started.
    started_at = None if began is None else format_rfc3339(began)
    events = [AuditEvent(EventType.ATTEMPT_STARTED, node, attempt, _json({"started_at": started_at}))]
    progress = json.loads(result.checkpoints or "{}")
    saved = progress.get("checkpoints", [])
    omitted = progress.get("checkpoint_count", 0) - len(saved) or None
    for name, seconds in saved:
        data = {"checkpoint_name": name, "after_seconds": seconds, "omitted": omitted}
        events.append(AuditEvent(EventType.CHECKPOINT_SAVED, node, attempt, _json(data)))
        omitted = None
    return events


def _ignored(event: EngineEvent, decision: Decision) -> AuditEvent:
    command = _COMMANDS.get(type(event))
    kind = EventType.STALE_REPORT_IGNORED if command is None else EventType.COMMAND_REJECTED
    data = _json({"command": command, "reason": getattr(decision, "reason", "")})
    return AuditEvent(kind, _node_of(event), getattr(event, "attempt", None), data)


def _node_of(event: EngineEvent) -> str | None:
    """Return the node that an event is about; None for the job, and for several nodes."""
    if isinstance(event, ev.RetryRequested | ev.NodeCancelRequested):
        return event.nodes[0] if len(event.nodes) == 1 else None
    return getattr(event, "node", None)


def _of_event(event: EngineEvent, decisions: list[Decision]) -> Iterable[AuditEvent]:
    match event:
        case ev.JobStarted():
            yield AuditEvent(EventType.JOB_STARTED)
        case ev.TaskFailed(node, attempt, error) | ev.DispatchRejected(node, attempt, error):
            data = {"error": error, **_retry(node, decisions)}
            yield AuditEvent(EventType.ATTEMPT_FAILED, node, attempt, _json(data))
        case ev.TaskLost(node, attempt, worker, alone, reason):
            is_charged = any(isinstance(decision, d.ChargeLoss) for decision in decisions)
            data = {"worker": worker, "alone": alone, "charged": is_charged}
            if reason is not None:
                data["reason"] = reason
            yield AuditEvent(EventType.ATTEMPT_LOST, node, attempt, _json(data))
        case ev.TaskReleased(node, attempt):
            text = _json({"cancelled": True}) if _ends(node, decisions) else None
            yield AuditEvent(EventType.ATTEMPT_RELEASED, node, attempt, text)
        case ev.ChildJobFinished(node, attempt, status):
            yield AuditEvent(EventType.CHILD_JOB_FINISHED, node, attempt, _json({"status": status}))
        case ev.Approved(node, by, _, comment):
            yield AuditEvent(EventType.APPROVED, node, data=_json({"comment": comment}), by=by)
        case ev.Rejected(node, by, _, comment):
            yield AuditEvent(EventType.REJECTED, node, data=_json({"comment": comment}), by=by)
        case ev.SignalReceived(name):
            yield AuditEvent(EventType.SIGNAL_RECEIVED, data=_json({"signal": name}))
        case ev.CancelRequested(comment):
            text = _json({"comment": comment}) if comment else None
            yield AuditEvent(EventType.CANCEL_REQUESTED, data=text)
        case _:
            return


def _ends(node: str, decisions: Iterable[Decision]) -> bool:
    """Return whether decisions end a node instead of trying it again."""
    return any(isinstance(decision, d.Cancel | d.Fail) and decision.node == node for decision in decisions)


def _signal_waits(result: TurnResult) -> Iterable[AuditEvent]:
    """Yield the waits for a signal: a wait without a timeout has no timer, so no decision records it."""
    for node in result.changed:
        if isinstance(node.spec, WaitSpec) and node.spec.signal and _is_waiting(node):
            yield AuditEvent(EventType.NODE_WAITING, node.id, data=_json({"signal": node.spec.signal}))


def _retry(node: str, decisions: Iterable[Decision]) -> JsonObject:
    waits = (
        decision for decision in decisions if isinstance(decision, d.WaitUntil) and decision.node == node
    )
    at = next((wait.at for wait in waits), None)
    return {} if at is None else {"retry_at": format_rfc3339(at)}


def _append(audit_events: list[AuditEvent], job: Job, decision: Decision, context: _Context) -> None:
    kind = type(decision)
    if kind is d.Complete:
        node = job.nodes[decision.node]  # type: ignore[union-attr, index]
        # What the node is now may be of a later run: the same turn may have reopened it.
        is_branching = type(node.spec) is ConditionalSpec
        data = _json({"branch": decision.output["branch"]}) if is_branching else None  # type: ignore[union-attr]
        reused, attempt = decision.reused, decision.attempt or None  # type: ignore[union-attr]
        if reused is not None:
            # No attempt of this job produced it; the last dispatched one may even be lost.
            attempt = None
            data = _json(
                {"reused_from": {"job_id": reused.job_id, "node": reused.node, "attempt": reused.attempt}}
            )
        audit_events.append(AuditEvent(EventType.NODE_COMPLETED, node.id, attempt, data))
    elif kind is d.Dispatch:
        if decision.node not in context.reused:  # type: ignore[union-attr, operator]
            losses = job.nodes[decision.node].shared_losses  # type: ignore[union-attr, index]
            data = _json({"isolation": isolation_after(losses).name.lower()}) if losses else None
            audit_events.append(AuditEvent(EventType.NODE_DISPATCHED, decision.node, decision.attempt, data))  # type: ignore[union-attr]
    elif kind is not d.Need and kind is not d.Ignore:
        is_cancel = kind is d.AcceptCancel
        audit_event = _cancel_requested(decision) if is_cancel else _of_decision(job, decision, context)  # type: ignore[arg-type]
        if audit_event is not None:
            audit_events.append(audit_event)


def _of_decision(  # noqa: PLR0911 - one for each kind
    job: Job, decision: Decision, context: _Context
) -> AuditEvent | None:
    match decision:
        case d.RejectResult(node, attempt, error):
            return AuditEvent(EventType.ATTEMPT_FAILED, node, attempt, _json({"error": error}))
        case d.Fail(node, error):
            return AuditEvent(EventType.NODE_FAILED, node, data=_json({"error": error}))
        case d.Skip(node, reason):
            return AuditEvent(EventType.NODE_SKIPPED, node, data=_json({"reason": reason.value}))
        case d.Cancel(node):
            return AuditEvent(EventType.NODE_CANCELLED, node)
        case d.Expand(node, first, count, total):
            return AuditEvent(
                EventType.NODE_EXPANDED, node, data=_json({"first": first, "count": count, "total": total})
            )
        case d.AddNodes(_, nodes):
            return AuditEvent(EventType.NODES_ADDED, data=_json(_added_data(nodes)))
        case d.StartChildJob(node, attempt) if node in context.children:
            # A rejected one is recorded as a failed attempt.
            data = _json({"job_id": context.children[node]})
            return AuditEvent(EventType.CHILD_JOB_STARTED, node, attempt, data)
        case d.RequestApproval(node) if node not in context.reused:
            data = _json({"message": context.messages.get(node, "")})
            return AuditEvent(EventType.APPROVAL_REQUESTED, node, data=data)
        case d.WaitUntil(str(node), at) if _is_waiting(job.nodes[node]):
            return AuditEvent(EventType.NODE_WAITING, node, data=_json({"until": format_rfc3339(at)}))
        case d.Reopen():
            return AuditEvent(EventType.JOB_RESUMED, data=_json(_reopened_data(job, decision)))
        case d.FinishJob(status, _, error):
            return AuditEvent(EventType.JOB_FINISHED, data=_json({"status": status.value, "error": error}))
        case _:
            return None


def _is_waiting(node: Node) -> bool:
    """Return whether this is a node of type `wait` that waits. Other timers are retries and timeouts."""
    return isinstance(node.spec, WaitSpec) and node.status is NodeStatus.WAITING


def _added_data(nodes: Iterable[str]) -> JsonObject:
    """Return the data of added nodes: the first 100, and how many they are."""
    written: list[JsonValue] = [node for node in nodes if not is_group_start(node)]
    return {"nodes": written[:100], "count": len(written)}


def _cancel_requested(accepted: d.AcceptCancel) -> AuditEvent:
    """Return the event about a cancel of nodes.

    One node is the node of the event; of more, the first 100 are named.
    """
    nodes = accepted.nodes
    data: JsonObject = {"nodes": list(nodes[:100]), "count": len(nodes), "skipped": accepted.skipped or None}
    node = nodes[0] if len(nodes) == 1 else None
    return AuditEvent(EventType.NODE_CANCEL_REQUESTED, node, data=_json(data))


def _reopened_data(job: Job, reopen: d.Reopen) -> JsonObject:
    """Return the data of a resume: the reopened nodes, and the counts of nodes and children of fan-outs."""
    opened = [job.nodes[node] for node in reopen.nodes if node in job.nodes and not is_group_start(node)]
    count = sum(
        node.parent is None and not isinstance(node.spec, StartSpec | EndSpec | GroupSpec) for node in opened
    )
    children = sum(node.parent is not None for node in opened)
    nodes: list[JsonValue] = [node.id for node in opened[:100]]
    skipped = reopen.skipped or None
    return {
        "run": reopen.run,
        "nodes": nodes,
        "count": count,
        "children": children or None,
        "skipped": skipped,
    }


def _json(data: JsonObject) -> str:
    return json.dumps({key: value for key, value in data.items() if value is not None})
