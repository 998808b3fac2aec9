"""Graphs as people see them: without the nodes that join what a group waits for, which no author wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import Gate, Leaf, Wiring
from dagmaster.engine.groups import is_group_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.graph import Graph

MAX_ARROWS: Final = 1_000
"""A group of more nodes times dependencies keeps the node that joins them: so many arrows cannot be read."""


def shown_graph(graph: Graph) -> Graph:
    """Return a graph in which the nodes of a group depend on what their group waits for."""
    starts: dict[str, Gate] = {}
    for node_id, spec in graph.specs.items():
        if is_group_start(node_id) and spec.requires is not None:
            gate = _without(spec.requires, starts)
            if len(graph.wiring.dependents.get(node_id, ())) * len(gate.leaves()) <= MAX_ARROWS:
                starts[node_id] = gate
    if not starts:
        return graph
    specs = {
        node_id: spec if spec.requires is None else replace(spec, requires=_without(spec.requires, starts))
        for node_id, spec in graph.specs.items()
        if node_id not in starts
    }
    return replace(graph, specs=specs, wiring=Wiring(specs.values()))


def _without(gate: Gate, starts: Mapping[str, Gate]) -> Gate:
    """Return a gate in which the leaves of these nodes are what the nodes wait for."""
    members: list[Gate | Leaf] = []
    for member in gate.members:
        if isinstance(member, Gate):
            members.append(_without(member, starts))
            continue
        start = starts.get(member.node)
        if start is None:
            members.append(member)
        elif start.kind is gate.kind:
            members += start.members
        else:
            members.append(start)
    if len(members) == 1 and isinstance(members[0], Gate):
        return members[0]
    return Gate(gate.kind, tuple(dict.fromkeys(members)))
