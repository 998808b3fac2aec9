"""The effect of each event on a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine import approvals_and_waits, backlog, fanout, node_cancels, reruns
from dagmaster.engine.decisions import REPORTED, AddNodes, ChargeLoss, RejectResult, Withdraw
from dagmaster.engine.events import (
    Approved,
    BacklogDue,
    CancelRequested,
    ChildJobFinished,
    DispatchRejected,
    ItemsReinjected,
    JobStarted,
    NodeCancelRequested,
    NodesAdded,
    Rejected,
    ResolutionFailed,
    ResultReused,
    ResumeRequested,
    RetryRequested,
    SignalReceived,
    TaskFailed,
    TaskLost,
    TaskReleased,
    TaskSucceeded,
    TimerFired,
    ValuesLoaded,
)
from dagmaster.engine.gates import NOT_TAKEN, OPEN, SATISFIED
from dagmaster.engine.graph import ApprovalSpec, TaskSpec
from dagmaster.engine.growth import grow_job
from dagmaster.engine.job_completion import IN_FLIGHT, compute_result, end_before_start, fail_result
from dagmaster.engine.model import FanOut, Job, Node
from dagmaster.engine.node_start import decide
from dagmaster.engine.retry import jitter_for, retry_delay
from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.engine.step import Step, failure
from dagmaster.engine.transitions import JOB_MOVES, Move
from dagmaster.errors import NodesRejected

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.engine.growth import NodeBatch
    from dagmaster.json_types import JsonObject

UNPROVEN: Final = frozenset(
    {
        "crashed",
        "out_of_memory",
        "timeout",
        "unstoppable",
        "exit",
        "internal",
        "dispatch_timeout",
        "handlers_unavailable",
    }
)
"""Kinds of failures after which a task may still be what kills workers: its process was ended, or it never
ran."""

MAX_SHARED_LOSSES: Final = 10
"""Further losses next to other tasks are also charged. Only workers that know no isolation lead there."""


def _job_started(step: Step, _: JobStarted) -> None:
    job = step.job
    if job.status is not JobStatus.PENDING:
        step.ignore("the job has already started")
        return
    job.status = JOB_MOVES[job.status][Move.START]
    reruns.set_deadline(step)
    reruns.start_ready_nodes(step)


def _in_flight(step: Step, node_id: str, attempt: int) -> Node | None:
    """Return the node if this attempt is in flight; otherwise ignore the report as stale."""
    node = step.job.nodes.get(node_id)
    if node is None:
        step.ignore(f"no node {node_id!r} in this job", node_id)
    elif node.attempt != attempt or node.status not in IN_FLIGHT or isinstance(node, FanOut):
        step.ignore(
            f"stale: attempt {attempt} of {node_id}, which is {node.status} in attempt {node.attempt}",
            node_id,
        )
        return None
    return node


def _task_succeeded(step: Step, event: TaskSucceeded) -> None:
    node = _in_flight(step, event.node, event.attempt)
    if node is None:
        return
    node.handler_version = event.version
    if event.added is not None:
        try:
            _add_nodes(step, event.added)
        except NodesRejected as error:
            rejection = failure("added_nodes", f"its nodes cannot be added: {error}")
            node.failed_attempts += 1
            step.out.append(RejectResult(node.id, node.attempt, rejection))
            _fail_or_cancel(step, node, rejection)
            return
    step.complete(node, REPORTED)


def _result_reused(step: Step, event: ResultReused) -> None:
    node = step.job.nodes.get(event.node)
    if node is None or isinstance(node, FanOut) or node.status not in (*IN_FLIGHT, NodeStatus.WAITING):
        step.ignore("the node is not waiting for a result", event.node)
        return
    if node.status in IN_FLIGHT:
        # No worker received the attempt: the next attempt reuses its number.
        node.attempt -= 1
    node.handler_version = event.source.handler_version
    step.complete(node, event.output, event.source)


def _task_failed(step: Step, event: TaskFailed) -> None:
    node = _in_flight(step, event.node, event.attempt)
    if node is None:
        return
    node.failed_attempts += 1
    if event.error.get("kind") not in UNPROVEN:
        # The handler raised, and its process lives: it is not what killed a worker.
        node.shared_losses = 0
    if _end_stopped(step, node, event.error):
        return
    spec = node.spec
    if (
        event.permanent
        or step.job.ending
        or not isinstance(spec, TaskSpec)
        or node.failed_attempts >= spec.retry.max_attempts
    ):
        step.fail(node, event.error)
        return
    step.move(node, Move.REQUEUE)
    node.error = event.error
    delay = retry_delay(spec.retry, node.failed_attempts, jitter_for(step.job.id, node.id, node.attempt))
    step.wait_until(node, step.now + delay)


def _task_lost(step: Step, event: TaskLost) -> None:
    node = _in_flight(step, event.node, event.attempt)
    if node is None:
        return
    if not event.alone and node.shared_losses < MAX_SHARED_LOSSES:
        # Any of its tasks may have killed the worker. None is charged; each is isolated until the culprit is
        # known.
        node.shared_losses += 1
        _release(step, node)
        return
    node.lost_attempts += 1
    step.out.append(ChargeLoss(node.id))
    spec = node.spec
    limit = spec.retry.max_lost if isinstance(spec, TaskSpec) else 0
    times = "once" if node.lost_attempts == 1 else f"{node.lost_attempts} times"
    losses = f"after {node.shared_losses} times next to other tasks"
    when = "while it ran nothing else" if event.alone else losses
    error = failure("lost", f"its worker died {times} {when} (max_lost {limit})")
    if _end_stopped(step, node, error):
        return
    if node.lost_attempts > limit or step.job.ending:
        step.fail(node, error)
    else:
        _requeue(step, node)


def _task_released(step: Step, event: TaskReleased) -> None:
    node = _in_flight(step, event.node, event.attempt)
    if node is not None:
        _release(step, node)


def _release(step: Step, node: Node) -> None:
    """Dispatch the node again without a charge, unless it was asked to stop or its job is ending."""
    if _end_stopped(step, node):
        return
    if step.job.ending:
        step.move(node, Move.REQUEUE)
        step.skip(node, SkipReason.JOB_FAILED)
    else:
        _requeue(step, node)


def _requeue(step: Step, node: Node) -> None:
    step.move(node, Move.REQUEUE)
    step.ready.append(node)


def _end_stopped(step: Step, node: Node, cause: JsonObject | None = None) -> bool:
    """End a node whose attempt was asked to stop, and did not succeed; return False if it was not asked."""
    if node.stopped:
        step.fail_cancelled(node, cause)
        return True
    if node_cancels.is_stopping(step.job, node):
        step.cancel(node, cause)
        return True
    return False


def _dispatch_rejected(step: Step, event: DispatchRejected) -> None:
    node = _in_flight(step, event.node, event.attempt)
    if node is not None:
        _fail_or_cancel(step, node, event.error)


def _fail_or_cancel(step: Step, node: Node, error: JsonObject) -> None:
    """Fail the node without a retry, or end it as cancelled if the attempt was asked to stop."""
    if not _end_stopped(step, node, error):
        step.fail(node, error)


def _timer_fired(step: Step, event: TimerFired) -> None:
    job = step.job
    if event.node is None:
        if job.deadline_at is None or step.now < job.deadline_at:
            step.ignore("the deadline has not passed")
            return
        job.deadline_passed = True
        job.deadline_at = None
        step.end(stop=True)
        return
    node = job.nodes.get(event.node)
    if node is None or node.wake_at is None or step.now < node.wake_at:
        step.ignore("no timer of this node is due", event.node)
        return
    node.wake_at = None
    job.changed.append(node)
    if node.status is NodeStatus.READY:
        step.ready.append(node)
    elif node.status is NodeStatus.WAITING:
        approvals_and_waits.on_timer(step, node)
    elif isinstance(node, FanOut):
        fanout.expand(step, node)
    elif isinstance(node.spec, TaskSpec):
        seconds = node.spec.dispatch_timeout_seconds
        message = f"no worker claimed it from queue {node.spec.queue} within {seconds:g} s"
        error = failure("dispatch_timeout", message)
        step.out.append(Withdraw(node.id, node.attempt, TaskFailed(node.id, node.attempt, error)))


def _values_loaded(step: Step, event: ValuesLoaded) -> None:
    if event.node is None:
        if step.job.open == 0 and step.job.status is JobStatus.RUNNING:
            compute_result(step, event.scope)
        else:
            step.ignore("the job's outputs are not due")
        return
    node = step.job.nodes.get(event.node)
    if node is None or node.status is not NodeStatus.READY or node.wake_at is not None:
        step.ignore("the node is not waiting for values", event.node)
    else:
        decide(step, node, event.scope)


def _resolution_failed(step: Step, event: ResolutionFailed) -> None:
    error = failure("expression", event.message, path=event.path)
    if event.node is None:
        if step.job.open == 0 and step.job.status is JobStatus.RUNNING:
            fail_result(step, error)
        else:
            step.ignore("the job's outputs are not due")
        return
    node = step.job.nodes.get(event.node)
    # The source of a running fan-out is resolved already.
    settled = (
        node is None or node.is_terminal or (isinstance(node, FanOut) and node.status is NodeStatus.RUNNING)
    )
    if node is None or settled or node.status is NodeStatus.PENDING:
        step.ignore("no value of this node was being resolved", event.node)
    else:
        _fail_or_cancel(step, node, error)


def _approval(step: Step, event: Approved | Rejected) -> Node | None:
    node = step.job.nodes.get(event.node)
    spec = None if node is None else node.spec
    if node is None or not isinstance(spec, ApprovalSpec) or node.status is not NodeStatus.WAITING:
        step.ignore(f"no approval is open at {event.node!r}", event.node)
        return None
    if not approvals_and_waits.may_answer(spec, event.by):
        step.ignore(f"{event.by} is not one of the approvers: {', '.join(spec.approvers)}", event.node)
        return None
    return node


def _approved(step: Step, event: Approved) -> None:
    node = _approval(step, event)
    if node is not None:
        approvals_and_waits.approve(step, node, by=event.by, at=event.at, comment=event.comment)


def _rejected(step: Step, event: Rejected) -> None:
    node = _approval(step, event)
    if node is not None:
        approvals_and_waits.reject(step, node, by=event.by, at=event.at, comment=event.comment)


def _signal_received(step: Step, event: SignalReceived) -> None:
    approvals_and_waits.receive_signal(step, event.name, event.payload)


def _child_job_finished(step: Step, event: ChildJobFinished) -> None:
    node = _in_flight(step, event.node, event.attempt)
    if node is None:
        return
    if event.status == JobStatus.COMPLETED:
        step.complete(node, event.result)
    else:
        detail = (event.error or {}).get("message", "")
        message = f"the child job is {event.status}" + (f": {detail}" if detail else "")
        _fail_or_cancel(step, node, failure("child_job", message, cause=event.error))


def _nodes_added(step: Step, event: NodesAdded) -> None:
    if step.job.ending and event.node is None:
        step.ignore(f"the job is ending, {_why_ending(step.job)}; no nodes are added")
        return
    try:
        _add_nodes(step, event.batch)
    except NodesRejected as error:
        step.ignore(str(error))


def _why_ending(job: Job) -> str:
    """Return why nothing new starts. Which node failed is not looked up: the job may have 100,000."""
    if job.cancel_requested:
        return "since it was cancelled"
    return "since its deadline passed" if job.deadline_passed else "since a node failed (`jobs why` names it)"


def _add_nodes(step: Step, batch: NodeBatch) -> None:
    """Add a batch to the job, and start what can start. A node that waits has no row: it is in the graph."""
    job = step.job
    growth = grow_job(job, batch)
    step.out.append(AddNodes(batch.numbers, tuple(node.id for node in growth.new)))
    if job.ending:
        # Only by a task, which may succeed and is not run again then: a resume runs the nodes that it added.
        for node in growth.new:
            end_before_start(step, node)
        return
    if job.status is JobStatus.PENDING:
        return
    # All are counted before the first is skipped: a skip notifies the others itself.
    nodes = (*growth.new, *growth.changed)
    outcomes = [SATISFIED if node.spec.requires is None else _count_leaves(job, node) for node in nodes]
    waiting = job.backlog or ()
    for node, outcome in zip(nodes, outcomes, strict=True):
        if outcome == SATISFIED:
            if node.id not in waiting:
                step.ready.append(node)
            continue
        job.backlog.discard(node.id)
        if outcome != OPEN:
            step.skip(node, SkipReason.NOT_TAKEN if outcome == NOT_TAKEN else SkipReason.UPSTREAM_FAILED)


def _backlog_due(step: Step, _: BacklogDue) -> None:
    job = step.job
    if not job.backlog:
        step.ignore("no node waits to be started")
    step.ready += [job.nodes[node_id] for node_id in job.backlog.take(backlog.START_BATCH)]


def _count_leaves(job: Job, node: Node) -> int:
    """Count the leaves that are settled already; return the outcome of the whole expression."""
    outcome = OPEN
    for leaf, gate in job.leaves(node.id):
        source = job.nodes[leaf.node]
        if source.status is NodeStatus.PENDING:
            continue
        settled = job.leaf_outcome(leaf)
        if settled != OPEN:
            # Even once the outcome is known: `upstream` reads every gate.
            outcome = job.record_leaf(node.id, gate, settled) or outcome
    return outcome


def _items_reinjected(step: Step, event: ItemsReinjected) -> None:
    node = step.job.nodes.get(event.node)
    if node is None:
        step.ignore(f"no node {event.node!r} in this job", event.node)
    else:
        reruns.reinject(step, node, event.indexes)


def _cancel_requested(step: Step, _: CancelRequested) -> None:
    job = step.job
    if job.cancel_requested:
        step.ignore("the job is already being cancelled")
        return
    job.cancel_requested = True
    if job.status is JobStatus.PENDING:
        job.status = JOB_MOVES[job.status][Move.START]
    step.end(stop=True)


def _node_cancel_requested(step: Step, event: NodeCancelRequested) -> None:
    node_cancels.cancel_nodes(step, event.nodes, event.by)


def _resume_requested(step: Step, event: ResumeRequested) -> None:
    reruns.resume(step, event.nodes)


def _retry_requested(step: Step, event: RetryRequested) -> None:
    reruns.retry(step, event.nodes)


APPLY: Final[dict[type, Callable[[Step, Any], None]]] = {
    JobStarted: _job_started,
    TaskSucceeded: _task_succeeded,
    ResultReused: _result_reused,
    TaskFailed: _task_failed,
    TaskLost: _task_lost,
    TaskReleased: _task_released,
    DispatchRejected: _dispatch_rejected,
    TimerFired: _timer_fired,
    ValuesLoaded: _values_loaded,
    ResolutionFailed: _resolution_failed,
    Approved: _approved,
    Rejected: _rejected,
    SignalReceived: _signal_received,
    ChildJobFinished: _child_job_finished,
    NodesAdded: _nodes_added,
    BacklogDue: _backlog_due,
    ItemsReinjected: _items_reinjected,
    CancelRequested: _cancel_requested,
    NodeCancelRequested: _node_cancel_requested,
    ResumeRequested: _resume_requested,
    RetryRequested: _retry_requested,
}
