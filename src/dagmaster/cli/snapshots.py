"""A job as it stands: what was read of it, as views, as sentences about what it waits for, and as a to_dict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagmaster.cli.advice import advice
from dagmaster.cli.render.job import FanView, JobView, NodeView, describe, duration
from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.engine.diagnosis.active_nodes import approval, child_job, nobody_moves, pause, queued, retry
from dagmaster.engine.diagnosis.context import ChildJob, DiagnosisContext, QueueState, Service
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.graph import ApprovalSpec, FanOutSpec, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.engine.status import TERMINAL_NODE, JobStatus, NodeStatus
from dagmaster.ports.handler_reports import Progress
from dagmaster.store.postgres.legacy_read_store import ChildCounts, FleetCounts, NodeRecord
from dagmaster.text_format import age, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.engine.diagnosis.reasons import Reason
    from dagmaster.engine.graph import Graph
    from dagmaster.store.postgres.legacy_read_store import (
        JobDetail,
        LegacyReadStore,
        PendingCommand,
        QueueBacklog,
        WaitInfo,
    )

MASKED: Final = "***"
_OVER: Final = frozenset(status.value for status in TERMINAL_NODE)
# Those who wait in a queue for less than this are not stuck.
_PATIENCE_SECONDS: Final = 5.0
_MOST_SENTENCES: Final = 6


@dataclass(slots=True)
class Snapshot:
    """What was read of a job at one moment."""

    head: JobDetail
    graph: Graph
    nodes: dict[str, NodeRecord]
    children: dict[str, ChildCounts] = field(default_factory=dict)
    questions: dict[str, WaitInfo] = field(default_factory=dict)
    waits: list[QueueBacklog] = field(default_factory=list)
    alive: FleetCounts = field(default_factory=lambda: FleetCounts(0, 0))
    child_jobs: dict[str, tuple[str, str]] = field(default_factory=dict)
    lease_seconds: float = 15.0
    commands: list[PendingCommand] = field(default_factory=list)

    def line(self, node_id: str) -> NodeRecord:
        """A node's row. One that nothing happened to has none, and is PENDING."""
        return self.nodes.get(node_id) or NodeRecord(node_id=node_id, status="PENDING")

    @property
    def status(self) -> str:
        """The job's status: WAITING while only outsiders can move it."""
        if self.head.status != JobStatus.RUNNING:
            return self.head.status
        counts = self.counts(fans=False)
        moving = sum(counts.get(status, 0) for status in ("READY", "DISPATCHED", "RUNNING"))
        return JobStatus.WAITING if counts.get("WAITING") and not moving else JobStatus.RUNNING

    def counts(self, *, fans: bool = True) -> dict[str, int]:
        """How many nodes stand where, children of fan-outs too."""
        counts: dict[str, int] = {}
        for node_id, spec in self.graph.specs.items():
            line = self.line(node_id)
            if fans or not isinstance(spec, FanOutSpec):
                counts[line.status] = counts.get(line.status, 0) + 1
            children = self.children.get(node_id)
            if children is not None:
                for status, count in children.counts.items():
                    counts[status] = counts.get(status, 0) + count
                missing = (line.source_count or 0) - sum(children.counts.values())
                if missing > 0:
                    counts["PENDING"] = counts.get("PENDING", 0) + missing
        return counts

    @property
    def seconds(self) -> float:
        """How long the job has been running, or ran, in its last run. One that has not started waits so long."""
        seconds = self.head.seconds
        return max(self.head.now - self.head.created_at, 0.0) if seconds is None else seconds

    def started(self, line: NodeRecord) -> float | None:
        """When a node started, if that is known: a start of an earlier run is not that of what this run did."""
        children, began = self.children.get(line.node_id), line.started_at
        first = None if children is None else children.first_started_at
        if began is None:
            return first
        resumed = self.head.resumed_at
        is_of_this_run = resumed is not None and (line.finished_at is None or line.finished_at >= resumed)
        if resumed is None or not is_of_this_run or began >= resumed:
            return began
        # Of a fan-out, what is opened again starts at once, unless it waits for what comes before it.
        return None if children is None else max(resumed, first or resumed)


