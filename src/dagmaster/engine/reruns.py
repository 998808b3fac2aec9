"""New runs of a job: resume, retry of nodes, reinjected items.

A new run reopens nodes and keeps the rest: completed nodes keep their outputs, attempt numbers continue,
retry budgets are reset. Gates and counters are then derived from the node states, exactly as after a reload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.decisions import Reopen, WaitUntil
from dagmaster.engine.fanout import admit, reset, supersede
from dagmaster.engine.gates import NOT_TAKEN, OPEN, SATISFIED
from dagmaster.engine.graph import OnFailure
from dagmaster.engine.groups import groups_of, members
from dagmaster.engine.model import FanOut, Job, Node, fails_job, is_dormant, is_unsuccessful
from dagmaster.engine.status import TERMINAL_JOB, NodeStatus, SkipReason
from dagmaster.engine.transitions import JOB_MOVES, NODE_MOVES, Move

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagmaster.engine.step import Step


def resume(step: Step, named: Iterable[str]) -> None:
    """Rerun every unsuccessful node, and each named node with its descendants."""
    job = step.job
    if job.status not in TERMINAL_JOB:
        step.ignore("the job is not finished; only a finished job can be resumed")
        return
    unknown = [node_id for node_id in named if node_id not in job.nodes or is_dormant(job.nodes[node_id])]
    if unknown:
        step.ignore(f"no node {unknown[0]!r} in this job", unknown[0])
        return
    plan = _Plan(job)
    for node in job.nodes.values():
        if node.parent is None and is_unsuccessful(node):
            plan.reopen(node)
    for node_id in named:
        for member in (job.nodes[node_id], *_members(job, node_id)):
            if not is_dormant(member):
                plan.restart(member)
    plan.supersede_added()
    _open_run(step, plan)


def retry(step: Step, named: Iterable[str]) -> None:
    """Rerun the named nodes; ignore the event if none can be.

    Nodes that wait for a retry start at once. Finished nodes are reopened in one new run.
    """
    job = step.job
    reasons: dict[str, str] = {}
    chosen: dict[Node, None] = {}
    for node_id in dict.fromkeys(named):
        node = job.nodes.get(node_id)
        reason = f"no node {node_id!r} in this job" if node is None else _reason_against_retry(job, node)
        if node is None or reason is not None:
            reasons[node_id] = reason or ""
        elif node.is_terminal:
            chosen |= dict.fromkeys([node, *filter(is_unsuccessful, _members(job, node_id))])
        else:
            node.wake_at = None
            step.ready.append(node)
    if not chosen:
        if not step.ready:
            step.ignore(next(iter(reasons.values()), "no node was named"), next(iter(reasons), None))
        return
    plan = _Plan(job)
    for node in chosen:
        plan.reopen(node)
    for top in dict.fromkeys(node.top for node in chosen):
        plan.reopen_affected_by(top)
    _open_run(step, plan, len(reasons))


def _reason_against_retry(job: Job, node: Node) -> str | None:
    if node.status is NodeStatus.READY and node.wake_at is not None and not job.ending:
        return None
    if node.status not in (NodeStatus.FAILED, NodeStatus.CANCELLED):
        return f"node {node.id} is {node.status}; only a failed or cancelled node can be retried"
    if (job.ending and job.status not in TERMINAL_JOB) or _is_being_stopped(node):
        return "running tasks are being stopped; retry the node when they have stopped"
    return None


def reinject(step: Step, fan: Node, indexes: Iterable[int]) -> None:
    """Rerun the given children of a finished fan-out, and everything downstream of it."""
    job = step.job
    if job.status not in TERMINAL_JOB or not isinstance(fan, FanOut) or not fan.is_terminal:
        step.ignore("items can be reinjected into a fan-out once its job is finished", fan.id)
        return
    invalid = [index for index in indexes if not 0 <= index < fan.expanded]
    if invalid:
        step.ignore(f"fan-out {fan.id} has no item {invalid[0]}", fan.id)
        return
    plan = _Plan(job)
    for index in indexes:
        plan.restart(fan.children[index])
    plan.supersede_added()
    _open_run(step, plan)


class _Plan:
    """The nodes that a new run reopens."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.reopened: dict[Node, None] = {}
        # Fan-outs of which only one child may be reopened are not in here.
        self.planned: set[Node] = set()
        self.restarted: set[Node] = set()
        self.superseded: dict[Node, None] = {}
        self.adders: list[str] = []

    def reopen(self, node: Node) -> None:
        """Reopen a node; of a fan-out whose source is frozen, only the unsuccessful children."""
        if node in self.planned:
            return
        self.planned.add(node)
        self.reopened[node] = None
        if node.parent is not None:
            self._reopen_parent(node.parent)
        self._reopen_groups(node.top)
        if isinstance(node, FanOut) and node.total is not None:
            for child in node.children[: node.expanded]:
                if is_unsuccessful(child):
                    self.reopen(child)

    def restart(self, node: Node) -> None:
        """Reopen a node and its descendants from scratch."""
        self._restart_all((node, *self._descendants([node.top])))
        if node.parent is not None:
            self._reopen_parent(node.parent)

    def _restart_all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if isinstance(node, FanOut):
                children = supersede(node)
                self.job.changed += children
                self.superseded |= dict.fromkeys(children)
            self.reopened[node] = None
            self.restarted.add(node)

    def supersede_added(self) -> None:
        """Take back what the restarted nodes had added: they add it again.

        What depended on it is also restarted.
        """
        added: dict[str, list[Node]] = {}
        for node in self.job.nodes.values():
            if node.spec.added_by is not None and node.parent is None and not is_dormant(node):
                added.setdefault(node.spec.added_by, []).append(node)
        # Children of fan-outs that are expanded again are superseded themselves.
        while adders := [adder for adder in added if self._runs_again(self.job.nodes[adder])]:
            superseded = [node for adder in adders for node in added.pop(adder)]
            self.adders += adders
            self.superseded |= dict.fromkeys(superseded)
            self._restart_all(node for node in self._descendants(superseded) if node not in self.superseded)
        for node in self.superseded:
            self.reopened.pop(node, None)

    def _runs_again(self, node: Node) -> bool:
        return node in self.restarted or node in self.superseded

    def reopen_affected_by(self, node: Node) -> None:
        """Reopen the nodes skipped because of this one, and if it ended the job, the cancelled ones."""
        job = self.job
        for descendant in self._descendants([node]):
            if descendant.status is not NodeStatus.FAILED and is_unsuccessful(descendant):
                self.reopen(descendant)
        if fails_job(node) and _ended_by_failure(job):
            for other in job.walk():
                cancelled = other.status is NodeStatus.CANCELLED or other.skip_reason is SkipReason.JOB_FAILED
                if other.parent is None and cancelled:
                    self.reopen(other)

    def _reopen_parent(self, fan: FanOut) -> None:
        if fan.is_terminal:
            self.reopened[fan] = None
            if fan.parent is not None:
                self._reopen_parent(fan.parent)

    def _reopen_groups(self, node: Node) -> None:
        """Reopen the groups that a node is in: none is complete while a member is open."""
        for group_id in groups_of(self.job.graph.specs, node.id):
            if self.job.nodes[group_id].is_terminal:
                self.reopened[self.job.nodes[group_id]] = None

    def _descendants(self, nodes: Iterable[Node]) -> list[Node]:
        seen: dict[str, None] = {}
        pending = [node.id for node in nodes]
        while pending:
            node_id = pending.pop()
            for dependent in self.job.graph.wiring.dependents.get(node_id, ()):
                if dependent.node not in seen and not is_dormant(self.job.nodes[dependent.node]):
                    seen[dependent.node] = None
                    pending.append(dependent.node)
        return [self.job.nodes[node_id] for node_id in seen]


