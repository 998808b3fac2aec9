"""The engine: `advance(job, event, now)` returns decisions.

Pure. It mutates the in-memory `Job`; if the commit that follows fails, the orchestrator drops that job and
reloads it. The cost of an event is the edges it touches: a settled node notifies its dependents, a settled
child its fan-out.
"""

from __future__ import annotations

from typing import Final

from dagmaster.engine import backlog, fanout
from dagmaster.engine.apply import APPLY
from dagmaster.engine.decisions import Decision, Ignore
from dagmaster.engine.events import EngineEvent, ItemsReinjected, ResumeRequested, RetryRequested
from dagmaster.engine.gates import NOT_TAKEN, OPEN, SATISFIED
from dagmaster.engine.job_completion import cancel_remaining, finish_if_done
from dagmaster.engine.model import Job, Node, leaf_outcome
from dagmaster.engine.node_start import need_of, start
from dagmaster.engine.stand_ins import dependents_of_superseded
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus, SkipReason
from dagmaster.engine.step import Step

_REOPENING: Final = frozenset({ResumeRequested, RetryRequested, ItemsReinjected})


def advance(job: Job, event: EngineEvent, now: float) -> list[Decision]:
    """Apply one event to a job. `now` is in seconds since the epoch, by the database's clock."""
    out: list[Decision] = []
    step = Step(job, now, out)
    kind = type(event)
    if job.status in TERMINAL_JOB and kind not in _REOPENING:
        step.ignore(f"the job is {job.status}", getattr(event, "node", None))
        return out
    APPLY[kind](step, event)
    if step.settled or step.ready or step.needs_cancel_remaining:
        _propagate(step)
    if job.open == 0 and job.status is JobStatus.RUNNING and not (out and isinstance(out[-1], Ignore)):
        finish_if_done(step)
    return out


def pending_needs(job: Job) -> list[Decision]:
    """Return the needs that are still unanswered. The orchestrator calls this once, after it loaded a job."""
    step = Step(job, 0.0, [])
    for node in job.nodes.values():
        if node.status is NodeStatus.READY and node.wake_at is None:
            # Even if nothing is needed any more (an upstream node was retried): `advance` decides that.
            step.out.append(need_of(job, node))
    if job.open == 0 and job.status is JobStatus.RUNNING:
        finish_if_done(step)
    return step.out


def _propagate(step: Step) -> None:
    """Notify dependents of settled nodes and start ready nodes, until nothing is left to do."""
    settled, ready, job = step.settled, step.ready, step.job
    notified = started = tasks = 0
    while True:
        while notified < len(settled):
            node = settled[notified]
            notified += 1
            if node.parent is None:
                _notify_dependents(step, node)
            else:
                fanout.child_settled(step, node.parent, node)
        if step.needs_cancel_remaining:
            step.needs_cancel_remaining = False
            cancel_remaining(step)
        elif started < len(ready):
            node = ready[started]
            started += 1
            if job.ending or node.status not in (NodeStatus.PENDING, NodeStatus.READY):
                continue
            if node.status is NodeStatus.PENDING and backlog.can_wait(job, node):
                if tasks >= backlog.START_BATCH:
                    job.backlog.add(node.id)
                    continue
                tasks += 1
            start(step, node)
        elif notified == len(settled):
            return


def _notify_dependents(step: Step, node: Node) -> None:
    job = step.job
    for dependent, gate, branch in job.graph.wiring.dependents.get(node.id, ()):
        if job.nodes[dependent].status is NodeStatus.PENDING:
            outcome = job.record_leaf(dependent, gate, leaf_outcome(node, branch))
            if outcome != OPEN:
                _after_gate(step, dependent, outcome)
    for dependent, gate in dependents_of_superseded(job, node.id) if node.id in job.standing_for else ():
        if job.nodes[dependent].status is NodeStatus.PENDING:
            outcome = job.record_leaf(dependent, gate, leaf_outcome(node, None))
            if outcome != OPEN:
                _after_gate(step, dependent, outcome)


def _after_gate(step: Step, node_id: str, outcome: int) -> None:
    """Start or skip a node whose dependency expression is settled."""
    node = step.job.nodes[node_id]
    if outcome == SATISFIED:
        step.ready.append(node)
    else:
        step.skip(node, SkipReason.NOT_TAKEN if outcome == NOT_TAKEN else SkipReason.UPSTREAM_FAILED)
