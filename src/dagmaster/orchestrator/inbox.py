"""Turn results and commands into events of the engine; reject commands that cannot be applied."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.approvals_and_waits import forbidden_answer, may_answer
from dagmaster.engine.decisions import ChargeLoss, RejectResult
from dagmaster.engine.events import (
    Approved,
    CancelRequested,
    ChildJobFinished,
    EngineEvent,
    JobStarted,
    NodeCancelRequested,
    NodesAdded,
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
from dagmaster.engine.growth import NodeBatch
from dagmaster.engine.status import AttemptStatus, JobStatus
from dagmaster.errors import CommandRejected
from dagmaster.orchestrator.audit_log import attempt_trail
from dagmaster.ports.added_nodes import ADDED_AT_ONCE
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.telemetry.logs import MAX_IDS
from dagmaster.text_format import format_list, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from dagmaster.engine.decisions import Decision
    from dagmaster.engine.model import Job
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.orchestrator.owned_job import OwnedJob
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.turn_records import Command, TaskResult

_LOGGER = logging.getLogger("dagmaster.orchestrator")
_UNREPORTED: Final = (AttemptStatus.LOST, AttemptStatus.RELEASED)


class PendingEvents:
    """The events of one job since its last turn, with the results and commands that the turn consumes."""

    __slots__ = (
        "audit_events",
        "batches",
        "command_events",
        "commands",
        "events",
        "lost",
        "needs_recovery",
        "notified",
        "reported",
        "results",
        "results_with_nodes",
        "started",
        "trails",
    )

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self.reported: dict[tuple[str, int], JsonText] = {}
        self.started: dict[str, float] = {}
        self.lost: list[TaskLost] = []
        self.results: list[int] = []
        # The ids of those that add nodes, by node and attempt.
        self.results_with_nodes: dict[tuple[str, int], int] = {}
        # Results that came with a notification and were not read from the store.
        self.notified: list[TaskResult] = []
        self.commands: list[int] = []
        # The command of the n-th event.
        self.command_events: dict[int, Command] = {}
        # What preceded the result that the n-th event is about.
        self.trails: dict[int, list[AuditEvent]] = {}
        self.audit_events: list[AuditEvent] = []
        # The numbers of the batches of nodes that the n-th event adds.
        self.batches: dict[int, list[int]] = {}
        # The job was just loaded: its unanswered needs must be answered.
        self.needs_recovery = False

    def add_result(self, result: TaskResult) -> None:
        self.results.append(result.id)
        event = result_event(result)
        if result.batches is not None and isinstance(event, TaskSucceeded):
            numbers = [number for number in map(int, result.batches.split(",")) if number != ADDED_AT_ONCE]
            if numbers:
                self.batches[len(self.events)] = numbers
                self.results_with_nodes[result.node_id, result.attempt] = result.id
        trail = attempt_trail(result)
        if trail:
            self.trails[len(self.events)] = trail
        self.events.append(event)
        if isinstance(event, TaskLost):
            self.lost.append(event)
        if result.output is not None:
            self.reported[result.node_id, result.attempt] = result.output
        if result.started_at is not None:
            self.started[result.node_id] = result.started_at

    def log_lost(self, job_id: str, decisions: Iterable[Decision]) -> None:
        """Log the attempts that were lost, by worker; name the task that a worker ran alone."""
        if not self.lost:
            return
        charged = {decision.node for decision in decisions if isinstance(decision, ChargeLoss)}
        groups: dict[tuple[str | None, str], list[str]] = {}
        for event in self.lost:
            if event.alone:
                message = (
                    "worker %s died while it ran only node %s of job %s; the loss is charged to the node"
                )
            elif event.node in charged:
                message = (
                    "worker %s died with several tasks; the losses of %s of job %s, which had many such, are"
                    " charged"
                )
            else:
                how = "reached its memory limit" if event.reason == "memory" else "died"
                message = f"worker %s {how} with several tasks; the losses of %s of job %s are not charged"
            groups.setdefault((event.worker, message), []).append(event.node)
        for (worker, message), nodes in groups.items():
            fields = {"job_id": job_id, "node_ids": nodes[:MAX_IDS]}
            _LOGGER.warning(message, worker, format_list(nodes), job_id, extra=fields)

    def starts_except(self, dispatched: Container[str]) -> dict[str, float]:
        """Return when the reported attempts started, but not of nodes whose next attempt is dispatched."""
        return {node: at for node, at in self.started.items() if node not in dispatched}

    def rejections(self, decisions: Iterable[Decision]) -> dict[int, JsonObject]:
        """Return the errors of results whose nodes are rejected, by the ids of the results."""
        if not self.results_with_nodes:
            return {}
        rejected = [decision for decision in decisions if isinstance(decision, RejectResult)]
        return {self.results_with_nodes[one.node, one.attempt]: one.error for one in rejected}

    def add_notified(self, result: TaskResult) -> None:
        """Add a result that came with a notification: the commit checks it against the stored one."""
        self.notified.append(result)
        self.add_result(result)

    def add_command(self, command: Command, job: Job) -> None:
        """Add a command; record a rejection in the audit log if it is impossible."""
        self.commands.append(command.id)
        try:
            event = command_event(job, command)
        except (CommandRejected, KeyError, TypeError, ValueError) as error:
            data = json.dumps({"command": command.kind, "reason": str(error), "command_id": str(command.id)})
            self.audit_events.append(
                AuditEvent(EventType.COMMAND_REJECTED, data=data, by=command.sent_by or None)
            )
            return
        index = len(self.events)
        if isinstance(event, NodesAdded):
            # What was added before the job starts may be what its first nodes wait for.
            index -= bool(self.events) and isinstance(self.events[-1], JobStarted)
            self.batches[index] = list(event.batch.numbers)
        self.command_events[index] = command
        self.events.insert(index, event)


def add_results(
    pending: dict[str, PendingEvents],
    stored: Iterable[TaskResult],
    notified: Iterable[TaskResult],
    jobs: Mapping[str, OwnedJob],
) -> None:
    for result in stored:
        if result.job_id in jobs:
            job_events = pending.get(result.job_id)
            if job_events is None:
                job_events = pending[result.job_id] = PendingEvents()
            job_events.add_result(result)
    for result in notified:
        owned = jobs.get(result.job_id)
        if owned is not None and result.node_id in owned.job.nodes:
            pending.setdefault(result.job_id, PendingEvents()).add_notified(result)


def add_commands(
    pending: dict[str, PendingEvents], commands: Iterable[Command], jobs: Mapping[str, OwnedJob]
) -> None:
    for command in commands:
        owned = jobs.get(command.job_id)
        if owned is not None:
            pending.setdefault(command.job_id, PendingEvents()).add_command(command, owned.job)


def may_follow_batch(results: Iterable[TaskResult]) -> bool:
    """Return whether an attempt among these may have added nodes at once.

    Then its commands were sent before its result. The results of lost attempts, and of some that were
    released, do not say so.
    """
    return any(result.batches is not None or result.status in _UNREPORTED for result in results)


def result_event(result: TaskResult) -> EngineEvent:
    node, attempt = result.node_id, result.attempt
    if result.status == AttemptStatus.COMPLETED:
        return TaskSucceeded(node, attempt, result.handler_version)
    if result.status == AttemptStatus.FAILED:
        error: JsonObject = {"kind": "error", "message": "no reason was given"}
        return TaskFailed(
            node, attempt, json.loads(result.error) if result.error else error, result.permanent
        )
    if result.status == AttemptStatus.LOST:
        loss: dict[str, Any] = json.loads(result.error) if result.error else {}
        worker, reason = loss.get("worker"), loss.get("reason")
        return TaskLost(node, attempt, worker, alone=loss.get("alone", True), reason=reason)
    return TaskReleased(node, attempt)


def command_event(job: Job, command: Command) -> EngineEvent:
    """Return the event of a command; raise `CommandRejected` if it cannot be applied."""
    body = command.body
    match command.kind:
        case CommandKind.CANCEL:
            return CancelRequested(str(body.get("comment", "")))
        case CommandKind.SIGNAL:
            return SignalReceived(str(body.get("name", "")), body.get("payload"))
        case CommandKind.APPROVE | CommandKind.REJECT:
            return _answer(job, command)
        case CommandKind.RETRY:
            # A retry of one node has its name alone, as services of schema 0007 write and read it.
            return RetryRequested(_named_nodes(job, body.get("nodes", [body.get("node")])))
        case CommandKind.CANCEL_NODES:
            return NodeCancelRequested(_named_nodes(job, body.get("nodes")), command.sent_by)
        case CommandKind.RESUME:
            return ResumeRequested(tuple(_existing_node(job, node) for node in body.get("nodes", ())))
        case CommandKind.ADD_NODES:
            # Its rows are read before the turn.
            return NodesAdded(NodeBatch((int(body["batch"]),), ()), body.get("node"))
        case CommandKind.CHILD_FINISHED:
            return ChildJobFinished(
                body["node"],
                body["attempt"],
                JobStatus(body["status"]),
                body.get("result"),
                body.get("error"),
            )
    raise CommandRejected(f"this version does not know the command {command.kind!r}")


def _answer(job: Job, command: Command) -> EngineEvent:
    node_id = _existing_node(job, command.body.get("node"))
    spec = job.nodes[node_id].spec
    if not isinstance(spec, ApprovalSpec):
        raise CommandRejected(f"node {node_id} is not an approval")
    if not may_answer(spec, command.sent_by):
        raise CommandRejected(forbidden_answer(spec, node_id, command.sent_by))
    answer = Approved if command.kind == CommandKind.APPROVE else Rejected
    return answer(node_id, command.sent_by, format_rfc3339(command.at), str(command.body.get("comment", "")))


def _named_nodes(job: Job, node_ids: JsonValue) -> tuple[str, ...]:
    """Return the names of nodes; raise if none exists. Some may be gone, in a run whose list is shorter."""
    if not isinstance(node_ids, list) or not node_ids:
        raise CommandRejected("the command names no node")
    names = tuple(node_id for node_id in node_ids if isinstance(node_id, str))
    return names if any(node_id in job.nodes for node_id in names) else (_existing_node(job, node_ids[0]),)


def _existing_node(job: Job, node_id: JsonValue) -> str:
    if not isinstance(node_id, str) or node_id not in job.nodes:
        raise CommandRejected(f"the job has no node {node_id!r}")
    return node_id
