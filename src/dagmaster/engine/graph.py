"""A compiled workflow: immutable, checked, and indexed so that an event touches only its own edges.

Created by `authoring`, read by the engine. Independent of YAML, of the Python API, and of any job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from dagmaster.engine.retry import DEFAULT_MAX_ATTEMPTS, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dagmaster.engine.expressions.expression import Expression
    from dagmaster.engine.expressions.templates import Template
    from dagmaster.json_types import JsonValue


# The timeout of an attempt when neither the node nor its handler sets one.
DEFAULT_TIMEOUT_SECONDS: Final = 3600.0


class Kind(StrEnum):
    """The node types."""

    START = "start"
    END = "end"
    TASK = "task"
    CONDITIONAL = "conditional"
    FAN_OUT = "fan_out"
    FAN_IN = "fan_in"
    WORKFLOW = "workflow"
    APPROVAL = "approval"
    WAIT = "wait"
    GROUP = "group"


class GateKind(StrEnum):
    """How the members of a gate are combined.

    JOIN comes from edges: it runs after every branch that was taken.
    """

    ALL = "all_of"
    ANY = "any_of"
    JOIN = "join"


class OnFailure(StrEnum):
    """What happens to the rest of a job when a node fails permanently."""

    FINISH_RUNNING = "finish_running"
    CANCEL_RUNNING = "cancel_running"
    CONTINUE = "continue"


class OnItemError(StrEnum):
    """What failed children mean for their fan-out."""

    FAIL = "fail"
    TOLERATE = "tolerate"
    QUARANTINE = "quarantine"


class Aggregation(StrEnum):
    """How a fan-in aggregates outputs."""

    COLLECT = "collect"
    COLLECT_ALL = "collect_all"
    CONCAT = "concat"
    SUM = "sum"
    FIRST = "first"
    LAST = "last"


class OnTimeout(StrEnum):
    """What an approval or a signal does at its timeout."""

    APPROVE = "approve"
    REJECT = "reject"
    GO_ON = "go_on"
    FAIL = "fail"


class Leaf(NamedTuple):
    """One dependency: a node, or one branch of a conditional. A tuple: a node may have 100,000 of them."""

    node: str
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A dependency expression."""

    kind: GateKind
    members: tuple[Gate | Leaf, ...]

    def leaves(self) -> list[Leaf]:
        leaves: list[Leaf] = []
        for member in self.members:
            if isinstance(member, Leaf):
                leaves.append(member)
            else:
                leaves += member.leaves()
        return leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The common part of all specs. `requires` is None for a node that starts with the job.

    `added_by`: the node whose task added it to the job; None for all others.
    """

    kind: ClassVar[Kind]
    id: str
    requires: Gate | None = None
    group: str | None = None
    description: str = ""
    added_by: str | None = None

    def leaves(self) -> list[Leaf]:
        return [] if self.requires is None else self.requires.leaves()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSpec(Spec):
    """The entry node."""

    kind: ClassVar[Kind] = Kind.START


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSpec(Spec):
    """An exit node."""

    kind: ClassVar[Kind] = Kind.END


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultLimits:
    """The operator's limits of tasks and jobs whose workflow has none. They are part of no definition."""

    task_timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    task_max_attempts: int = DEFAULT_MAX_ATTEMPTS
    job_timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec(Spec):
    """Runs a handler on a worker."""

    kind: ClassVar[Kind] = Kind.TASK
    handler: str
    queue: str
    params: Template
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    dispatch_timeout_seconds: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    allow_failure: bool = False
    pool: str | None = None
    code_fingerprint: str | None = None
    graph_task_id: int | None = field(default=None, compare=False)
    """The id of the `Task` in code that this node was made of: not a part of what the node does."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a conditional. The default branch has no condition."""

    name: str
    condition: Expression | None
    next: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalSpec(Spec):
    """Takes one branch. The default is the last of `branches`."""

    kind: ClassVar[Kind] = Kind.CONDITIONAL
    condition_field: Template | None
    branches: tuple[Branch, ...]
    refs: tuple[tuple[str | int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many children may fail: a count, or a share of all of them (rounded down)."""

    count: int = 0
    percent: float | None = None

    def allows(self, failed: int, total: int) -> bool:
        # Exact: as floats, 18.4 % of 375 are 68.99….
        limit = self.count if self.percent is None else total * Fraction(str(self.percent)) // 100
        return failed <= limit


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutSpec(Spec):
    """Runs `child` once for each item of a list."""

    kind: ClassVar[Kind] = Kind.FAN_OUT
    source: Template
    child: TaskSpec | FanOutSpec | WorkflowSpec
    max_parallel: int | None = None
    tolerance: Tolerance = Tolerance()
    on_item_error: OnItemError = OnItemError.FAIL
    fail_fast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FanInSpec(Spec):
    """Aggregates the children of one fan-out (`over`), or one output per node of `sources`."""

    kind: ClassVar[Kind] = Kind.FAN_IN
    aggregation: Aggregation = Aggregation.COLLECT
    over: str | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec(Spec):
    """Runs another workflow as a child job."""

    kind: ClassVar[Kind] = Kind.WORKFLOW
    workflow_id: str
    version: int | None = None
    inputs: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSpec(Spec):
    """Waits for the approval of a person."""

    kind: ClassVar[Kind] = Kind.APPROVAL
    approvers: tuple[str, ...] = ()
    message: Template
    timeout_seconds: float | None = None
    on_timeout: OnTimeout = OnTimeout.REJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSpec(Spec):
    """Waits for a time (`seconds`, `until`) or a signal."""

    kind: ClassVar[Kind] = Kind.WAIT
    seconds: Template | None = None
    until: Template | None = None
    signal: str | None = None
    timeout_seconds: float | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL

    @property
    def is_hold(self) -> bool:
        """Return whether it keeps the job open while code can add nodes to it."""
        return self.signal is not None and is_hold(self.signal)


HOLD_LABEL: Final = "context_hold"
"""The names of nodes, and of their signals, that keep a job open while code adds tasks to it."""
HOLD_DESCRIPTION: Final = "The code that makes this job can still add tasks to it"
"""With the place of that code after a colon, if it is known."""


def is_hold(name: str) -> bool:
    """Return whether a node, or a signal, is that of an open context: no author wrote it."""
    return name.startswith(HOLD_LABEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec(Spec):
    """Completes when all nodes of the group are finished, at any depth.

    `entry`: what they wait for, see `groups`.
    """

    kind: ClassVar[Kind] = Kind.GROUP
    entry: Leaf | None = None


SPECS: Final[Mapping[Kind, type[Spec]]] = {
    spec.kind: spec
    for spec in (
        StartSpec,
        EndSpec,
        TaskSpec,
        ConditionalSpec,
        FanOutSpec,
        FanInSpec,
        WorkflowSpec,
        ApprovalSpec,
        WaitSpec,
        GroupSpec,
    )
}


class FlatGate(NamedTuple):
    """A gate in a node's list of gates: the root has index 0, `parent` is an index in the same list."""

    kind: GateKind
    size: int
    parent: int


class Dependent(NamedTuple):
    """A node to notify when another settles: its id, its gate, and the branch that the leaf depends on."""

    node: str
    gate: int
    branch: str | None


def flatten(requires: Gate) -> tuple[tuple[FlatGate, ...], tuple[tuple[Leaf, int], ...]]:
    """Flatten a dependency expression, so that a leaf updates its gate, and the gate its parent, by index."""
    gates: list[FlatGate] = []
    leaves: list[tuple[Leaf, int]] = []
    pending: list[tuple[Gate, int]] = [(requires, -1)]
    while pending:
        gate, parent = pending.pop()
        number = len(gates)
        gates.append(FlatGate(gate.kind, len(gate.members), parent))
        for member in gate.members:
            if isinstance(member, Leaf):
                leaves.append((member, number))
            else:
                pending.append((member, number))
    return tuple(gates), tuple(leaves)


class Wiring:
    """The gates of nodes, the dependents of each node, and the nodes that wait for each signal."""

    __slots__ = ("dependents", "gates", "leaves", "waits")

    def __init__(self, specs: Iterable[Spec] = ()) -> None:
        self.gates: dict[str, tuple[FlatGate, ...]] = {}
        self.leaves: dict[str, tuple[tuple[Leaf, int], ...]] = {}
        self.dependents: dict[str, list[Dependent]] = {}
        self.waits: dict[str, list[str]] = {}
        for spec in specs:
            self.add(spec)

    def add(self, spec: Spec) -> None:
        if isinstance(spec, WaitSpec) and spec.signal is not None:
            self.waits.setdefault(spec.signal, []).append(spec.id)
        if spec.requires is not None:
            self._add_leaves(spec.id, spec.requires)

    def _add_leaves(self, node_id: str, requires: Gate) -> None:
        self.gates[node_id], self.leaves[node_id] = flatten(requires)
        dependents = self.dependents
        # A node may collect the results of 100,000 others, which have the same dependent.
        shared: dict[tuple[int, str | None], Dependent] = {}
        for leaf, gate in self.leaves[node_id]:
            key = (gate, leaf.branch)
            dependent = shared.get(key) or shared.setdefault(key, Dependent(node_id, gate, leaf.branch))
            known = dependents.get(leaf.node)
            if known is None:
                dependents[leaf.node] = [dependent]
            else:
                known.append(dependent)

    def remove(self, specs: Collection[Spec]) -> None:
        """Forget what these nodes wait for: they are added again.

        It costs their leaves and the dependents of those.
        """
        names = {spec.id for spec in specs}
        sources = {leaf.node for name in names for leaf, _ in self.leaves.pop(name, ())}
        for source in sources:
            self.dependents[source] = [one for one in self.dependents[source] if one.node not in names]
        for signal in {
            spec.signal for spec in specs if isinstance(spec, WaitSpec) and spec.signal is not None
        }:
            self.waits[signal] = [name for name in self.waits[signal] if name not in names]
        for name in names:
            self.gates.pop(name, None)

    def add_members(self, group_id: str, members: Sequence[str]) -> None:
        """Let a group that has members wait for more. It costs the new ones, but for a copy of pointers."""
        (gate,) = self.gates[group_id]
        self.gates[group_id] = (gate._replace(size=gate.size + len(members)),)
        self.leaves[group_id] += tuple((Leaf(member), 0) for member in members)
        for member in members:
            self.dependents.setdefault(member, []).append(Dependent(group_id, 0, None))

    def copy(self) -> Wiring:
        copied = Wiring()
        copied.gates, copied.leaves = dict(self.gates), dict(self.leaves)
        copied.dependents = {node: list(dependents) for node, dependents in self.dependents.items()}
        copied.waits = {signal: list(nodes) for signal, nodes in self.waits.items()}
        return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A compiled and checked workflow. Jobs refer to it by `content_hash`."""

    workflow_id: str
    version: int
    name: str
    description: str
    inputs: Mapping[str, Mapping[str, JsonValue]]
    specs: Mapping[str, Spec]
    outputs: Template | None
    result_nodes: tuple[str, ...]
    on_failure: OnFailure
    deadline_seconds: float | None
    max_active_jobs: int | None
    tags: tuple[str, ...]
    definition: Mapping[str, Any]
    content_hash: str
    wiring: Wiring
