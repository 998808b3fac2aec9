"""Why a job and each of its nodes stand where they stand: reasons, chains of causes, and what comes first.

Pure: a job, rebuilt from its rows, and its surroundings go in. Every node has a reason, so every job has one. What one
reason costs is the node's own edges; a fan-out's is its children.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.diagnosis import active_nodes
from dagmaster.engine.diagnosis.finished_nodes import by_whom, first_failure, over
from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode
from dagmaster.engine.gates import OPEN
from dagmaster.engine.graph import ApprovalSpec, ConditionalSpec, GateKind, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.engine.model import FanOut, is_dormant, leaf_outcome
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus
from dagmaster.text_format import age, counted, format_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagmaster.engine.diagnosis.context import DiagnosisContext
    from dagmaster.engine.model import Job, Node

THE_JOB: Final = "the job"
_TELLING: Final = 3
_EXAMPLES: Final = 3


class Link(NamedTuple):
    """A link of a chain of causes: a node (or the job), and its reason."""

    subject: str
    reason: Reason


@dataclass(slots=True)
class Group:
    """Nodes of which the same is to be said. `fan_out`: all are children of it."""

    reason: Reason
    count: int
    examples: list[str]
    fan_out: str | None = None

    @property
    def subject(self) -> str:
        """Who they are."""
        if self.count == 1:
            return self.examples[0]
        return f"{self.count:,} children of {self.fan_out}" if self.fan_out else counted(self.count, "node")

    @property
    def sentence(self) -> str:
        """What is said of them."""
        return brief(self.reason).sentence if self.count == 1 else self.reason.together

    def document(self) -> dict[str, Any]:
        """The group for programs."""
        found = {"code": self.reason.code.value, "count": self.count, "sentence": f"{self.subject} {self.sentence}"}
        return found | {"fan_out": self.fan_out, "examples": self.examples}


class Why:
    """The explanation of one job."""

    def __init__(self, job: Job, around: DiagnosisContext) -> None:
        self.job = job
        self.around = around
        self._known: dict[str, Reason] = {}
        self._roots: dict[str, tuple[int, str | None]] = {}
        self._groups: list[Group] | None = None

    # ── One node ──

    def of(self, node_id: str) -> Reason:
        """Why a node stands where it stands."""
        found = self._known.get(node_id)
        if found is None:
            node = self.job.nodes[node_id]
            found = over(self.job, node, self.around) if node.is_terminal else self._open(node)
            self._known[node_id] = found
        return found

    def _open(self, node: Node) -> Reason:
        if self.job.status is JobStatus.PENDING:
            return active_nodes.not_started(self.job)
        match node.status:
            case NodeStatus.PENDING:
                return self._pending(node)
            case NodeStatus.READY if node.wake_at is not None:
                return self._rests(node)
            case NodeStatus.WAITING:
                return self._waiting(node)
            case NodeStatus.DISPATCHED | NodeStatus.RUNNING:
                return self._out(node)
        return active_nodes.in_hand()

    def _rests(self, node: Node) -> Reason:
        most = node.spec.retry.max_attempts if isinstance(node.spec, TaskSpec) else 1
        wake_at = node.wake_at or self.around.now
        return active_nodes.retry(
            node.error or {}, node.failed_attempts + 1, most, wake_at=wake_at, now=self.around.now
        )

    def _out(self, node: Node) -> Reason:
        around, spec = self.around, node.spec
        if isinstance(node, FanOut):
            return self._fan_out(node)
        if isinstance(spec, WorkflowSpec):
            child = around.child_jobs.get(node.id)
            if child is not None and child.status in TERMINAL_JOB:
                return active_nodes.in_hand(
                    f"child job {child.id} is {child.status}, the job's owner takes that up next"
                )
            return active_nodes.child_job(child)
        return active_nodes.task(node, around.tasks.get(node.id), around.reports.get(node.id), around)

    def _waiting(self, node: Node) -> Reason:
        spec, now = node.spec, self.around.now
        if isinstance(spec, ApprovalSpec):
            return active_nodes.approval(spec, self.around.questions.get(node.id, ""), node.wake_at, now)
        if isinstance(spec, WaitSpec):
            return active_nodes.pause(spec, node.wake_at, now)
        return active_nodes.in_hand()

    def _pending(self, node: Node) -> Reason:
        fan = node.parent
        if fan is not None:
            if fan.status is not NodeStatus.RUNNING:
                return active_nodes.for_nodes([fan.id], None)
            return active_nodes.in_hand() if fan.spec.max_parallel is None else active_nodes.for_place(fan)
        names = self._open_before(node)
        if not names:
            return active_nodes.in_hand()
        first = self.job.nodes[names[0]]
        # What only waits itself is the next link of the chain, and would make an endless sentence here.
        said = None if first.status is NodeStatus.PENDING or isinstance(first, FanOut) else self.of(first.id)
        is_any = self.job.gates(node.id)[0].kind is GateKind.ANY
        return active_nodes.for_nodes(names, said, any_of=is_any and len(names) > 1)

    def _open_before(self, node: Node) -> list[str]:
        """The nodes before this one that are not over, and on which it still depends."""
        job = self.job
        gates, counts = job.gates(node.id), job.counts.get(node.id)

        def matters(gate: int) -> bool:
            while gate >= 0:
                if counts is not None and counts[4 * gate] != OPEN:
                    return False
                gate = gates[gate].parent
            return True

        found = (
            leaf.node
            for leaf, gate in job.leaves(node.id)
            if leaf_outcome(job.nodes[leaf.node], leaf.branch) == OPEN and matters(gate)
        )
        return list(dict.fromkeys(found))

    def _fan_out(self, fan: FanOut) -> Reason:
        unfinished = [child for child in fan.children[: fan.expanded] if not child.is_terminal]
        reasons = [(self.of(child.id), child.id) for child in unfinished]
        first = heapq.nsmallest(_TELLING, reasons, key=lambda each: each[0].rank)
        counts: dict[str, int] = {}
        for reason, _ in reasons:
            word = _WORDS.get(reason.code, "wait")
            counts[word] = counts.get(word, 0) + 1
        return active_nodes.for_children(fan, [child_id for _, child_id in first], counts)

    # ── Chains ──

    def chain(self, node_id: str) -> list[Link]:
        """From a node down to the root of it: of several causes, the one whose root matters most."""
        links: list[Link] = []
        place: str | None = node_id
        while place is not None:
            links.append(Link(place, brief(self.of(place))))
            place = self._root(place)[1]
        if not self.job.nodes[node_id].is_terminal:
            blocked = self.blocked()
            if blocked is not None:
                links.append(Link(THE_JOB, blocked))
        return links

    def _root(self, node_id: str) -> tuple[int, str | None]:
        """The rank of a node's root cause, and the first step to it. No recursion: a chain is as long as it is."""
        known = self._roots
        pending = [node_id]
        while pending:
            place = pending[-1]
            if place in known:
                pending.pop()
                continue
            reason = self.of(place)
            before = [each for each in reason.because if each not in known]
            if before:
                pending += before
                continue
            best = min(((known[each][0], each) for each in reason.because), default=None, key=lambda each: each[0])
            known[place] = (reason.rank, None) if best is None else best
            pending.pop()
        return known[node_id]

    # ── The job ──

    def blocked(self) -> Reason | None:
        """Why nobody moves the job; None if it is over, or if its owner is well."""
        return None if self.job.status in TERMINAL_JOB else active_nodes.nobody_moves(self.around)

    def head(self) -> Reason:
        """The one reason of the job that comes first."""
        job = self.job
        if job.status in TERMINAL_JOB:
            return self._ended()
        blocked = self.blocked()
        if blocked is not None:
            return blocked
        ending = self._ending()
        if ending is not None:
            return ending
        if job.status is JobStatus.PENDING:
            return active_nodes.in_hand("it starts within a moment")
        group = next((each for each in self.groups() if not self.job.nodes[each.examples[0]].is_terminal), None)
        if group is None:
            return active_nodes.in_hand("all nodes are over, and the result is being worked out")
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
            1 for node in job.nodes.values() if not (node.is_terminal or is_dormant(node) or isinstance(node, FanOut))
        )
        left = counted(count, "node is not over yet", "nodes are not over yet")
        if job.cancel_requested:
            who = f"{self.around.cancelled_by or 'somebody'} asked for it"
            when = "" if self.around.cancelled_at is None else f" {age(self.around.now - self.around.cancelled_at)} ago"
            return self._by_cancel(f"is being cancelled: {who}{when}, and {left}")
        if job.deadline_passed:
            return Reason(code=ReasonCode.JOB_DEADLINE, sentence=f"did not keep its deadline, and ends: {left}")
        first = first_failure(job)
        if first is None:
            return None
        said = f"is failing, since {first.id} failed ({format_error(first.error or {})}): {left}"
        return Reason(code=ReasonCode.JOB_FAILED, sentence=said, data={"node": first.id}, because=(first.id,))

    def _by_cancel(self, sentence: str) -> Reason:
        data = {"by": self.around.cancelled_by, "at": self.around.cancelled_at}
        return Reason(code=ReasonCode.JOB_CANCELLED, sentence=sentence, data=data)

    def _ended(self) -> Reason:
        job, error = self.job, dict(self.around.error or {})
        if job.status is JobStatus.COMPLETED:
            ago = "" if self.around.finished_at is None else f" {age(self.around.now - self.around.finished_at)} ago"
            return Reason(code=ReasonCode.JOB_COMPLETED, sentence=f"completed{ago}")
        if job.status is JobStatus.CANCELLED:
            return self._by_cancel(f"was cancelled{by_whom(self.around)}")
        said = f"failed: {format_error(error) or 'no reason was given'}"
        if error.get("kind") == "deadline":
            return Reason(code=ReasonCode.JOB_DEADLINE, sentence=said, data={"error": error})
        node = error.get("node")
        because = (str(node),) if node in job.nodes else ()
        root = self.chain(because[0])[-1].subject if because else None
        if root is not None and root != node:
            # A fan-out fails by its children: what was wrong with the first of them comes first.
            said = f"failed at {root}: {format_error(job.nodes[root].error or {})} ({format_error(error)})"
        data = {"error": error, "node": node, "root": root}
        return Reason(code=ReasonCode.JOB_FAILED, sentence=said, data=data, because=because)

    def groups(self) -> list[Group]:
        """All nodes, those of which the same is said together; what matters most comes first."""
        if self._groups is None:
            self._groups = self._grouped()
        return self._groups

    def _grouped(self) -> list[Group]:
        found: dict[tuple[ReasonCode, str, str | None], Group] = {}
        for node in self.nodes():
            reason = self.of(node.id)
            fan = None if node.parent is None else node.top.id
            # One sentence for the likes of it; what has none stands alone.
            key = (reason.code, reason.together or f"{node.id} {reason.sentence}", fan)
            group = found.get(key)
            if group is None:
                found[key] = Group(reason, 1, [node.id], fan)
                continue
            group.count += 1
            if len(group.examples) < _EXAMPLES:
                group.examples.append(node.id)
        return sorted(found.values(), key=lambda group: (group.reason.rank, -group.count))

    def nodes(self) -> Iterator[Node]:
        """All nodes that count: not those that an earlier run left behind."""
        return (node for node in self.job.walk() if not is_dormant(node))


