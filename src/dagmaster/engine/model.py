"""The state of a job: its nodes, and the counters that avoid a rescan.

`NodeRow` and `JobRow` are what is stored of a node and of a job. Everything else here is derived from them:
`Job.rebuild` returns a job that decides exactly as the one that was stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.engine.backlog import Backlog
from dagmaster.engine.gates import BROKEN, NOT_TAKEN, OPEN, SATISFIED, count
from dagmaster.engine.graph import FanOutSpec, OnItemError, TaskSpec
from dagmaster.engine.status import TERMINAL_NODE, JobStatus, NodeStatus, SkipReason
from dagmaster.engine.stored_rows import JobRow, NodeRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagmaster.engine.graph import FlatGate, Graph, Leaf, Spec
    from dagmaster.json_types import JsonObject


class Node:
    """One node of a job."""

    __slots__ = (
        "attempt",
        "branch",
        "error",
        "failed_attempts",
        "fingerprint",
        "finished_seq",
        "handler_version",
        "id",
        "index",
        "lost_attempts",
        "parent",
        "shared_losses",
        "skip_reason",
        "spec",
        "status",
        "stopped",
        "upstream",
        "wake_at",
    )

    def __init__(self, node_id: str, spec: Spec, parent: FanOut | None = None, index: int = -1) -> None:
        self.id = node_id
        self.spec = spec
        self.parent = parent
        self.index = index
        self.status = NodeStatus.PENDING
        self.skip_reason: SkipReason | None = None
        # A cancel of this node was requested, which is its `error` until it ends; or the children of a
        # fan-out are stopped because too many failed.
        self.stopped = False
        self.attempt = 0
        self.failed_attempts = 0
        self.lost_attempts = 0
        # Attempts lost with a worker that also held other tasks: they are not charged.
        self.shared_losses = 0
        self.upstream: str | None = None
        self.branch: str | None = None
        self.wake_at: float | None = None
        self.finished_seq: int | None = None
        self.error: dict[str, Any] | None = None
        # Identifies what the result depends on: see `fingerprints`. The orchestrator, which knows the values,
        # sets it.
        self.fingerprint: bytes | None = None
        self.handler_version: str | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL_NODE

    @property
    def cancel_request(self) -> JsonObject | None:
        """Return the request to cancel this node alone, which says by whom: its error.

        None without one.
        """
        return self.error if self.stopped and (self.error or {}).get("kind") == "cancelled" else None

    @property
    def allows_failure(self) -> bool:
        """Return whether a failure satisfies the node's dependents.

        A child has none: it counts for its fan-out.
        """
        return self.parent is None and isinstance(self.spec, TaskSpec) and self.spec.allow_failure

    @property
    def top(self) -> Node:
        """Return the node of the graph that this node is, or is a child of at any depth."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def index_path(self) -> tuple[int, ...]:
        """Return the indexes of a child, outermost first: `a__0__3` is (0, 3)."""
        return () if self.parent is None else (*self.parent.index_path(), self.index)


class FanOut(Node):
    """A fan-out and its children.

    `total` is known once the source is frozen; children past `expanded` are dormant.
    """

    __slots__ = ("active", "children", "completed", "cursor", "expanded", "failed", "open", "total")

    spec: FanOutSpec

    def __init__(self, node_id: str, spec: FanOutSpec, parent: FanOut | None = None, index: int = -1) -> None:
        super().__init__(node_id, spec, parent, index)
        self.children: list[Node] = []
        self.total: int | None = None
        self.expanded = 0
        self.open = 0
        self.active = 0
        self.completed = 0
        self.failed = 0
        self.cursor = 0

    def recount(self) -> None:
        children = self.children[: self.expanded]
        self.open = sum(1 for child in children if child.status not in TERMINAL_NODE)
        pending = sum(1 for child in children if child.status is NodeStatus.PENDING)
        self.active = self.open - pending
        self.completed = sum(1 for child in children if child.status is NodeStatus.COMPLETED)
        self.failed = sum(1 for child in children if child.status is NodeStatus.FAILED)
        self.cursor = next(
            (i for i, c in enumerate(children) if c.status is NodeStatus.PENDING), len(children)
        )

    def close_admission(self) -> None:
        """Admit no further child.

        Children not admitted count as active, so that each frees a slot when it settles.
        """
        self.cursor = self.expanded
        self.active = self.open
        self.wake_at = None

    def tolerates_failures(self) -> bool:
        """Return whether the fan-out can complete despite the failures so far."""
        is_tolerant = self.spec.on_item_error is not OnItemError.FAIL
        return is_tolerant or self.spec.tolerance.allows(self.failed, self.total or 0)


def row_of(node: Node) -> NodeRow:
    total, expanded = (node.total, node.expanded) if isinstance(node, FanOut) else (None, 0)
    parent = None if node.parent is None else node.parent.id
    return NodeRow(
        node.id, node.status, parent, node.index, node.skip_reason, node.attempt, node.failed_attempts,
        node.lost_attempts, node.shared_losses, node.upstream, node.branch, node.wake_at, node.finished_seq,
        node.error, total, expanded, node.stopped, node.fingerprint, node.handler_version,
    )  # fmt: skip