def _members(job: Job, node_id: str) -> Iterator[Node]:
    """Yield the members of a group at any depth, groups included; nothing for another node."""
    if node_id in job.graph.specs:
        for member in members(job.graph.specs[node_id]):
            yield job.nodes[member]
            yield from _members(job, member)


def _ended_by_failure(job: Job) -> bool:
    ended_otherwise = job.cancel_requested or job.deadline_passed
    return job.graph.on_failure is not OnFailure.CONTINUE and not ended_otherwise


def _is_being_stopped(node: Node) -> bool:
    fan = node.parent
    return fan is not None and ((fan.stopped and not fan.is_terminal) or _is_being_stopped(fan))


def _open_run(step: Step, plan: _Plan, skipped: int = 0) -> None:
    job = step.job
    if not plan.reopened:
        step.ignore("nothing to rerun: every node completed or was not taken")
        return
    for node in plan.superseded:
        if node.parent is None:
            reset(node)
            node.status = NODE_MOVES[node.status][Move.SUPERSEDE]
            node.skip_reason = SkipReason.SUPERSEDED
            job.changed.append(node)
    for node in plan.reopened:
        if is_dormant(node):
            continue
        if node.is_terminal:
            step.move(node, Move.REOPEN)
        reset(node)
        job.changed.append(node)
    if job.status in TERMINAL_JOB:
        job.status = JOB_MOVES[job.status][Move.REOPEN]
    job.run += 1
    job.cancel_requested = job.deadline_passed = job.ending = job.stopping = False
    job.derive()
    reopened = tuple(node.id for node in plan.reopened if not is_dormant(node))
    superseded = tuple(node.id for node in plan.superseded)
    step.out.append(Reopen(job.run, reopened, skipped, superseded, tuple(plan.adders)))
    set_deadline(step)
    start_ready_nodes(step)


def set_deadline(step: Step) -> None:
    """Set the deadline of a new run, if the workflow has one."""
    job = step.job
    seconds = job.graph.deadline_seconds
    job.deadline_at = None if seconds is None else step.now + seconds
    if job.deadline_at is not None:
        step.out.append(WaitUntil(None, job.deadline_at))


def start_ready_nodes(step: Step) -> None:
    """Evaluate every PENDING node once: at the start of a run no event has done so."""
    job = step.job
    job.backlog.replace(())
    for node in job.walk():
        if isinstance(node, FanOut) and node.status is NodeStatus.RUNNING:
            admit(step, node)
        if node.parent is not None or node.status is not NodeStatus.PENDING:
            continue
        outcome = job.gate_outcome(node.id)
        if outcome == SATISFIED:
            step.ready.append(node)
        elif outcome != OPEN:
            step.skip(node, SkipReason.NOT_TAKEN if outcome == NOT_TAKEN else SkipReason.UPSTREAM_FAILED)