async def load_job_view(
    store: LegacyReadStore, head: JobDetail, graph: Graph, *, before: Snapshot | None = None
) -> Snapshot:
    """Read a job. What was over in the snapshot `before` is not counted again."""
    rows = {line.node_id: line for line in await store.nodes(head.id, list(graph.specs))}
    snapshot = Snapshot(head, graph, rows, lease_seconds=store.leases["lease_seconds"])
    fans = [node_id for node_id, line in rows.items() if line.source_count is not None]
    settled = (
        {}
        if before is None
        else {
            fan: before.children[fan]
            for fan in fans
            if fan in before.children and _is_settled(rows[fan], before.nodes.get(fan))
        }
    )
    snapshot.children = settled | await store.children(head.id, [fan for fan in fans if fan not in settled])
    snapshot.commands = await store.commands(head.id)
    if snapshot.commands or not head.is_over:
        snapshot.alive = await store.alive()
    if not head.is_over:
        waiting = [node_id for node_id, line in rows.items() if line.status == "WAITING"]
        known = {} if before is None else before.questions
        snapshot.questions = {node_id: known[node_id] for node_id in waiting if node_id in known}
        unknown = [node_id for node_id in waiting if node_id not in known]
        snapshot.questions |= await store.questions(head.id, unknown)
        snapshot.waits = await store.waiting_tasks(head.id)
    if any(spec.kind.value == "workflow" for spec in graph.specs.values()):
        snapshot.child_jobs = await store.child_jobs(head.id)
    return snapshot


def _is_settled(line: NodeRecord, before: NodeRecord | None) -> bool:
    return before is not None and line.status in _OVER and line.status == before.status


# ── Views ──


def view_of(snapshot: Snapshot, node_id: str, *, rate: float | None = None) -> NodeView:
    """What is shown of a node."""
    line, spec = snapshot.line(node_id), snapshot.graph.specs[node_id]
    children = snapshot.children.get(node_id)
    started = snapshot.started(line)
    question = snapshot.questions.get(node_id)
    if started is None and question is not None:
        started = question.at
    progress = line.progress
    reused = line.status == "COMPLETED" and not line.attempt and isinstance(spec, TaskSpec | WorkflowSpec)
    return NodeView(
        id=node_id,
        status=NodeStatus(line.status),
        what=f"{describe(spec)}, reused" if reused else describe(spec),
        attempt=line.attempt,
        branch=line.branch,
        skip_reason=line.skip_reason,
        error=line.error,
        started=started,
        ended=line.finished_at,
        progress=None if progress is None else Progress(progress["current"], progress["total"], progress["message"]),
        fan=None if children is None else _fan_view(line, children, rate),
        note=_note(snapshot, line),
    )


def _fan_view(line: NodeRecord, children: ChildCounts, rate: float | None) -> FanView:
    counts = children.counts
    running = counts.get("RUNNING", 0)
    return FanView(
        total=line.source_count or 0,
        completed=counts.get("COMPLETED", 0),
        failed=counts.get("FAILED", 0),
        stopped=counts.get("SKIPPED", 0) + counts.get("CANCELLED", 0),
        out=running + counts.get("DISPATCHED", 0),
        running=running,
        rate=rate,
    )


def _note(snapshot: Snapshot, line: NodeRecord) -> str:
    spec = snapshot.graph.specs[line.node_id]
    question = snapshot.questions.get(line.node_id)
    if line.status == "WAITING" and isinstance(spec, ApprovalSpec):
        return f"waits for approval: {question.message}" if question and question.message else "waits for approval"
    if line.status == "WAITING" and line.wake_at is not None:
        return f"until {rfc3339(line.wake_at)[:19]}Z"
    if line.status == "DISPATCHED" and line.queue is not None:
        return f"in queue {line.queue}"
    if line.status == "READY" and line.wake_at is not None and line.wake_at > snapshot.head.now:
        return f"in {duration(line.wake_at - snapshot.head.now)}"
    child = snapshot.child_jobs.get(line.node_id)
    return "" if child is None else f"job {child[0]} ({child[1].lower()})"


