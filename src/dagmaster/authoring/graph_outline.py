"""The outline of a stored graph: its nodes, what they run and what they wait for, without their expressions.

For readers, which show and explain jobs and evaluate nothing. To compile a definition takes 0.4 s in a new
process, most of it for imports (2026-11); an outline takes none of them. Only the conditions of branches are
compiled, if a reader asks for them: explanations name the values that a condition reads. A test compares
outlines with compiled graphs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from dagmaster.engine.graph import (
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
    OnTimeout,
    Spec,
    StartSpec,
    TaskSpec,
    WaitSpec,
    Wiring,
    WorkflowSpec,
)
from dagmaster.engine.groups import link_groups
from dagmaster.engine.retry import Backoff, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import DefaultLimits

# A node as it was checked and stored.
_Node = dict[str, Any]
# An outline is not evaluated.
_NO_TEMPLATE: Final = cast("Template", None)


def outline_graph(
    definition: Mapping[str, Any],
    content_hash: str,
    limits: DefaultLimits | None = None,
    *,
    with_conditions: bool = False,
) -> Graph:
    """Return the graph of a stored definition, which was checked when it was compiled, without templates."""
    nodes: dict[str, _Node] = definition["nodes"]
    edges: dict[str, list[Leaf]] = {}
    for node_id, node in nodes.items():
        for leaf, target in _edges_of(node_id, node):
            edges.setdefault(target, []).append(leaf)
    default_retry = RetryPolicy() if limits is None else RetryPolicy(max_attempts=limits.task_max_attempts)
    outlines = {
        node_id: _spec(node_id, node, _requires(node, edges.get(node_id)), default_retry)
        for node_id, node in nodes.items()
    }
    specs = link_groups(outlines, {})
    if with_conditions:
        conditionals = (spec for spec in list(specs.values()) if isinstance(spec, ConditionalSpec))
        specs |= {spec.id: _with_conditions(spec, nodes[spec.id]) for spec in conditionals}
    return Graph(
        workflow_id=definition["workflow_id"],
        version=definition["version"],
        name=definition.get("name") or definition["workflow_id"],
        description=definition.get("description", ""),
        inputs=definition.get("inputs", {}),
        specs=specs,
        outputs=None,
        result_nodes=(),
        on_failure=OnFailure(definition.get("on_failure", OnFailure.FINISH_RUNNING)),
        deadline_seconds=definition.get("deadline_seconds"),
        max_active_jobs=definition.get("max_active_jobs"),
        tags=tuple(definition.get("tags", ())),
        definition=definition,
        content_hash=content_hash,
        wiring=Wiring(specs.values()),
    )


def _edges_of(node_id: str, node: _Node) -> Iterator[tuple[Leaf, str]]:
    """Yield the edges that leave a node."""
    for target in _names(node.get("next")):
        yield Leaf(node_id), target
    for index, branch in enumerate(node.get("branches", ())):
        for target in _names(branch.get("next")):
            yield Leaf(node_id, _branch_name(branch, index)), target


def _names(value: Any) -> list[str]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _branches(node: _Node) -> tuple[Branch, ...]:
    """Return the branches of a conditional without their conditions, the default one last."""
    branches = [
        (
            bool(branch.get("default")),
            Branch(_branch_name(branch, index), None, tuple(_names(branch.get("next")))),
        )
        for index, branch in enumerate(node.get("branches", ()))
    ]
    return tuple(branch for _, branch in sorted(branches, key=lambda item: item[0]))


def _branch_name(branch: _Node, index: int) -> str:
    return str(branch.get("name") or ("default" if branch.get("default") else f"branch_{index + 1}"))


def _requires(node: _Node, incoming: list[Leaf] | None) -> Gate | None:
    written = node.get("depends_on")
    if written is not None:
        gate = _gate(written)
        return gate if isinstance(gate, Gate) else Gate(GateKind.ALL, (gate,))
    return Gate(GateKind.JOIN, tuple(incoming)) if incoming else None


def _gate(value: Any) -> Gate | Leaf:
    if isinstance(value, str):
        node, _, branch = value.partition(".")
        return Leaf(node, branch or None)
    kind, inner = (GateKind.ALL, value) if isinstance(value, list) else next(iter(value.items()))
    members = tuple(map(_gate, inner if isinstance(inner, list) else [inner]))
    # A gate with one member equals that member.
    return members[0] if len(members) == 1 and isinstance(members[0], Gate) else Gate(GateKind(kind), members)


def _spec(  # noqa: PLR0911 - one case a kind of node
    node_id: str, node: _Node, requires: Gate | None, default_retry: RetryPolicy
) -> Spec:
    common: dict[str, Any] = {
        "id": node_id,
        "description": node.get("description", ""),
        "requires": requires,
        "group": node.get("group"),
    }
    match Kind(node.get("type", Kind.TASK)):
        case Kind.TASK:
            return TaskSpec(
                **common,
                handler=node["handler"],
                queue=node.get("queue", ""),
                params=_NO_TEMPLATE,
                dispatch_timeout_seconds=node.get("dispatch_timeout_seconds"),
                retry=_retry(node.get("retry")) or default_retry,
                allow_failure=node.get("allow_failure", False),
            )
        case Kind.CONDITIONAL:
            return ConditionalSpec(**common, condition_field=None, branches=_branches(node))
        case Kind.FAN_OUT:
            child: Any = _spec(node_id, node["task"], None, default_retry)
            limit = node.get("max_parallel")
            return FanOutSpec(**common, source=_NO_TEMPLATE, child=child, max_parallel=limit)
        case Kind.FAN_IN:
            return FanInSpec(**common)
        case Kind.WORKFLOW:
            return WorkflowSpec(
                **common, workflow_id=node["workflow_id"], version=node.get("version"), inputs=_NO_TEMPLATE
            )
        case Kind.APPROVAL:
            return ApprovalSpec(
                **common,
                approvers=tuple(node.get("approvers", ())),
                message=_NO_TEMPLATE,
                timeout_seconds=node.get("timeout_seconds"),
                on_timeout=OnTimeout(node.get("on_timeout", OnTimeout.REJECT)),
            )
        case Kind.WAIT:
            return WaitSpec(
                **common,
                signal=node.get("signal"),
                timeout_seconds=node.get("timeout_seconds"),
                on_timeout=OnTimeout(node.get("on_timeout", OnTimeout.FAIL)),
            )
        case Kind.START:
            return StartSpec(**common)
        case Kind.END:
            return EndSpec(**common)
        case Kind.GROUP:
            return GroupSpec(**common)


def _retry(written: Mapping[str, Any] | None) -> RetryPolicy | None:
    return None if written is None else RetryPolicy(**{**written, "backoff": Backoff(written["backoff"])})


def _with_conditions(spec: ConditionalSpec, node: _Node) -> ConditionalSpec:
    """Return a conditional with its field and its branches, the default last."""
    from dagmaster.engine.expressions.conditions import compile_condition
    from dagmaster.engine.expressions.paths import DECISION
    from dagmaster.engine.expressions.templates import compile_template_all

    text, field = node.get("condition_field"), None
    if text is not None:
        field, _ = compile_template_all(text if "{{" in text else f"{{{{ {text} }}}}", DECISION)
    branches = []
    for index, branch in enumerate(node["branches"]):
        written = branch.get("condition")
        condition = None if written is None else compile_condition(written, roots=DECISION)
        branches.append(Branch(_branch_name(branch, index), condition, tuple(_names(branch.get("next")))))
    branches.sort(key=lambda branch: branch.condition is None)
    conditions = [branch.condition for branch in branches if branch.condition is not None]
    refs = dict.fromkeys(() if field is None else field.refs)
    refs |= dict.fromkeys(ref for condition in conditions for ref in condition.refs if ref != ("value",))
    return replace(spec, condition_field=field, branches=tuple(branches), refs=tuple(refs))