class Job:
    """One execution of a graph."""

    __slots__ = (
        "backlog",
        "cancel_requested",
        "changed",
        "children_made",
        "counts",
        "deadline_at",
        "deadline_passed",
        "ending",
        "failed",
        "finish_seq",
        "graph",
        "id",
        "nodes",
        "open",
        "owns_graph",
        "run",
        "signals",
        "stand_ins",
        "standing_for",
        "status",
        "stopping",
        "superseded",
    )

    def __init__(self, job_id: str, graph: Graph) -> None:
        self.id = job_id
        self.graph = graph
        self.owns_graph = False
        self.status = JobStatus.PENDING
        self.run = 1
        self.cancel_requested = False
        self.deadline_at: float | None = None
        self.deadline_passed = False
        # `ending`: nothing new starts. `stopping`: running tasks are also asked to stop. Both are stored,
        # since they cannot be derived from the nodes: a failure of an earlier run ends nothing.
        self.ending = False
        self.stopping = False
        self.signals: JsonObject = {}
        self.nodes: dict[str, Node] = {
            node_id: new_node(node_id, spec) for node_id, spec in graph.specs.items()
        }
        # Everything below is derived from the fields above.
        self.counts: dict[str, list[int]] = {}
        self.open = len(self.nodes)
        self.failed = 0
        self.finish_seq = 0
        self.children_made = 0
        self.backlog = Backlog()
        # Nodes that an earlier run added, by the node that added them, and their stand-ins: see `stand_ins`.
        self.superseded: dict[str, list[str]] = {}
        self.stand_ins: dict[str, str] = {}
        self.standing_for: dict[str, dict[str, None]] = {}
        # Nodes touched since the orchestrator last drained them, with repetitions.
        self.changed: list[Node] = []

    @classmethod
    def rebuild(cls, graph: Graph, row: JobRow, rows: Iterable[NodeRow]) -> Job:
        """Return the job that these rows were stored from. A parent's row may come after its children's."""
        job = cls(row.id, graph)
        job.status = row.status
        job.run = row.run
        job.cancel_requested = row.cancel_requested
        job.deadline_at = row.deadline_at
        job.deadline_passed = row.deadline_passed
        job.ending = row.ending
        job.stopping = row.stopping
        job.signals = dict(row.signals)
        # A child's index path is longer than its parent's, so parents come first.
        for stored in sorted(rows, key=lambda stored: (stored.id.count("__"), stored.fan_out_index)):
            job._restore(stored)
        job.derive()
        return job

    def _restore(self, row: NodeRow) -> None:
        if row.parent is None:
            node = self.nodes[row.id]
        else:
            parent = self.nodes[row.parent]
            assert isinstance(parent, FanOut)  # noqa: S101 - for mypy; only fan-outs have children
            node = self.new_child(parent)
        node.status = row.status
        node.skip_reason = row.skip_reason
        node.attempt = row.attempt
        node.failed_attempts = row.failed_attempts
        node.lost_attempts = row.lost_attempts
        node.shared_losses = row.shared_losses
        node.upstream = row.upstream
        node.branch = row.branch
        node.wake_at = row.wake_at
        node.finished_seq = row.finished_seq
        node.error = row.error
        node.stopped = row.stopped
        node.fingerprint = row.fingerprint
        node.handler_version = row.handler_version
        if isinstance(node, FanOut):
            node.total = row.total
            node.expanded = row.expanded

    def row(self) -> JobRow:
        return JobRow(
            id=self.id,
            status=self.status,
            run=self.run,
            cancel_requested=self.cancel_requested,
            deadline_at=self.deadline_at,
            deadline_passed=self.deadline_passed,
            ending=self.ending,
            stopping=self.stopping,
            signals=dict(self.signals),
        )

    def drain_changed(self) -> list[Node]:
        """Return the nodes that changed since the last call, each once."""
        changed = list(dict.fromkeys(self.changed))
        self.changed.clear()
        return changed

    def walk(self) -> Iterator[Node]:
        """Yield all nodes in the same order after a rebuild, unlike `nodes`."""
        pending = [self.nodes[node_id] for node_id in self.graph.specs][::-1]
        while pending:
            node = pending.pop()
            yield node
            if isinstance(node, FanOut):
                pending += node.children[::-1]

    def own_graph(self) -> Graph:
        """Return a graph that only this job has, so that it can grow."""
        if not self.owns_graph:
            graph = self.graph
            self.graph = replace(graph, specs=dict(graph.specs), wiring=graph.wiring.copy())
            self.owns_graph = True
        return self.graph

    def put(self, spec: Spec) -> Node:
        """Return the node of a spec that was put into the graph: a new one, or the existing one."""
        node = self.nodes.get(spec.id)
        if node is None:
            node = self.nodes[spec.id] = new_node(spec.id, spec)
            self.open += 1
        else:
            node.spec = spec
            self.counts.pop(spec.id, None)
        return node

    def new_child(self, fan: FanOut) -> Node:
        index = len(fan.children)
        node = new_node(f"{fan.id}__{index}", fan.spec.child, fan, index)
        fan.children.append(node)
        self.nodes[node.id] = node
        self.children_made += 1
        return node

    def gates(self, node_id: str) -> tuple[FlatGate, ...]:
        return self.graph.wiring.gates.get(node_id, ())

    def leaves(self, node_id: str) -> tuple[tuple[Leaf, int], ...]:
        """Return the leaves of a node's dependency expression, each with the number of its gate."""
        return self.graph.wiring.leaves.get(node_id, ())

    def record_leaf(self, node_id: str, gate: int, outcome: int) -> int:
        """Count one settled leaf; return the outcome of the whole expression, or OPEN."""
        gates = self.gates(node_id)
        counts = self.counts.get(node_id)
        if counts is None:
            counts = self.counts[node_id] = [0] * (4 * len(gates))
        return count(gates, counts, gate, outcome)

    def derive(self) -> None:
        for node in self.nodes.values():
            if isinstance(node, FanOut):
                node.recount()
        live = [node for node in self.nodes.values() if not is_dormant(node)]
        self.open = sum(not node.is_terminal for node in live)
        self.failed = sum(map(fails_job, live))
        self.finish_seq = max((node.finished_seq or 0 for node in self.nodes.values()), default=0)
        self._derive_gates(
            [node.id for node in live if node.parent is None and node.status is NodeStatus.PENDING]
        )

    def _derive_gates(self, pending: list[str]) -> None:
        """Count what has settled before the pending nodes, and queue those that can start."""
        self.counts = {}
        if self.superseded or any(is_dormant(self.nodes[node_id]) for node_id in self.graph.specs):
            from dagmaster.engine.stand_ins import derive_stand_ins

            derive_stand_ins(self)
        for node_id in pending:
            self._count_leaves(node_id)
        ready = [node_id for node_id in pending if self.gate_outcome(node_id) == SATISFIED]
        # An ending job starts nothing.
        self.backlog.replace(ready if self.status is JobStatus.RUNNING else ())

    def _count_leaves(self, node_id: str) -> None:
        """Count the leaves of a pending node that are settled already."""
        for leaf, gate in self.leaves(node_id):
            outcome = self.leaf_outcome(leaf)
            if outcome != OPEN:
                self.record_leaf(node_id, gate, outcome)

    def leaf_outcome(self, leaf: Leaf) -> int:
        node = self.nodes[leaf.node]
        if node.skip_reason is SkipReason.SUPERSEDED:
            from dagmaster.engine.stand_ins import superseded_outcome

            return superseded_outcome(self, node.id)
        return leaf_outcome(node, leaf.branch)

    def gate_outcome(self, node_id: str) -> int:
        """Return the outcome of the dependency expression of a node, as counted so far."""
        counts = self.counts.get(node_id)
        if counts is not None:
            return counts[0]
        return OPEN if self.gates(node_id) else SATISFIED


