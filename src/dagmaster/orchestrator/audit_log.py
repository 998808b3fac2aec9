"""What a turn tells: happenings and decisions become events, in the order in which they came."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from dagmaster.engine import decisions as d
from dagmaster.engine import events as h
from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.engine.graph import EndSpec, StartSpec, WaitSpec
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.command_kinds import CommandKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dagmaster.engine.decisions import Decision
    from dagmaster.engine.events import EngineEvent
    from dagmaster.engine.model import Job
    from dagmaster.orchestrator.turn import TurnResult


class _Known(NamedTuple):
    """What is told with decisions: ids of child jobs and what was asked, by node; and what was not started at all."""

    children: Mapping[str, str]
    asked: Mapping[str, str]
    reused: Collection[str]


def events_of(job: Job, writes: TurnResult, children: Mapping[str, str], people: Mapping[int, str]) -> list[AuditEvent]:
    """Tell a turn. `children`: ids of the jobs that were started, by node; `people`: who sent the n-th happening."""
    told: list[AuditEvent] = []
    decided, starts = writes.decisions, [place for place, _ in writes.happened]
    known = _Known(children, {request.node: request.message for request in writes.approvals}, writes.reused)
    for place in range(starts[0] if starts else len(decided)):
        _tell(told, job, decided[place], known)
    for number, (start, happening) in enumerate(writes.happened):
        end = starts[number + 1] if number + 1 < len(starts) else len(decided)
        # What is ignored is ignored at once, and nothing else comes of it.
        if start < end and type(decided[start]) is d.Ignore:
            told.append(_ignored(happening, decided[start], people.get(number)))
        elif type(happening) not in _QUIET:
            told += _happened(happening, decided[start:end], people.get(number))
        before = len(told)
        for place in range(start, end):
            _tell(told, job, decided[place], known)
        if isinstance(happening, h.ResumeRequested | h.RetryRequested):
            for event in told[before:]:
                if event.type is EventType.JOB_RESUMED:
                    event.by = people.get(number)
    told += _signal_waits(writes)
    return told


# Their decisions say it all.
_QUIET = frozenset({h.TaskSucceeded, h.ResultReused, h.TimerFired, h.ValuesLoaded, h.ResolutionFailed})
_COMMANDS = {
    h.CancelRequested: CommandKind.CANCEL,
    h.Approved: CommandKind.APPROVE,
    h.Rejected: CommandKind.REJECT,
    h.SignalReceived: CommandKind.SIGNAL,
    h.RetryRequested: CommandKind.RETRY,
    h.ResumeRequested: CommandKind.RESUME,
}


def _ignored(happening: EngineEvent, decision: Decision, by: str | None) -> AuditEvent:
    command = _COMMANDS.get(type(happening))
    kind = EventType.STALE_REPORT_IGNORED if command is None else EventType.COMMAND_REJECTED
    data = _json({"command": command, "reason": getattr(decision, "reason", "")})
    return AuditEvent(kind, getattr(happening, "node", None), getattr(happening, "attempt", None), data, by)


def _happened(happening: EngineEvent, decided: list[Decision], by: str | None) -> Iterable[AuditEvent]:
    match happening:
        case h.JobStarted():
            yield AuditEvent(EventType.JOB_STARTED)
        case h.TaskFailed(node, attempt, error) | h.DispatchRejected(node, attempt, error):
            data = {"error": error, **_retry(node, decided)}
            yield AuditEvent(EventType.ATTEMPT_FAILED, node, attempt, _json(data))
        case h.TaskLost(node, attempt, worker):
            yield AuditEvent(EventType.ATTEMPT_LOST, node, attempt, _json({"worker": worker, **_retry(node, decided)}))
        case h.TaskReleased(node, attempt):
            is_off = any(isinstance(each, d.Cancel) and each.node == node for each in decided)
            yield AuditEvent(EventType.ATTEMPT_RELEASED, node, attempt, _json({"cancelled": True}) if is_off else None)
        case h.ChildJobFinished(node, attempt, status):
            yield AuditEvent(EventType.CHILD_JOB_FINISHED, node, attempt, _json({"status": status}))
        case h.Approved(node, who, _, comment):
            yield AuditEvent(EventType.APPROVED, node, data=_json({"comment": comment}), by=who)
        case h.Rejected(node, who, _, comment):
            yield AuditEvent(EventType.REJECTED, node, data=_json({"comment": comment}), by=who)
        case h.SignalReceived(name):
            yield AuditEvent(EventType.SIGNAL_RECEIVED, data=_json({"signal": name}), by=by)
        case h.CancelRequested():
            yield AuditEvent(EventType.CANCEL_REQUESTED, by=by)
        case h.NodesAdded(specs):
            yield AuditEvent(EventType.NODES_ADDED, data=_json({"nodes": [spec.id for spec in specs]}), by=by)
        case _:
            return


def _signal_waits(writes: TurnResult) -> Iterable[AuditEvent]:
    """A wait without an end has no timer, so no decision tells of it."""
    for node in writes.changed:
        if isinstance(node.spec, WaitSpec) and node.spec.signal and node.status is NodeStatus.WAITING:
            yield AuditEvent(EventType.NODE_WAITING, node.id, data=_json({"signal": node.spec.signal}))


def _retry(node: str, decided: Iterable[Decision]) -> dict[str, Any]:
    at = next((each.at for each in decided if isinstance(each, d.WaitUntil) and each.node == node), None)
    return {} if at is None else {"retry_at": rfc3339(at)}


def _tell(told: list[AuditEvent], job: Job, decision: Decision, known: _Known) -> None:
    kind = type(decision)
    if kind is d.Complete:
        node = job.nodes[decision.node]  # type: ignore[union-attr, index]
        data = None if node.branch is None else _json({"branch": node.branch})
        reused, attempt = decision.reused, node.attempt or None  # type: ignore[union-attr]
        if reused is not None:
            # No attempt of this job made it, the last one that was told least of all: that may be lost.
            attempt = None
            data = _json({"reused_from": {"job_id": reused.job_id, "node": reused.node, "attempt": reused.attempt}})
        told.append(AuditEvent(EventType.NODE_COMPLETED, node.id, attempt, data))
    elif kind is d.Dispatch:
        if decision.node not in known.reused:  # type: ignore[union-attr, operator]
            told.append(AuditEvent(EventType.NODE_DISPATCHED, decision.node, decision.attempt))  # type: ignore[union-attr]
    elif kind is not d.Need and kind is not d.Ignore:
        event = _rarer(job, decision, known)
        if event is not None:
            told.append(event)


def _rarer(job: Job, decision: Decision, known: _Known) -> AuditEvent | None:  # noqa: PLR0911 - one for each kind
    match decision:
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
        case d.StartChildJob(node, attempt):
            # One that was refused is told as a failed attempt.
            data = _json({"job_id": known.children.get(node)})
            return AuditEvent(EventType.CHILD_JOB_STARTED, node, attempt, data) if node in known.children else None
        case d.RequestApproval(node) if node not in known.reused:
            return AuditEvent(EventType.APPROVAL_REQUESTED, node, data=_json({"message": known.asked.get(node, "")}))
        case d.WaitUntil(node, at) if node is not None and isinstance(job.nodes[node].spec, WaitSpec):
            if job.nodes[node].status is NodeStatus.WAITING:
                return AuditEvent(EventType.NODE_WAITING, node, data=_json({"until": rfc3339(at)}))
        case d.Reopen(run, nodes):
            return AuditEvent(EventType.JOB_RESUMED, data=_json(_reopened(job, run, nodes)))
        case d.FinishJob(status, _, error):
            return AuditEvent(EventType.JOB_FINISHED, data=_json({"status": status.value, "error": error}))
        case _:
            return None
    return None


def _reopened(job: Job, run: int, nodes: Sequence[str]) -> dict[str, Any]:
    """What runs again: the nodes that people named, and of fan-outs how many children."""
    opened = [job.nodes[node] for node in nodes if node in job.nodes]
    count = sum(node.parent is None and not isinstance(node.spec, StartSpec | EndSpec) for node in opened)
    children = sum(node.parent is not None for node in opened)
    return {"run": run, "nodes": list(nodes[:100]), "count": count, "children": children or None}


def _json(data: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in data.items() if value is not None})