_WORDS: Final = {
    ReasonCode.RUNNING: "run",
    ReasonCode.CLAIMED: "run",
    ReasonCode.PREFETCHED: "are prefetched",
    ReasonCode.QUEUED: "are queued",
    ReasonCode.NO_WORKER: "wait for a worker",
    ReasonCode.RETRY: "rest before they are tried again",
    ReasonCode.CHILD_JOB: "wait for child jobs",
    ReasonCode.REPORTED: "were reported",
    ReasonCode.STOPPING: "are to stop",
    ReasonCode.MAX_PARALLEL: "wait for a place",
}


def brief(reason: Reason) -> Reason:
    """A reason where that of the node it waits for stands beside it, and is not to be said twice."""
    if reason.code is not ReasonCode.NODES:
        return reason
    return replace(reason, sentence=reason.sentence.partition(" (it ")[0])


def quoted(job: Job) -> Iterable[str]:
    """The nodes whose outputs a reason may quote: conditionals with what they read, and approvals."""
    wanted: set[str] = set()
    for node_id, spec in job.graph.specs.items():
        if isinstance(spec, ApprovalSpec | ConditionalSpec):
            wanted.add(node_id)
        if isinstance(spec, ConditionalSpec):
            wanted |= {str(ref[1]) for ref in spec.refs if ref[0] == "nodes" and ref[2] == "output"}
    return sorted(wanted)
