"""What each happening does to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine import approvals_and_waits, fanout, reruns
from dagmaster.engine.decisions import REPORTED, Withdraw
from dagmaster.engine.events import (
    Approved,
    CancelRequested,
    ChildJobFinished,
    DispatchRejected,
    ItemsReinjected,
    JobStarted,
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
from dagmaster.engine.job_completion import HELD, compute_result, finish
from dagmaster.engine.model import FanOut, Job, Node, leaf_outcome
from dagmaster.engine.node_start import decide
from dagmaster.engine.retry import jitter_for, retry_delay
from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.engine.step import Step, failure
from dagmaster.engine.transitions import JOB_MOVES, Move

if TYPE_CHECKING:
    from collections.abc import Callable


def _job_started(step: Step, _: JobStarted) -> None:
    job = step.job
    if job.status is not JobStatus.PENDING:
        step.ignore("the job has started already")
        return
    job.status = JOB_MOVES[job.status][Move.START]
    reruns.set_deadline(step)
    reruns.start_ready_nodes(step)


def _held(step: Step, node_id: str, attempt: int) -> Node | None:
    """Give the node if this is its attempt and it is out with a worker or a child job; else the report is stale."""
    node = step.job.nodes.get(node_id)
    if node is None:
        step.ignore(f"no node {node_id!r} in this job", node_id)
    elif node.attempt != attempt or node.status not in HELD or isinstance(node, FanOut):
        step.ignore(f"stale: attempt {attempt} of {node_id}, which is {node.status} in attempt {node.attempt}", node_id)
        return None
    return node


def _task_succeeded(step: Step, happening: TaskSucceeded) -> None:
    node = _held(step, happening.node, happening.attempt)
    if node is not None:
        node.handler_version = happening.version
        step.complete(node, REPORTED)


def _result_reused(step: Step, happening: ResultReused) -> None:
    node = step.job.nodes.get(happening.node)
    if node is None or isinstance(node, FanOut) or node.status not in (*HELD, NodeStatus.WAITING):
        step.ignore("the node does not wait for a result", happening.node)
        return
    if node.status in HELD:
        # Nobody was given the attempt: the next one has its number.
        node.attempt -= 1
    node.handler_version = happening.source.handler_version
    step.complete(node, happening.output, happening.source)


def _task_failed(step: Step, happening: TaskFailed) -> None:
    node = _held(step, happening.node, happening.attempt)
    if node is None:
        return
    node.failed_attempts += 1
    if _is_stopping(step.job, node):
        step.cancel(node, happening.error)
        return
    spec = node.spec
    if (
        happening.permanent
        or step.job.ending
        or not isinstance(spec, TaskSpec)
        or node.failed_attempts >= spec.retry.max_attempts
    ):
        step.fail(node, happening.error)
        return
    step.move(node, Move.REQUEUE)
    node.error = happening.error
    delay = retry_delay(spec.retry, node.failed_attempts, jitter_for(step.job.id, node.id, node.attempt))
    step.wait_until(node, step.now + delay)


def _task_lost(step: Step, happening: TaskLost) -> None:
    node = _held(step, happening.node, happening.attempt)
    if node is None:
        return
    node.lost_attempts += 1
    spec = node.spec
    limit = spec.retry.max_lost if isinstance(spec, TaskSpec) else 0
    times = "once" if node.lost_attempts == 1 else f"{node.lost_attempts} times"
    error = failure("lost", f"the worker was lost {times} (at most {limit} allowed)")
    if _is_stopping(step.job, node):
        step.cancel(node, error)
    elif node.lost_attempts > limit or step.job.ending:
        step.fail(node, error)
    else:
        _again(step, node)


def _task_released(step: Step, happening: TaskReleased) -> None:
    node = _held(step, happening.node, happening.attempt)
    if node is None:
        return
    if _is_stopping(step.job, node):
        step.cancel(node)
    elif step.job.ending:
        step.move(node, Move.REQUEUE)
        step.skip(node, SkipReason.JOB_FAILED)
    else:
        _again(step, node)


def _again(step: Step, node: Node) -> None:
    step.move(node, Move.REQUEUE)
    step.ready.append(node)


def _is_stopping(job: Job, node: Node) -> bool:
    if job.stopping:
        return True
    fan = node.parent
    while fan is not None:
        if fan.stopped:
            return True
        fan = fan.parent
    return False


def _dispatch_rejected(step: Step, happening: DispatchRejected) -> None:
    node = _held(step, happening.node, happening.attempt)
    if node is not None:
        _fail_or_cancel(step, node, happening.error)


def _fail_or_cancel(step: Step, node: Node, error: dict[str, Any]) -> None:
    """FAILED without a retry; CANCELLED if the attempt was asked to stop."""
    if _is_stopping(step.job, node):
        step.cancel(node, error)
    else:
        step.fail(node, error)


def _timer_fired(step: Step, happening: TimerFired) -> None:
    job = step.job
    if happening.node is None:
        if job.deadline_at is None or step.now < job.deadline_at:
            step.ignore("the deadline has not come")
            return
        job.deadline_passed = True
        job.deadline_at = None
        step.end(stop=True)
        return
    node = job.nodes.get(happening.node)
    if node is None or node.wake_at is None or step.now < node.wake_at:
        step.ignore("no timer of this node is due", happening.node)
        return
    node.wake_at = None
    job.changed.append(node)
    if node.status is NodeStatus.READY:
        step.ready.append(node)
    elif node.status is NodeStatus.WAITING:
        approvals_and_waits.time_is_over(step, node)
    elif isinstance(node, FanOut):
        fanout.expand(step, node)
    elif isinstance(node.spec, TaskSpec):
        message = f"no worker took it from queue {node.spec.queue} within {node.spec.dispatch_timeout_seconds:g} s"
        error = failure("dispatch_timeout", message)
        step.out.append(Withdraw(node.id, node.attempt, TaskFailed(node.id, node.attempt, error)))


def _values_loaded(step: Step, happening: ValuesLoaded) -> None:
    if happening.node is None:
        if step.job.open == 0 and step.job.status is JobStatus.RUNNING:
            compute_result(step, happening.scope)
        else:
            step.ignore("the job's outputs are not due")
        return
    node = step.job.nodes.get(happening.node)
    if node is None or node.status is not NodeStatus.READY or node.wake_at is not None:
        step.ignore("the node does not wait for values", happening.node)
    else:
        decide(step, node, happening.scope)


def _resolution_failed(step: Step, happening: ResolutionFailed) -> None:
    error = failure("expression", happening.message, path=happening.path)
    if happening.node is None:
        if step.job.open == 0 and step.job.status is JobStatus.RUNNING:
            finish(step, Move.FAIL, error=error)
        else:
            step.ignore("the job's outputs are not due")
        return
    node = step.job.nodes.get(happening.node)
    # The source of a fan-out that runs was resolved long ago.
    settled = node is None or node.is_terminal or (isinstance(node, FanOut) and node.status is NodeStatus.RUNNING)
    if node is None or settled or node.status is NodeStatus.PENDING:
        step.ignore("nothing of this node was being resolved", happening.node)
    else:
        _fail_or_cancel(step, node, error)


def _approval(step: Step, happening: Approved | Rejected) -> Node | None:
    node = step.job.nodes.get(happening.node)
    spec = None if node is None else node.spec
    if node is None or not isinstance(spec, ApprovalSpec) or node.status is not NodeStatus.WAITING:
        step.ignore(f"no approval is open at {happening.node!r}", happening.node)
        return None
    if spec.approvers and happening.by not in spec.approvers:
        step.ignore(f"{happening.by} is not one of the approvers: {', '.join(spec.approvers)}", happening.node)
        return None
    return node


def _approved(step: Step, happening: Approved) -> None:
    node = _approval(step, happening)
    if node is not None:
        approvals_and_waits.approve(step, node, by=happening.by, at=happening.at, comment=happening.comment)


def _rejected(step: Step, happening: Rejected) -> None:
    node = _approval(step, happening)
    if node is not None:
        approvals_and_waits.reject(step, node, by=happening.by, at=happening.at, comment=happening.comment)


def _signal_received(step: Step, happening: SignalReceived) -> None:
    approvals_and_waits.receive_signal(step, happening.name, happening.payload)


def _child_job_finished(step: Step, happening: ChildJobFinished) -> None:
    node = _held(step, happening.node, happening.attempt)
    if node is None:
        return
    if happening.status == JobStatus.COMPLETED:
        step.complete(node, happening.result)
    else:
        said = (happening.error or {}).get("message", "")
        message = f"the child job is {happening.status}" + (f": {said}" if said else "")
        _fail_or_cancel(step, node, failure("child_job", message, cause=happening.error))


def _nodes_added(step: Step, happening: NodesAdded) -> None:
    job = step.job
    if job.ending:
        step.ignore("the job is ending: nothing is added to it")
        return
    added = [job.add(spec) for spec in happening.specs if spec.id not in job.nodes]
    if not added:
        step.ignore("every one of these nodes is there already")
    job.open += len(added)
    job.changed += added
    # All are counted before the first is skipped: it tells the others of that itself.
    for node, outcome in [(node, _count_leaves(job, node)) for node in added]:
        if outcome == SATISFIED:
            step.ready.append(node)
        elif outcome != OPEN:
            step.skip(node, SkipReason.NOT_TAKEN if outcome == NOT_TAKEN else SkipReason.UPSTREAM_FAILED)


def _count_leaves(job: Job, node: Node) -> int:
    """Count the leaves that are settled already; give the outcome of the whole expression."""
    outcome = OPEN if job.gates(node.id) else SATISFIED
    for leaf, gate in job.leaves(node.id):
        settled = leaf_outcome(job.nodes[leaf.node], leaf.branch)
        if settled != OPEN:
            # Also once the outcome is known: `upstream` looks at every gate.
            outcome = job.record(node.id, gate, settled) or outcome
    return outcome


def _items_reinjected(step: Step, happening: ItemsReinjected) -> None:
    node = step.job.nodes.get(happening.node)
    if node is None:
        step.ignore(f"no node {happening.node!r} in this job", happening.node)
    else:
        reruns.reinject(step, node, happening.indexes)


def _cancel_requested(step: Step, _: CancelRequested) -> None:
    job = step.job
    if job.cancel_requested:
        step.ignore("the job is being cancelled already")
        return
    job.cancel_requested = True
    if job.status is JobStatus.PENDING:
        job.status = JOB_MOVES[job.status][Move.START]
    step.end(stop=True)


def _resume_requested(step: Step, happening: ResumeRequested) -> None:
    reruns.resume(step, happening.nodes)


def _retry_requested(step: Step, happening: RetryRequested) -> None:
    node = step.job.nodes.get(happening.node)
    if node is None:
        step.ignore(f"no node {happening.node!r} in this job", happening.node)
    else:
        reruns.retry(step, node)


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
    ItemsReinjected: _items_reinjected,
    CancelRequested: _cancel_requested,
    ResumeRequested: _resume_requested,
    RetryRequested: _retry_requested,
}
