"""The outline of a stored graph: its nodes, what they run and what they wait for, without their expressions.

For readers, which show and explain jobs and evaluate nothing. To compile a definition takes 0.4 s in a new
process, most of it for imports (2026-11); an outline takes none of them. Only the conditions of branches are
compiled, if a reader asks for them: explanations name the values that a condition reads. A test compares
outlines with compiled graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.authoring.node_reader import (
    NO_LIMITS,
    NoValues,
    Values,
    as_gate,
    branch_name,
    names_in,
    read_gate,
    read_node,
)
from dagmaster.engine.graph import Gate, GateKind, Graph, Leaf, OnFailure, Wiring
from dagmaster.engine.groups import link_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.engine.expressions.expression import Expression
    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import DefaultLimits

# A node as it was checked and stored.
_Node = dict[str, Any]


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
    values: Values = _Conditions() if with_conditions else NoValues()
    outlines = {
        node_id: read_node(
            node_id,
            node,
            values,
            limits=limits or NO_LIMITS,
            targets=nodes,
            requires=_requires(node, edges.get(node_id)),
            group=node.get("group"),
        )
        for node_id, node in nodes.items()
    }
    specs = link_groups(outlines, {})
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
    for target in names_in(node.get("next")):
        yield Leaf(node_id), target
    for index, branch in enumerate(node.get("branches", ())):
        name = branch_name(branch.get("name"), index, is_default=bool(branch.get("default")))
        for target in names_in(branch.get("next")):
            yield Leaf(node_id, name), target


def _requires(node: _Node, incoming: list[Leaf] | None) -> Gate | None:
    written = node.get("depends_on")
    if written is not None:
        return as_gate(read_gate(written))
    return Gate(GateKind.JOIN, tuple(incoming)) if incoming else None


class _Conditions(NoValues):
    """Compiles the conditions of branches, and what they are about."""

    def template(self, key: str, written: Any) -> Template:
        """Compile the value that conditions compare; leave out all others."""
        from dagmaster.engine.expressions.paths import DECISION
        from dagmaster.engine.expressions.templates import compile_template

        if key != "condition_field":
            return super().template(key, written)
        return compile_template(written if "{{" in written else f"{{{{ {written} }}}}", roots=DECISION)

    def condition(self, index: int, written: str) -> Expression | None:  # noqa: ARG002 - as in the protocol
        from dagmaster.engine.expressions.conditions import compile_condition
        from dagmaster.engine.expressions.paths import DECISION

        return compile_condition(written, roots=DECISION)
