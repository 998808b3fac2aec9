"""Explain a job and each of its nodes: reasons, chains of causes, and which reason matters most.

Pure: the inputs are a job, rebuilt from its rows, and its context. Every node has a reason, so every job has
one. A reason costs the node's own edges; the reason of a fan-out costs its children.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.diagnosis import active_nodes, waiting_nodes
from dagmaster.engine.diagnosis.finished_nodes import explain_finished, first_failure, format_canceller
from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode
from dagmaster.engine.gates import OPEN
from dagmaster.engine.graph import (
    ApprovalSpec,
    ConditionalSpec,
    GateKind,
    GroupSpec,
    TaskSpec,
    WaitSpec,
    WorkflowSpec,
)
from dagmaster.engine.groups import all_members, is_group_start, members
from dagmaster.engine.model import FanOut, is_dormant
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus
from dagmaster.text_format import age, format_count, format_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagmaster.engine.diagnosis.context import DiagnosisContext
    from dagmaster.engine.model import Job, Node

THE_JOB: Final = "the job"
_NAMED_CHILDREN: Final = 3
_EXAMPLES: Final = 3


class Link(NamedTuple):
    """A link of a chain of causes: a node (or the job), and its reason."""

    subject: str
    reason: Reason


@dataclass(slots=True)
class Group:
    """Nodes with the same reason. `fan_out`: all are children of it."""

    reason: Reason
    count: int
    examples: list[str]
    fan_out: str | None = None

    @property
    def subject(self) -> str:
        if self.count == 1:
            return self.examples[0]
        return (
            f"{self.count:,} children of {self.fan_out}" if self.fan_out else format_count(self.count, "node")
        )

    @property
    def sentence(self) -> str:
        return without_cause(self.reason).sentence if self.count == 1 else self.reason.group_sentence

    def to_dict(self) -> dict[str, Any]:
        group = {
            "code": self.reason.code.value,
            "count": self.count,
            "sentence": f"{self.subject} {self.sentence}",
        }
        return group | {"fan_out": self.fan_out, "examples": self.examples}


class Why:
    """The explanation of one job."""

    def __init__(self, job: Job, context: DiagnosisContext) -> None:
        self.job = job
        self.context = context
        self._reasons: dict[str, Reason] = {}
        self._roots: dict[str, tuple[int, str | None]] = {}
        self._groups: list[Group] | None = None
        self._member_counts: dict[str, tuple[int, int]] = {}

    # ── One node ──

    def reason_for(self, node_id: str) -> Reason:
        reason = self._reasons.get(node_id)
        if reason is None:
            node = self.job.nodes[node_id]
            reason = (
                explain_finished(self.job, node, self.context) if node.is_terminal else self._unfinished(node)
            )
            self._reasons[node_id] = reason
        return reason

    def _unfinished(self, node: Node) -> Reason:
        if self.job.status is JobStatus.PENDING:
            return active_nodes.not_started(self.job)
        match node.status:
            case NodeStatus.PENDING:
                return self._pending(node)
            case NodeStatus.READY if node.wake_at is not None:
                return self._waiting_for_retry(node)
            case NodeStatus.WAITING:
                return self._waiting(node)
            case NodeStatus.DISPATCHED | NodeStatus.RUNNING:
                return self._in_flight(node)
        return active_nodes.deciding()

    def _waiting_for_retry(self, node: Node) -> Reason:
        limit = node.spec.retry.max_attempts if isinstance(node.spec, TaskSpec) else 1
        wake_at = node.wake_at or self.context.now
        return active_nodes.waiting_for_retry(
            node.error or {}, node.failed_attempts + 1, limit, wake_at=wake_at, now=self.context.now
        )

    def _in_flight(self, node: Node) -> Reason:
        context, spec = self.context, node.spec
        if isinstance(node, FanOut):
            return self._fan_out(node)
        if isinstance(spec, WorkflowSpec):
            child = context.child_jobs.get(node.id)
            if child is not None and child.status in TERMINAL_JOB:
                return active_nodes.deciding(f"child job {child.id} is {child.status}")
            return active_nodes.waiting_for_child_job(child, node.cancel_request)
        return active_nodes.task_in_flight(
            node, context.tasks.get(node.id), context.reports.get(node.id), context
        )

    def _waiting(self, node: Node) -> Reason:
        spec, now = node.spec, self.context.now
        if isinstance(spec, ApprovalSpec):
            return waiting_nodes.waiting_for_approval(
                spec, self.context.approval_messages.get(node.id, ""), node.wake_at, now
            )
        if isinstance(spec, WaitSpec):
            return waiting_nodes.waiting_for_signal_or_time(spec, node.wake_at, now)
        return active_nodes.deciding()

    def _pending(self, node: Node) -> Reason:
        fan = node.parent
        if fan is not None:
            if fan.status is not NodeStatus.RUNNING:
                return active_nodes.waiting_for_nodes([fan.id], None)
            return (
                active_nodes.deciding()
                if fan.spec.max_parallel is None
                else active_nodes.waiting_for_slot(fan)
            )
        names = self._open_upstream(node)
        if not names:
            return active_nodes.deciding()
        if members(node.spec):
            return active_nodes.waiting_for_members(names, *self._count_members(node.id))
        first = self.job.nodes[names[0]]
        if len(names) == 1 and members(first.spec):
            return active_nodes.waiting_for_group(first.id, *self._count_members(first.id))
        # A PENDING node is the next link of the chain; to nest its sentence here would make this one endless.
        cause = (
            None
            if first.status is NodeStatus.PENDING or isinstance(first, FanOut)
            else self.reason_for(first.id)
        )
        is_any = self.job.gates(node.id)[0].kind is GateKind.ANY
        groups = [name for name in names if isinstance(self.job.nodes[name].spec, GroupSpec)]
        return active_nodes.waiting_for_nodes(names, cause, any_of=is_any and len(names) > 1, groups=groups)

    def _count_members(self, group_id: str) -> tuple[int, int]:
        """Count the nodes of a group, at any depth: the unfinished ones, and all."""
        if group_id not in self._member_counts:
            nodes = [self.job.nodes[node_id] for node_id in all_members(self.job.graph.specs, group_id)]
            self._member_counts[group_id] = sum(not node.is_terminal for node in nodes), len(nodes)
        return self._member_counts[group_id]

    def _open_upstream(self, node: Node) -> list[str]:
        """Return the unfinished upstream nodes on which this one still depends."""
        job = self.job
        gates, counts = job.gates(node.id), job.counts.get(node.id)

        def matters(gate: int) -> bool:
            while gate >= 0:
                if counts is not None and counts[4 * gate] != OPEN:
                    return False
                gate = gates[gate].parent
            return True

        names = (
            job.stand_ins.get(leaf.node, leaf.node)
            for leaf, gate in job.leaves(node.id)
            if job.leaf_outcome(leaf) == OPEN and matters(gate)
        )
        return [name for upstream in dict.fromkeys(names) for name in self._without_start(upstream)]

    def _without_start(self, name: str) -> list[str]:
        """Return what the start of a group waits for, instead of the start: no author wrote that node."""
        return self._open_upstream(self.job.nodes[name]) if is_group_start(name) else [name]

    def _fan_out(self, fan: FanOut) -> Reason:
        unfinished = [child for child in fan.children[: fan.expanded] if not child.is_terminal]
        reasons = [(self.reason_for(child.id), child.id) for child in unfinished]
        first = heapq.nsmallest(_NAMED_CHILDREN, reasons, key=lambda pair: pair[0].rank)
        counts: dict[ReasonCode, int] = {}
        for reason, _ in reasons:
            counts[reason.code] = counts.get(reason.code, 0) + 1
        return active_nodes.waiting_for_children(fan, [child_id for _, child_id in first], counts)

    # ── Chains ──

    def chain(self, node_id: str) -> list[Link]:
        """Return the chain from a node to its root cause: to the most important of several."""
        links: list[Link] = []
        current: str | None = node_id
        while current is not None:
            links.append(Link(current, without_cause(self.reason_for(current))))
            current = self._root(current)[1]
        if not self.job.nodes[node_id].is_terminal:
            blocked = self.blocked()
            if blocked is not None:
                links.append(Link(THE_JOB, blocked))
        return links

    def _root(self, node_id: str) -> tuple[int, str | None]:
        """Return the rank of a node's root cause, and the next node on the way to it.

        Iterative: chains may be long.
        """
        known = self._roots
        pending = [node_id]
        while pending:
            current = pending[-1]
            if current in known:
                pending.pop()
                continue
            reason = self.reason_for(current)
            unknown = [cause for cause in reason.because if cause not in known]
            if unknown:
                pending += unknown
                continue
            best = min(
                ((known[cause][0], cause) for cause in reason.because), default=None, key=lambda pair: pair[0]
            )
            known[current] = (reason.rank, None) if best is None else best
            pending.pop()
        return known[node_id]

    # ── The job ──

    def blocked(self) -> Reason | None:
        """Return why no orchestrator advances the job; None if it is finished, or if its owner is healthy."""
        return None if self.job.status in TERMINAL_JOB else active_nodes.explain_stalled_job(self.context)

    def head(self) -> Reason:
        job = self.job
        if job.status in TERMINAL_JOB:
            return self._finished()
        blocked = self.blocked()
        if blocked is not None:
            return blocked
        ending = self._ending()
        if ending is not None:
            return ending
        if job.status is JobStatus.PENDING:
            return active_nodes.deciding("its first nodes start next")
        group = next((group for group in self.groups() if not job.nodes[group.examples[0]].is_terminal), None)
        if group is None:
            return active_nodes.deciding("all nodes are finished, the result is computed next")
        reason = group.reason
        return Reason(
            code=reason.code,
            sentence=f"{group.subject} {group.sentence}",
            data={**reason.data, "nodes": group.count},
            because=tuple(group.examples),
        )

    def _ending(self) -> Reason | None:
        job = self.job
        if not job.ending:
            return None
        count = sum(
            1
            for node in job.nodes.values()
            if not (node.is_terminal or is_dormant(node) or isinstance(node, FanOut))
        )
        left = format_count(count, "node is not finished yet", "nodes are not finished yet")
        if job.cancel_requested:
            by = (
                f"{self.context.cancelled_by} requested it"
                if self.context.cancelled_by
                else "it was requested"
            )
            when = (
                ""
                if self.context.cancelled_at is None
                else f" {age(self.context.now - self.context.cancelled_at)} ago"
            )
            return self._cancelled(f"is being cancelled: {by}{when}, and {left}")
        if job.deadline_passed:
            return Reason(
                code=ReasonCode.JOB_DEADLINE, sentence=f"exceeded its deadline and is ending: {left}"
            )
        first = first_failure(job)
        if first is None:
            return None
        sentence = f"is failing because {first.id} failed ({format_error(first.error or {})}): {left}"
        return Reason(
            code=ReasonCode.JOB_FAILED, sentence=sentence, data={"node": first.id}, because=(first.id,)
        )

    def _cancelled(self, sentence: str) -> Reason:
        data = {"by": self.context.cancelled_by, "at": self.context.cancelled_at}
        return Reason(code=ReasonCode.JOB_CANCELLED, sentence=sentence, data=data)

    def _finished(self) -> Reason:
        job, error = self.job, dict(self.context.error or {})
        if job.status is JobStatus.COMPLETED:
            ago = (
                ""
                if self.context.finished_at is None
                else f" {age(self.context.now - self.context.finished_at)} ago"
            )
            return Reason(code=ReasonCode.JOB_COMPLETED, sentence=f"completed{ago}")
        if job.status is JobStatus.CANCELLED:
            return self._cancelled(f"was cancelled{format_canceller(self.context)}")
        sentence = f"failed: {format_error(error) or 'no reason was given'}"
        if error.get("kind") == "deadline":
            return Reason(code=ReasonCode.JOB_DEADLINE, sentence=sentence, data={"error": error})
        node = error.get("node")
        because = (str(node),) if node in job.nodes else ()
        root = self.chain(because[0])[-1].subject if because else None
        if root is not None and root != node:
            # A fan-out fails by its children: the error of the first of them comes first.
            sentence = (
                f"failed at {root}: {format_error(job.nodes[root].error or {})} ({format_error(error)})"
            )
        data = {"error": error, "node": node, "root": root}
        return Reason(code=ReasonCode.JOB_FAILED, sentence=sentence, data=data, because=because)

    def groups(self) -> list[Group]:
        """Return all nodes grouped by reason, the most important group first."""
        if self._groups is None:
            self._groups = self._group()
        return self._groups

    def _group(self) -> list[Group]:
        groups: dict[tuple[ReasonCode, str, str | None], Group] = {}
        for node in self.nodes():
            reason = self.reason_for(node.id)
            fan = None if node.parent is None else node.top.id
            # A reason without a group sentence is a separate group.
            key = (reason.code, reason.group_sentence or f"{node.id} {reason.sentence}", fan)
            group = groups.get(key)
            if group is None:
                groups[key] = Group(reason, 1, [node.id], fan)
                continue
            group.count += 1
            if len(group.examples) < _EXAMPLES:
                group.examples.append(node.id)
        return sorted(groups.values(), key=lambda group: (group.reason.rank, -group.count))

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes but those that an earlier run left behind, and those that no author wrote."""
        return (node for node in self.job.walk() if not is_dormant(node) and not is_group_start(node.id))


def without_cause(reason: Reason) -> Reason:
    """Return the reason without that of the upstream node, for places that show both."""
    if reason.code is not ReasonCode.NODES:
        return reason
    return replace(reason, sentence=reason.sentence.partition(active_nodes.CAUSE)[0])


def nodes_to_quote(job: Job) -> Iterable[str]:
    """Return the nodes whose outputs a reason may quote: approvals, conditionals and what these read."""
    names: set[str] = set()
    for node_id, spec in job.graph.specs.items():
        if isinstance(spec, ApprovalSpec | ConditionalSpec):
            names.add(node_id)
        if isinstance(spec, ConditionalSpec):
            names |= {str(ref[1]) for ref in spec.refs if ref[0] == "nodes" and ref[2] == "output"}
    return sorted(names)
