"""The engine: `advance(job, happening, now)` gives decisions.

Pure. It mutates the in-memory `Job` it is given; when the commit that follows fails, the shell drops that job and loads
it again. A happening costs the edges it touches: a settled node tells its dependents, a settled child its fan-out.
"""

from __future__ import annotations

from typing import Final

from dagmaster.engine import fanout
from dagmaster.engine.apply import APPLY
from dagmaster.engine.decisions import Decision, Ignore
from dagmaster.engine.events import EngineEvent, ItemsReinjected, ResumeRequested, RetryRequested
from dagmaster.engine.gates import NOT_TAKEN, OPEN, SATISFIED
from dagmaster.engine.job_completion import cancel_remaining, finish_if_done
from dagmaster.engine.model import Job, Node, leaf_outcome
from dagmaster.engine.node_start import need_of, start
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus, SkipReason
from dagmaster.engine.step import Step

_REOPENING: Final = frozenset({ResumeRequested, RetryRequested, ItemsReinjected})


def advance(job: Job, happening: EngineEvent, now: float) -> list[Decision]:
    """Apply one happening to a job. `now` is in seconds since the epoch, by the database's clock."""
    out: list[Decision] = []
    step = Step(job, now, out)
    kind = type(happening)
    if job.status in TERMINAL_JOB and kind not in _REOPENING:
        step.ignore(f"the job is {job.status}", getattr(happening, "node", None))
        return out
    APPLY[kind](step, happening)
    if step.settled or step.ready or step.sweep:
        _propagate(step)
    if job.open == 0 and job.status is JobStatus.RUNNING and not (out and isinstance(out[-1], Ignore)):
        finish_if_done(step)
    return out


def pending_needs(job: Job) -> list[Decision]:
    """Give the needs that no shell has answered yet. A shell asks once, after it loaded a job."""
    step = Step(job, 0.0, [])
    for node in job.nodes.values():
        if node.status is NodeStatus.READY and node.wake_at is None:
            # Also where nothing is needed any more (a node before it was retried): it is `advance` that decides.
            step.out.append(need_of(job, node))
    if job.open == 0 and job.status is JobStatus.RUNNING:
        finish_if_done(step)
    return step.out


def _propagate(step: Step) -> None:
    """Tell of each settled node, cancel_remaining if the job is ending, start what is ready; until nothing is left."""
    settled, ready = step.settled, step.ready
    told = started = 0
    while True:
        while told < len(settled):
            node = settled[told]
            told += 1
            if node.parent is None:
                _notify_dependents(step, node)
            else:
                fanout.child_settled(step, node.parent, node)
        if step.sweep:
            step.sweep = False
            cancel_remaining(step)
        elif started < len(ready):
            node = ready[started]
            started += 1
            if not step.job.ending and node.status in (NodeStatus.PENDING, NodeStatus.READY):
                start(step, node)
        elif told == len(settled):
            return


def _notify_dependents(step: Step, node: Node) -> None:
    job = step.job
    dependents = job.graph.wiring.dependents.get(node.id, ())
    if job.added:
        dependents = [*dependents, *job.wiring_added.dependents.get(node.id, ())]
    for dependent, gate, branch in dependents:
        target = job.nodes[dependent]
        if target.status is NodeStatus.PENDING:
            outcome = job.record(dependent, gate, leaf_outcome(node, branch))
            if outcome == SATISFIED:
                step.ready.append(target)
            elif outcome != OPEN:
                step.skip(target, SkipReason.NOT_TAKEN if outcome == NOT_TAKEN else SkipReason.UPSTREAM_FAILED)