def job_view(snapshot: Snapshot, *, rate: float | None = None) -> JobView:
    """What is shown of the job."""
    head, counts = snapshot.head, snapshot.counts()
    return JobView(
        title=f"{head.workflow_id} v{head.version}",
        status="CANCELLING" if head.cancelling and not head.is_over else snapshot.status,
        over=sum(count for status, count in counts.items() if status in _OVER),
        nodes=sum(counts.values()),
        seconds=snapshot.seconds,
        rate=rate,
        hints=blocking_reasons(snapshot),
    )


# ── What it waits for ──


def blocking_reasons(snapshot: Snapshot) -> list[str]:
    """Say why a job is not moving, and what to do about it."""
    said = [*of_commands(snapshot.commands, snapshot.alive.orchestrators)]
    if snapshot.head.is_over:
        return said
    said += [*_of_the_owner(snapshot), *_of_queues(snapshot), *_of_nodes(snapshot)]
    more = len(said) - _MOST_SENTENCES
    return said if more <= 0 else [*said[:_MOST_SENTENCES], f"and {more} more"]


def of_commands(commands: Sequence[PendingCommand], orchestrators: int) -> Iterator[str]:
    """Say what was asked of a job and waits: for an orchestrator that lives, or for long."""
    for each in commands:
        by, since = f" by {each.by}" if each.by else "", age(each.seconds)
        what = f"{'an' if each.kind[0] in 'aeiou' else 'a'} {each.kind.replace('_', ' ')}{by}"
        if not orchestrators:
            yield f"{what} waits for an orchestrator since {since}: none is alive → dagmaster orchestrator"
        elif each.seconds > _PATIENCE_SECONDS:
            yield f"{what} waits since {since} to be taken up"


def _of_the_owner(snapshot: Snapshot) -> Iterator[str]:
    head, lease = snapshot.head, snapshot.lease_seconds
    owner = None
    if head.owner_id is not None:
        silent, where = head.silent_seconds or 0.0, f"{head.host}:{head.pid}"
        owner = Service(id=head.owner_id, where=where, silent_seconds=silent, lease_seconds=lease)
    around = DiagnosisContext(
        now=head.now,
        created_at=head.created_at,
        owner=owner,
        orchestrators=snapshot.alive.orchestrators,
        is_of_a_run=head.queue is not None,
    )
    reason = nobody_moves(around)
    is_young = head.now - head.created_at < _PATIENCE_SECONDS
    if reason is not None and not (is_young and reason.code is ReasonCode.NO_OWNER and head.queue is None):
        yield _said(snapshot, "the job", reason)
    if head.cancelling:
        yield "the job is being cancelled: what runs is asked to stop"


def _of_queues(snapshot: Snapshot) -> Iterator[str]:
    for wait in snapshot.waits:
        state = QueueState(workers=wait.workers, seats=wait.seats, busy=wait.busy)
        reason = queued(wait.queue, state, wait.oldest_seconds)
        if reason.code is ReasonCode.NO_WORKER or wait.oldest_seconds > _PATIENCE_SECONDS:
            yield _said(snapshot, counted(wait.tasks, "task"), reason, several=wait.tasks > 1)


def _of_nodes(snapshot: Snapshot) -> Iterator[str]:
    for node_id, line in snapshot.nodes.items():
        reason = _of_node(snapshot, line)
        if reason is not None:
            yield _said(snapshot, node_id, reason)


