"""Graphs and jobs that read like sentences: `a_job(a="", b="a", c="a b")`.

A string lists the nodes that a node waits for. Builders express everything else: `task(retry=1)`,
`any_of("a", "b")`, `fan_out([1, 2, 3], after="a")`. Nothing is validated here: `authoring` does that for real
workflows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dagmaster.engine.events import NodesAdded
from dagmaster.engine.expressions.conditions import compile_condition
from dagmaster.engine.expressions.templates import Template, compile_template
from dagmaster.engine.graph import (
    Aggregation,
    ApprovalSpec,
    Branch,
    ConditionalSpec,
    EndSpec,
    FanInSpec,
    FanOutSpec,
    Gate,
    GateKind,
    Graph,
    GroupSpec,
    Kind,
    Leaf,
    OnFailure,
    OnItemError,
    OnTimeout,
    Spec,
    StartSpec,
    TaskSpec,
    Tolerance,
    WaitSpec,
    Wiring,
    WorkflowSpec,
)
from dagmaster.engine.groups import link_groups, result_nodes
from dagmaster.engine.growth import NodeBatch
from dagmaster.engine.model import Job
from dagmaster.engine.retry import RetryPolicy

ROOTS: Final = frozenset({"inputs", "nodes", "upstream", "job", "env", "item", "index", "outer"})

After = str | Leaf | Gate
"""What a node waits for. A string lists nodes, or branches such as `route.small`, and requires all of
them."""

Builder = Callable[[str], Spec]
"""A function that returns a spec for a node id."""


def a_graph(
    *,
    on_failure: str = "finish_running",
    deadline_seconds: float | None = None,
    outputs: Any = None,
    **nodes: After | Builder,
) -> Graph:
    """Build a workflow of these nodes, in this order."""
    specs = link_groups({node_id: a_spec(node_id, node) for node_id, node in nodes.items()}, {})
    return Graph(
        workflow_id="test_workflow",
        version=1,
        name="test_workflow",
        description="",
        inputs={},
        specs=specs,
        outputs=None if outputs is None else template(outputs),
        result_nodes=_result_nodes(specs),
        on_failure=OnFailure(on_failure),
        deadline_seconds=deadline_seconds,
        max_active_jobs=None,
        tags=(),
        definition={},
        content_hash="",
        wiring=Wiring(specs.values()),
    )


def a_job(
    *,
    on_failure: str = "finish_running",
    deadline_seconds: float | None = None,
    outputs: Any = None,
    **nodes: After | Builder,
) -> Job:
    """Build a job of a workflow of these nodes; it has not started."""
    graph = a_graph(on_failure=on_failure, deadline_seconds=deadline_seconds, outputs=outputs, **nodes)
    return Job("job", graph)


def a_spec(node_id: str, node: After | Builder) -> Spec:
    """Return the spec of one node; if only its dependencies are given, of a task."""
    return (task(node) if isinstance(node, str | Leaf | Gate) else node)(node_id)


def nodes_added(*specs: Spec, links: Mapping[str, str] | None = None) -> NodesAdded:
    """Return the event of a batch of nodes; `links`: further dependencies of existing nodes."""
    pairs = tuple((node, leaf) for node, after in (links or {}).items() for leaf in _leaves(after))
    return NodesAdded(NodeBatch((1,), specs, pairs))


def template(value: Any) -> Template:
    """Compile a value with every root that a node could refer to."""
    return compile_template(value, roots=ROOTS)


def _result_nodes(specs: Mapping[str, Spec]) -> tuple[str, ...]:
    before = {leaf.node for spec in specs.values() if spec.kind is Kind.END for leaf in spec.leaves()}
    if not before:
        before = specs.keys() - {leaf.node for spec in specs.values() for leaf in spec.leaves()}
    return result_nodes(specs, before)


# ── Dependencies ────────────────────────────────────────────────────────────────────────────────────────────


def all_of(*members: After) -> Gate:
    """Require every member."""
    return Gate(GateKind.ALL, _members(members))


def any_of(*members: After) -> Gate:
    """Require the first member."""
    return Gate(GateKind.ANY, _members(members))


def join(*members: After) -> Gate:
    """Join edges: wait for the branches that were taken."""
    return Gate(GateKind.JOIN, _members(members))


def branch_of(conditional_id: str, branch: str) -> Leaf:
    """Return one branch of a conditional."""
    return Leaf(conditional_id, branch)


def _members(members: Sequence[After]) -> tuple[Gate | Leaf, ...]:
    flat: list[Gate | Leaf] = []
    for member in members:
        flat += _leaves(member) if isinstance(member, str) else [member]
    return tuple(flat)


def _leaves(text: str) -> list[Leaf]:
    return [Leaf(node, branch or None) for node, _, branch in (word.partition(".") for word in text.split())]


def _requires(after: After) -> Gate | None:
    if isinstance(after, Gate):
        return after
    leaves = _leaves(after) if isinstance(after, str) else [after]
    return Gate(GateKind.ALL, tuple(leaves)) if leaves else None


# ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────


def start() -> Builder:
    """Build a start node."""
    return lambda node_id: StartSpec(id=node_id)


def group(after: After = "") -> Builder:
    """Build a group."""
    return lambda node_id: GroupSpec(id=node_id, requires=_requires(after))


def member(group_id: str, node: After | Builder = "") -> Builder:
    """Put a node into a group; if only its dependencies are given, a task."""
    return lambda node_id: replace(a_spec(node_id, node), group=group_id)


def end(after: After = "") -> Builder:
    """Build an end node."""
    return lambda node_id: EndSpec(id=node_id, requires=_requires(after))


def task(
    after: After = "",
    *,
    retry: int | RetryPolicy = 1,
    allow_failure: bool = False,
    params: Any = None,
    dispatch_timeout_seconds: float | None = None,
) -> Builder:
    """Build a task. `retry` is the number of attempts, two seconds apart, or a whole policy."""
    policy = retry
    if isinstance(policy, int):
        policy = RetryPolicy(max_attempts=policy, initial_delay_seconds=2.0, jitter=False)
    return lambda node_id: TaskSpec(
        id=node_id,
        requires=_requires(after),
        handler="work",
        queue="default",
        params=template(params or {}),
        retry=policy,
        allow_failure=allow_failure,
        dispatch_timeout_seconds=dispatch_timeout_seconds,
    )


def conditional(
    on: str | None = None,
    branches: Mapping[str, str | tuple[str | None, str] | None] | None = None,
    after: After = "",
) -> Builder:
    """Build a conditional: `conditional("{{ nodes.a.output.n }}", {"small": "< 10", "large": None})`.

    A pair adds the target of the branch: `{"small": ("< 10", "b")}`.
    """
    rows = [(name, *(row if isinstance(row, tuple) else (row, ""))) for name, row in (branches or {}).items()]
    ordered = [
        Branch(name, None if text is None else compile_condition(text, roots=ROOTS), tuple(target.split()))
        for name, text, target in rows
    ]
    ordered.sort(key=lambda branch: branch.condition is None)
    field = None if on is None else template(on)
    refs = dict.fromkeys(() if field is None else field.refs)
    for branch in ordered:
        refs |= dict.fromkeys(
            ref for ref in (branch.condition.refs if branch.condition else ()) if ref != ("value",)
        )
    return lambda node_id: ConditionalSpec(
        id=node_id,
        requires=_requires(after),
        condition_field=field,
        branches=tuple(ordered),
        refs=tuple(refs),
    )


def fan_out(
    source: Any,
    child: Builder | None = None,
    *,
    after: After = "",
    max_parallel: int | None = None,
    tolerate: int | str = 0,
    on_item_error: str = "fail",
    fail_fast: bool = False,
) -> Builder:
    """Build a fan-out over a list, or an expression that returns one.

    `tolerate` is a count or a share such as "5%".
    """
    make = task() if child is None else child
    tolerance = (
        Tolerance(count=tolerate)
        if isinstance(tolerate, int)
        else Tolerance(percent=float(tolerate.rstrip("%")))
    )

    def build(node_id: str) -> Spec:
        spec = make(node_id)
        assert isinstance(spec, TaskSpec | FanOutSpec | WorkflowSpec)  # noqa: S101 - only children
        return FanOutSpec(
            id=node_id,
            requires=_requires(after),
            source=template(source),
            child=spec,
            max_parallel=max_parallel,
            tolerance=tolerance,
            on_item_error=OnItemError(on_item_error),
            fail_fast=fail_fast,
        )

    return build


def fan_in(after: After, aggregation: str = "collect", *, over: str | None = None) -> Builder:
    """Build a fan-in over the children of `over`, or over one output of each node that it waits for."""
    requires = _requires(after)
    sources = tuple(dict.fromkeys(leaf.node for leaf in requires.leaves())) if requires else ()
    return lambda node_id: FanInSpec(
        id=node_id, requires=requires, aggregation=Aggregation(aggregation), over=over, sources=sources
    )


def workflow(after: After = "", workflow_id: str = "other", inputs: Any = None) -> Builder:
    """Build a child job."""
    return lambda node_id: WorkflowSpec(
        id=node_id, requires=_requires(after), workflow_id=workflow_id, inputs=template(inputs or {})
    )


def approval(
    after: After = "",
    *,
    approvers: str = "",
    timeout_seconds: float | None = None,
    on_timeout: str = "reject",
) -> Builder:
    """Build an approval."""
    return lambda node_id: ApprovalSpec(
        id=node_id,
        requires=_requires(after),
        approvers=tuple(approvers.split()),
        message=template("Continue?"),
        timeout_seconds=timeout_seconds,
        on_timeout=OnTimeout(on_timeout),
    )


def wait(
    after: After = "",
    *,
    seconds: Any = None,
    until: str | None = None,
    signal: str | None = None,
    timeout_seconds: float | None = None,
    on_timeout: str = "fail",
) -> Builder:
    """Build a wait for a time or a signal."""
    return lambda node_id: WaitSpec(
        id=node_id,
        requires=_requires(after),
        seconds=None if seconds is None else template(seconds),
        until=None if until is None else template(until),
        signal=signal,
        timeout_seconds=timeout_seconds,
        on_timeout=OnTimeout(on_timeout),
    )
