"""Draw a graph: Mermaid text for documents, SVG for pages.

Shows each node with what it runs, each dependency and each branch, as the workflow was written; a start or an
end that was not written is not drawn. Knows neither jobs nor drawing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dagmaster.authoring.diagram.dependencies import Dependency, list_dependencies
from dagmaster.authoring.diagram.svg import Arrow, CardNode, draw, plain_text
from dagmaster.authoring.node_kinds import NODE_KINDS, describe_spec
from dagmaster.engine.graph import ConditionalSpec, Spec, TaskSpec
from dagmaster.engine.shown_graph import shown_graph
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph


def mermaid(graph: Graph) -> str:
    graph = shown_graph(graph)
    # A prefix, because `end`, `graph`, `style` … are words of Mermaid.
    names = {
        node_id: f"n_{node_id}" if re.fullmatch(r"[A-Za-z0-9_]+", node_id) else f"x{number}"
        for number, node_id in enumerate(graph.specs)
    }
    lines = ["flowchart TD"]
    for node_id, spec in graph.specs.items():
        opening, closing = NODE_KINDS[spec.kind].brackets
        words = [_mermaid_text(word) for word in (node_id, describe_spec(spec)) if word]
        lines.append(f'    {names[node_id]}{opening}"{"<br/>".join(words)}"{closing}')
    for need in list_dependencies(graph):
        label = f'|"{_mermaid_text(need.label)}"|' if need.label else ""
        lines.append(
            f"    {names[need.source]} {'-.->' if need.any_of else '-->'}{label} {names[need.target]}"
        )
    return "\n".join(lines) + "\n"


def svg(graph: Graph) -> str:
    """Draw a graph as self-contained SVG that follows the light or dark theme."""
    graph = shown_graph(graph)
    place = {node_id: number for number, node_id in enumerate(graph.specs)}
    needs = list_dependencies(graph)
    waits_for_any = {need.target for need in needs if need.any_of}
    nodes = [_node(spec, waits_for_any) for spec in graph.specs.values()]
    arrows = [
        Arrow(
            place[need.source],
            place[need.target],
            ", ".join(need.branches),
            _title_of(graph, need),
            need.any_of,
        )
        for need in needs
    ]
    count = format_count(len(nodes), "node")
    description = f"Workflow {graph.workflow_id}, version {graph.version}, {count}. {graph.description}"
    return draw(graph.name, description.strip(), nodes, arrows)


# ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────


def _node(spec: Spec, waits_for_any: set[str]) -> CardNode:
    kind = spec.kind.value.replace("_", "-")
    detail = describe_spec(spec)
    title = "\n".join(line for line in (f"{spec.id} ({kind})", detail, spec.description.strip()) if line)
    chips = ["any"] if spec.id in waits_for_any else []
    if isinstance(spec, TaskSpec) and spec.allow_failure:
        chips.append("may fail")
    return CardNode(spec.id, spec.kind, detail, title, tuple(chips))


# ── Arrows ──────────────────────────────────────────────────────────────────────────────────────────────────


def _title_of(graph: Graph, need: Dependency) -> str:
    """Describe an arrow, with the conditions of its branches."""
    spec = graph.specs[need.source]
    title = f"{need.source} → {need.target}" + (" (any of)" if need.any_of else "")
    if isinstance(spec, ConditionalSpec):
        for branch in spec.branches:
            if branch.name in need.branches:
                title += (
                    f"\n{branch.name}: {'default' if branch.condition is None else branch.condition.text}"
                )
    return title


def _mermaid_text(text: str) -> str:
    """Escape everything but letters and digits, which Mermaid could interpret."""
    line = " ".join(plain_text(text).split())
    shown = "".join(char if char.isalnum() or char in " ,._-" else f"#{ord(char)};" for char in line)
    # Mermaid 11 reads labels as Markdown, even what is written by numbers, and refuses to draw a list. A word
    # joiner, which is invisible, keeps `1. a` and `- a` from being one (seen in 11.4.1).
    return shown if line[:1].isalpha() else f"#8288;{shown}"
