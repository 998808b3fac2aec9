"""New runs of a job: resume, retry of one node, items put back.

A new run opens nodes again and keeps the rest: completed nodes keep their outputs, attempts go on counting, budgets
start anew. Gates and counters are then derived from what stands, exactly as after a reload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.decisions import Reopen, WaitUntil
from dagmaster.engine.fanout import admit, forget, supersede
from dagmaster.engine.gates import NOT_TAKEN, OPEN, SATISFIED
from dagmaster.engine.graph import OnFailure
from dagmaster.engine.model import FanOut, Job, Node, fails_job, is_dormant
from dagmaster.engine.status import TERMINAL_JOB, NodeStatus, SkipReason
from dagmaster.engine.transitions import JOB_MOVES, Move

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.engine.step import Step


def resume(step: Step, named: Iterable[str]) -> None:
    """Run again what did not work out; and each named node with all that follows it."""
    job = step.job
    if job.status not in TERMINAL_JOB:
        step.ignore("the job is not over: only a finished job can be resumed")
        return
    unknown = [node_id for node_id in named if node_id not in job.nodes]
    if unknown:
        step.ignore(f"no node {unknown[0]!r} in this job", unknown[0])
        return
    plan = _Plan(job)
    for node in job.nodes.values():
        if node.parent is None and _did_not_work_out(node):
            plan.reopen(node)
    for node_id in named:
        plan.redo(job.nodes[node_id])
    _open_run(step, plan)


def retry(step: Step, node: Node) -> None:
    """Run one node again: at once if it rests between attempts, in a new run if it is over."""
    job = step.job
    if node.status is NodeStatus.READY and node.wake_at is not None and not job.ending:
        node.wake_at = None
        step.ready.append(node)
        return
    if node.status not in (NodeStatus.FAILED, NodeStatus.CANCELLED):
        step.ignore(f"node {node.id} is {node.status}: only a failed or cancelled node can be retried", node.id)
        return
    if (job.ending and job.status not in TERMINAL_JOB) or _is_being_stopped(node):
        step.ignore("what runs is being stopped: retry the node when that is over", node.id)
        return
    plan = _Plan(job)
    plan.reopen(node)
    plan.reopen_skipped_because_of(node.top)
    _open_run(step, plan)


def reinject(step: Step, fan: Node, indexes: Iterable[int]) -> None:
    """Run the given children of a finished fan-out again, and bring everything after it up to date."""
    job = step.job
    if job.status not in TERMINAL_JOB or not isinstance(fan, FanOut) or not fan.is_terminal:
        step.ignore("items can be put back into a fan-out once its job is over", fan.id)
        return
    wrong = [index for index in indexes if not 0 <= index < fan.expanded]
    if wrong:
        step.ignore(f"fan-out {fan.id} has no item {wrong[0]}", fan.id)
        return
    plan = _Plan(job)
    for index in indexes:
        plan.redo(fan.children[index])
    _open_run(step, plan)


class _Plan:
    """Which nodes open again."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.opened: dict[Node, None] = {}

    def reopen(self, node: Node) -> None:
        """Open a node; of a fan-out whose source is frozen, only the children that did not work out."""
        if node in self.opened:
            return
        self.opened[node] = None
        if node.parent is not None:
            self._open_parent(node.parent)
        if isinstance(node, FanOut) and node.total is not None:
            for child in node.children[: node.expanded]:
                if _did_not_work_out(child):
                    self.reopen(child)

    def redo(self, node: Node) -> None:
        """Open a node from the beginning, and all that follows it."""
        for each in (node, *self._followers(node.top)):
            if isinstance(each, FanOut):
                self.job.changed += supersede(each)
            self.opened[each] = None
        if node.parent is not None:
            self._open_parent(node.parent)

    def reopen_skipped_because_of(self, node: Node) -> None:
        """Open what was skipped because this node did not work out; if that ended the job, all that was swept, too."""
        job = self.job
        for follower in self._followers(node):
            if follower.status is not NodeStatus.FAILED and _did_not_work_out(follower):
                self.reopen(follower)
        if fails_job(node) and _ended_by_a_failure(job):
            for each in job.walk():
                swept = each.status is NodeStatus.CANCELLED or each.skip_reason is SkipReason.JOB_FAILED
                if each.parent is None and swept:
                    self.reopen(each)

    def _open_parent(self, fan: FanOut) -> None:
        if fan.is_terminal:
            self.opened[fan] = None
            if fan.parent is not None:
                self._open_parent(fan.parent)

    def _followers(self, node: Node) -> list[Node]:
        found: dict[str, None] = {}
        pending = [node.id]
        while pending:
            node_id = pending.pop()
            for wiring in (self.job.graph.wiring, self.job.wiring_added):
                for dependent in wiring.dependents.get(node_id, ()):
                    if dependent.node not in found:
                        found[dependent.node] = None
                        pending.append(dependent.node)
        return [self.job.nodes[node_id] for node_id in found]


def _did_not_work_out(node: Node) -> bool:
    if node.status is NodeStatus.SKIPPED:
        return node.skip_reason is not SkipReason.NOT_TAKEN
    # A failure that was allowed is settled: its followers ran on it.
    return node.status is NodeStatus.CANCELLED or (node.status is NodeStatus.FAILED and not node.allows_failure)


def _ended_by_a_failure(job: Job) -> bool:
    ended_otherwise = job.cancel_requested or job.deadline_passed
    return job.graph.on_failure is not OnFailure.CONTINUE and not ended_otherwise


def _is_being_stopped(node: Node) -> bool:
    fan = node.parent
    return fan is not None and ((fan.stopped and not fan.is_terminal) or _is_being_stopped(fan))


def _open_run(step: Step, plan: _Plan) -> None:
    job = step.job
    if not plan.opened:
        step.ignore("nothing to run again: every node completed or was not taken")
        return
    for node in plan.opened:
        if is_dormant(node):
            continue
        if node.is_terminal:
            step.move(node, Move.REOPEN)
        forget(node)
        job.changed.append(node)
    if job.status in TERMINAL_JOB:
        job.status = JOB_MOVES[job.status][Move.REOPEN]
    job.run += 1
    job.cancel_requested = job.deadline_passed = job.ending = job.stopping = False
    job.derive()
    step.out.append(Reopen(job.run, tuple(node.id for node in plan.opened if not is_dormant(node))))
    set_deadline(step)
    start_ready_nodes(step)


def set_deadline(step: Step) -> None:
    """Give a run its time, if the workflow has a limit."""
    job = step.job
    seconds = job.graph.deadline_seconds
    job.deadline_at = None if seconds is None else step.now + seconds
    if job.deadline_at is not None:
        step.out.append(WaitUntil(None, job.deadline_at))


def start_ready_nodes(step: Step) -> None:
    """Look at every node that is still to come, once: at the start of a run, nobody else will."""
    job = step.job
    for node in job.walk():
        if isinstance(node, FanOut) and node.status is NodeStatus.RUNNING:
            admit(step, node)
        if node.parent is not None or node.status is not NodeStatus.PENDING:
            continue
        outcome = job.counts[node.id][0] if node.id in job.counts else (OPEN if job.gates(node.id) else SATISFIED)
        if outcome == SATISFIED:
            step.ready.append(node)
        elif outcome != OPEN:
            step.skip(node, SkipReason.NOT_TAKEN if outcome == NOT_TAKEN else SkipReason.UPSTREAM_FAILED)
