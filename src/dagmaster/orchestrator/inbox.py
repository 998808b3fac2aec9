"""Turn results and commands into events of the engine; reject commands that cannot be applied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.engine.events import (
    Approved,
    CancelRequested,
    ChildJobFinished,
    EngineEvent,
    Rejected,
    ResumeRequested,
    RetryRequested,
    SignalReceived,
    TaskFailed,
    TaskLost,
    TaskReleased,
    TaskSucceeded,
)
from dagmaster.engine.graph import ApprovalSpec
from dagmaster.errors import CommandRejected
from dagmaster.ports.command_kinds import CommandKind

if TYPE_CHECKING:
    from dagmaster.engine.model import Job
    from dagmaster.ports.turn_records import Command, TaskResult


def of_result(result: TaskResult) -> EngineEvent:
    """Return the event that a reported result is."""
    node, attempt = result.node_id, result.attempt
    if result.status == "COMPLETED":
        return TaskSucceeded(node, attempt, result.handler_version)
    if result.status == "FAILED":
        error: dict[str, Any] = {"kind": "error", "message": "no reason was given"}
        return TaskFailed(node, attempt, json.loads(result.error) if result.error else error, result.permanent)
    if result.status == "LOST":
        return TaskLost(node, attempt, json.loads(result.error).get("worker") if result.error else None)
    return TaskReleased(node, attempt)


def of_command(job: Job, command: Command) -> EngineEvent:
    """Return the event that a command is; raise `CommandRejected` if it cannot be applied."""
    body = command.body
    match command.kind:
        case CommandKind.CANCEL:
            return CancelRequested()
        case CommandKind.SIGNAL:
            return SignalReceived(str(body.get("name", "")), body.get("payload"))
        case CommandKind.APPROVE | CommandKind.REJECT:
            return _answer(job, command)
        case CommandKind.RETRY:
            return RetryRequested(_known(job, body.get("node")))
        case CommandKind.RESUME:
            return ResumeRequested(tuple(_known(job, node) for node in body.get("nodes", ())))
        case CommandKind.CHILD_FINISHED:
            return ChildJobFinished(
                body["node"], body["attempt"], body["status"], body.get("result"), body.get("error")
            )
    raise CommandRejected(f"this version does not know the command {command.kind!r}")


def _answer(job: Job, command: Command) -> EngineEvent:
    node_id = _known(job, command.body.get("node"))
    spec = job.nodes[node_id].spec
    if not isinstance(spec, ApprovalSpec):
        raise CommandRejected(f"node {node_id} is not an approval")
    if spec.approvers and command.sent_by not in spec.approvers:
        allowed = ", ".join(spec.approvers)
        raise CommandRejected(
            f"{command.sent_by or 'an unknown sender'} may not answer {node_id}: its approvers are {allowed}"
        )
    answer = Approved if command.kind == CommandKind.APPROVE else Rejected
    return answer(node_id, command.sent_by, rfc3339(command.at), str(command.body.get("comment", "")))


def _known(job: Job, node_id: Any) -> str:
    if not isinstance(node_id, str) or node_id not in job.nodes:
        raise CommandRejected(f"the job has no node {node_id!r}")
    return node_id
