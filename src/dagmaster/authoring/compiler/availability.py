"""Value availability: which nodes have finished when a node starts, and on which branches a node runs.

A node's *cubes* describe when it runs: a cube is a set of branches that must all be taken; the node runs if
one cube holds. `{∅}` means always. The cubes of all branches of a conditional fold into one: a join after it
is certain again.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import Gate, GateKind, Leaf

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Cube = frozenset[tuple[str, str]]
Cubes = frozenset[Cube]

ALWAYS: Final[Cubes] = frozenset({frozenset()})
# Beyond this many, a node's condition becomes opaque: less is proven, nothing wrong is accepted.
MAX_CUBES: Final = 64
# How many cubes are folded at once. A conditional has at most 1,000 branches.
MAX_UNFOLDED: Final = 4096
# Two conditions that must both hold make a product, which seldom folds: 64 by 64 took 9 ms for each node.
MAX_PRODUCT: Final = 512


class Availability:
    """What is known of every node before the run. `asked` maps a node to the sources that it refers to."""

    def __init__(
        self,
        order: Iterable[str],
        requires: Mapping[str, Gate],
        branches: Mapping[str, Iterable[str]],
        asked: Mapping[str, Collection[str]],
    ) -> None:
        self._branches = {node_id: frozenset(names) for node_id, names in branches.items()}
        self._runs: dict[str, Cubes] = {}
        self._products: dict[tuple[Cubes, Cubes], Cubes | None] = {}
        self._before: set[tuple[str, str]] = set()
        self._ended: set[tuple[str, str]] = set()
        self._walk(list(order), requires, asked)

    def is_before(self, source: str, node_id: str) -> bool:
        return (source, node_id) in self._before

    def is_certain(self, source: str, node_id: str) -> bool:
        """Return whether `source` has finished whenever the node starts, unless its failure was allowed."""
        if (source, node_id) not in self._ended:
            return False
        needed = self._runs[source]
        return all(any(cube >= part for part in needed) for cube in self._runs[node_id])

    def always_runs(self, node_id: str) -> bool:
        return self._runs.get(node_id) == ALWAYS

    def can_never_run(self, node_id: str) -> bool:
        """Return whether no choice of branches lets this node run."""
        return self._runs.get(node_id) == frozenset()

    def _walk(
        self, order: list[str], requires: Mapping[str, Gate], asked: Mapping[str, Collection[str]]
    ) -> None:
        """Visit the nodes once. A node's ancestors are a bit set, kept only until its last follower."""
        places = {node_id: index for index, node_id in enumerate(order)}
        followers = Counter(
            source for node_id in order if node_id in requires for source in _nodes_of(requires[node_id])
        )
        before: dict[str, int] = {}
        ended: dict[str, int] = {}
        for node_id in order:
            gate = requires.get(node_id)
            if gate is None:
                before[node_id] = ended[node_id] = 0
                self._runs[node_id] = ALWAYS
                continue
            sources = _nodes_of(gate)
            before[node_id] = reduce(or_, (before[source] | 1 << places[source] for source in sources))
            ended[node_id] = _always_finished(gate, ended, places)
            cubes = self._when(gate)
            # The opaque literal is no branch of the node.
            self._runs[node_id] = (
                frozenset({frozenset({(f"{node_id} runs", "")})}) if cubes is None else cubes
            )
            for source in asked.get(node_id, ()):
                bit = 1 << places.get(source, len(places))
                if before[node_id] & bit:
                    self._before.add((source, node_id))
                if ended[node_id] & bit:
                    self._ended.add((source, node_id))
            followers.subtract(sources)
            for finished in (node_id, *sources):
                if not followers[finished]:
                    del before[finished], ended[finished]

    def _when(self, gate: Gate | Leaf) -> Cubes | None:
        """Return the cubes of a gate; None when they are too many."""
        if isinstance(gate, Leaf):
            runs = self._runs[gate.node]
            if gate.branch is None:
                return runs
            literal = (gate.node, gate.branch)
            return self._fold(cube | {literal} for cube in runs)
        return self._when_all(gate) if gate.kind is GateKind.ALL else self._when_any(gate)

    def _when_any(self, gate: Gate) -> Cubes | None:
        parts = [self._when(member) for member in gate.members]
        # One part that is not known makes the whole unknown, unless another part always holds.
        if ALWAYS in parts:
            return ALWAYS
        return None if None in parts else self._fold(cube for part in parts for cube in part or ())

    def _when_all(self, gate: Gate) -> Cubes | None:
        cubes: Cubes | None = ALWAYS
        for member in gate.members:
            inner = self._when(member)
            if inner is None or cubes is None:
                return None
            if inner != ALWAYS:
                cubes = inner if cubes == ALWAYS else self._product(cubes, inner)
        return cubes

    def _product(self, cubes: Cubes, others: Cubes) -> Cubes | None:
        """Return the cubes under which both hold. Products are cached: many nodes wait for the same."""
        key = (cubes, others)
        if key not in self._products:
            self._products[key] = self._fold((one | other for one in cubes for other in others), MAX_PRODUCT)
        return self._products[key]

    def _fold(self, cubes: Iterable[Cube], limit: int = MAX_UNFOLDED) -> Cubes | None:
        """Drop impossible cubes, merge the cubes of all branches of a conditional, absorb implied ones."""
        kept: set[Cube] = set()
        for cube in cubes:
            if len({node for node, _ in cube}) == len(cube):
                kept.add(cube)
                if len(kept) > limit:
                    return None
        while self._merge(kept):
            pass
        if len(kept) > MAX_CUBES:
            return None
        return frozenset(cube for cube in kept if not any(other < cube for other in kept))

    def _merge(self, cubes: set[Cube]) -> bool:
        """Merge cubes that differ in one conditional and cover its branches; return whether any did."""
        groups: dict[tuple[Cube, str], list[Cube]] = {}
        for cube in cubes:
            for node, branch in cube:
                groups.setdefault((cube - {(node, branch)}, node), []).append(cube)
        merged = False
        for (rest, node), group in groups.items():
            if len(group) == len(self._branches.get(node, ())) and rest not in cubes:
                cubes.add(rest)
                merged = True
        if merged:
            cubes -= {cube for cube in cubes if any(cube - {literal} in cubes for literal in cube)}
        return merged


def _nodes_of(gate: Gate) -> list[str]:
    return list(dict.fromkeys(leaf.node for leaf in gate.leaves()))


def _always_finished(gate: Gate | Leaf, ended: Mapping[str, int], places: Mapping[str, int]) -> int:
    if isinstance(gate, Leaf):
        return ended[gate.node] | 1 << places[gate.node]
    sets = (_always_finished(member, ended, places) for member in gate.members)
    return reduce(and_ if gate.kind is GateKind.ANY else or_, sets)