def _of_node(snapshot: Snapshot, line: NodeRecord) -> Reason | None:
    """Why a node waits that somebody, or a time, has to move."""
    spec, now = snapshot.graph.specs[line.node_id], snapshot.head.now
    child = snapshot.child_jobs.get(line.node_id)
    if line.status == "WAITING" and isinstance(spec, ApprovalSpec):
        question = snapshot.questions.get(line.node_id)
        return approval(spec, "" if question is None else question.message, line.wake_at, now)
    if line.status == "WAITING" and isinstance(spec, WaitSpec):
        return pause(spec, line.wake_at, now)
    if line.status == "READY" and line.wake_at is not None and isinstance(spec, TaskSpec):
        most = spec.retry.max_attempts
        return retry(line.error or {}, line.failed_attempts + 1, most, wake_at=line.wake_at, now=now)
    if child is not None and line.status not in _OVER:
        return child_job(ChildJob(id=child[0], status=child[1]))
    return None


def _said(snapshot: Snapshot, subject: str, reason: Reason, *, several: bool = False) -> str:
    command = advice(snapshot.head.id, reason, subject)
    return f"{subject} {reason.together if several else reason.sentence}{f' → {command}' if command else ''}"


# ── Documents ──


def visible_inputs(snapshot: Snapshot) -> dict[str, Any]:
    """The inputs; secret ones are masked."""
    declared = snapshot.graph.inputs
    return {
        name: MASKED if declared.get(name, {}).get("secret") else value for name, value in snapshot.head.inputs.items()
    }


def to_dict(
    snapshot: Snapshot, result: Any, attempts: int, lines: Sequence[NodeRecord] | None = None
) -> dict[str, Any]:
    """All of a job, for programs. `lines`: the rows of all nodes, if children of fan-outs are wanted, too."""
    head, counts = snapshot.head, snapshot.counts()
    shown = [snapshot.line(node_id) for node_id in snapshot.graph.specs]
    if lines is not None:
        shown += [line for line in lines if line.parent_node_id is not None]
    return {
        "job_id": head.id,
        "workflow_id": head.workflow_id,
        "version": head.version,
        "status": snapshot.status,
        "run": head.run,
        "priority": head.priority,
        "submitted_by": head.submitted_by,
        "correlation_id": head.correlation_id,
        "idempotency_key": head.idempotency_key,
        "resumed_from": head.resumed_from,
        "parent": None if head.parent_job_id is None else {"job_id": head.parent_job_id, "node": head.parent_node_id},
        "owner": None if head.owner_id is None else {"id": head.owner_id, "host": head.host, "pid": head.pid},
        "cancelling": head.cancelling and not head.is_over,
        "created_at": spell_time(head.created_at),
        "started_at": spell_time(head.started_at),
        "resumed_at": spell_time(head.resumed_at),
        "finished_at": spell_time(head.finished_at),
        "deadline_at": spell_time(head.deadline_at),
        "duration_seconds": None if head.started_at is None else round(snapshot.seconds, 6),
        "event_seq": head.event_seq,
        "attempts": attempts,
        "counts": counts,
        "blocking_reasons": blocking_reasons(snapshot),
        "inputs": visible_inputs(snapshot),
        "result": result,
        "error": head.error,
        "nodes": {line.node_id: _node_document(snapshot, line) for line in shown},
    }


def _node_document(snapshot: Snapshot, line: NodeRecord) -> dict[str, Any]:
    children = snapshot.children.get(line.node_id)
    found: dict[str, Any] = {
        "status": line.status,
        "attempts": line.attempt,
        "started_at": spell_time(snapshot.started(line)),
        "finished_at": spell_time(line.finished_at),
    }
    optional = {
        "parent": line.parent_node_id,
        "skip_reason": line.skip_reason,
        "branch": line.branch,
        "error": line.error,
        "queue": line.queue,
        "worker_id": line.worker_id,
        "progress": line.progress,
        "wakes_at": spell_time(line.wake_at),
        "children": None if children is None else {"total": line.source_count, **children.counts},
        "job_id": snapshot.child_jobs.get(line.node_id, (None,))[0],
    }
    return found | {name: value for name, value in optional.items() if value is not None}


def spell_time(at: float | None) -> str | None:
    """A time in RFC 3339."""
    return None if at is None else rfc3339(at)