def new_node(node_id: str, spec: Spec, parent: FanOut | None = None, index: int = -1) -> Node:
    if isinstance(spec, FanOutSpec):
        return FanOut(node_id, spec, parent, index)
    return Node(node_id, spec, parent, index)


def is_dormant(node: Node) -> bool:
    """Return whether a node is left over from an earlier run, and not part of this one."""
    parent = node.parent
    if parent is None:
        return node.skip_reason is SkipReason.SUPERSEDED
    return node.index >= parent.expanded or is_dormant(parent)


def is_unsuccessful(node: Node) -> bool:
    """Return whether a new run of the job runs this node again."""
    if node.status is NodeStatus.SKIPPED:
        return node.skip_reason not in (SkipReason.NOT_TAKEN, SkipReason.SUPERSEDED)
    # An allowed failure is final: its descendants ran with it.
    return node.status is NodeStatus.CANCELLED or (
        node.status is NodeStatus.FAILED and not node.allows_failure
    )


def fails_job(node: Node) -> bool:
    """Return whether this node makes its job FAILED. A child never does: its fan-out may."""
    return node.parent is None and node.status is NodeStatus.FAILED and not node.allows_failure


def leaf_outcome(node: Node, branch: str | None) -> int:
    """Return the outcome of a node for a leaf that depends on it, or on one of its branches."""
    status = node.status
    if status is NodeStatus.COMPLETED:
        return SATISFIED if branch is None or branch == node.branch else NOT_TAKEN
    if status is NodeStatus.FAILED:
        return SATISFIED if node.allows_failure else BROKEN
    if status is NodeStatus.SKIPPED:
        return NOT_TAKEN if node.skip_reason is SkipReason.NOT_TAKEN else BROKEN
    return BROKEN if status is NodeStatus.CANCELLED else OPEN
