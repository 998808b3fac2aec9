"""The dependencies between the nodes of a graph, one for each pair of nodes: what diagrams draw as arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dagmaster.engine.graph import ConditionalSpec, Gate, GateKind, Leaf, Spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.engine.graph import Graph


class Dependency(NamedTuple):
    """The dependencies of one node on another. `any_of`: alternatives exist."""

    source: str
    target: str
    branches: tuple[str, ...]
    any_of: bool

    @property
    def label(self) -> str:
        """Return the branches, and whether alternatives exist, in a few words."""
        return ": ".join(word for word in ("any" if self.any_of else "", ", ".join(self.branches)) if word)


def list_dependencies(graph: Graph) -> list[Dependency]:
    """Return the dependencies by source; those on a conditional in branch order."""
    edges: dict[tuple[str, str], list[tuple[str | None, bool]]] = {}
    for spec in graph.specs.values():
        for leaf, any_of in _leaves(spec.requires):
            edges.setdefault((leaf.node, spec.id), []).append((leaf.branch, any_of))
    ranks = {node_id: _ranks(number, spec) for number, (node_id, spec) in enumerate(graph.specs.items())}
    dependencies: list[tuple[tuple[int, int], Dependency]] = []
    for (source, target), ways in edges.items():
        rank = ranks[source]
        names = sorted({name for name, _ in ways if name is not None}, key=rank.__getitem__)
        dependency = Dependency(source, target, tuple(names), all(any_of for _, any_of in ways))
        dependencies.append((rank[names[0] if names else None], dependency))
    return [dependency for _, dependency in sorted(dependencies, key=lambda ranked: ranked[0])]


def _leaves(gate: Gate | None, *, any_of: bool = False) -> Iterator[tuple[Leaf, bool]]:
    """Yield each leaf, and whether it is inside an `any_of`."""
    if gate is None:
        return
    any_of = any_of or gate.kind is GateKind.ANY
    for member in gate.members:
        if isinstance(member, Leaf):
            yield member, any_of
        else:
            yield from _leaves(member, any_of=any_of)


def _ranks(number: int, spec: Spec) -> dict[str | None, tuple[int, int]]:
    branches = spec.branches if isinstance(spec, ConditionalSpec) else ()
    return {None: (number, -1)} | {branch.name: (number, index) for index, branch in enumerate(branches)}
