"""Which values are certain to be there: what has ended when a node starts, and on which branches a node runs.

A node's *cubes* say when it runs: each cube is a set of branches that must all be taken; it runs if one cube holds.
`{∅}` means always. The cubes of all branches of one conditional fold into one, so a join of them is certain again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import Gate, GateKind, Leaf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Cube = frozenset[tuple[str, str]]
Cubes = frozenset[Cube]

ALWAYS: Final[Cubes] = frozenset({frozenset()})
# Past this many, a node's condition becomes a word of its own: less is proven, nothing wrong is.
MAX_CUBES: Final = 64


class Certainty:
    """What is known of every node before anything runs."""

    def __init__(
        self, order: Iterable[str], requires: Mapping[str, Gate], branches: Mapping[str, Iterable[str]]
    ) -> None:
        self._branches = {node_id: frozenset(names) for node_id, names in branches.items()}
        self._bits: dict[str, int] = {}
        # As bit sets: a file of 10,000 nodes has 10,000 sets of up to 10,000 nodes.
        self._before: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._runs: dict[str, Cubes] = {}
        for node_id in order:
            self._bits[node_id] = 1 << len(self._bits)
            gate = requires.get(node_id)
            if gate is None:
                self._before[node_id] = self._ended[node_id] = 0
                self._runs[node_id] = ALWAYS
            else:
                self._before[node_id] = self._all_before(gate)
                self._ended[node_id] = self._certainly_ended(gate)
                cubes = self._when(gate)
                self._runs[node_id] = cubes if len(cubes) <= MAX_CUBES else frozenset({frozenset({(node_id, "runs")})})

    def is_before(self, source: str, node_id: str) -> bool:
        """Say whether `source` is upstream of the node."""
        return bool(self._before.get(node_id, 0) & self._bits.get(source, 0))

    def is_certain(self, source: str, node_id: str) -> bool:
        """Say whether `source` has run and ended whenever the node starts (unless its own failure was allowed)."""
        if not self._ended.get(node_id, 0) & self._bits.get(source, 0):
            return False
        needed = self._runs[source]
        return all(any(cube >= part for part in needed) for cube in self._runs[node_id])

    def always_runs(self, node_id: str) -> bool:
        """Say whether a job that completes has run this node."""
        return self._runs.get(node_id) == ALWAYS

    def _all_before(self, gate: Gate) -> int:
        before = 0
        for leaf in gate.leaves():
            before |= self._before[leaf.node] | self._bits[leaf.node]
        return before

    def _certainly_ended(self, gate: Gate | Leaf) -> int:
        if isinstance(gate, Leaf):
            return self._ended[gate.node] | self._bits[gate.node]
        sets = [self._certainly_ended(member) for member in gate.members]
        ended = sets[0]
        for each in sets[1:]:
            ended = ended & each if gate.kind is GateKind.ANY else ended | each
        return ended

    def _when(self, gate: Gate | Leaf) -> Cubes:
        if isinstance(gate, Leaf):
            runs = self._runs[gate.node]
            if gate.branch is None:
                return runs
            literal = (gate.node, gate.branch)
            return self._fold(cube | {literal} for cube in runs)
        if gate.kind is not GateKind.ALL:
            return self._fold(cube for member in gate.members for cube in self._when(member))
        cubes = ALWAYS
        for member in gate.members:
            inner = self._when(member)
            if inner != ALWAYS:
                cubes = self._fold(one | other for one in cubes for other in inner)
            if len(cubes) > MAX_CUBES:
                break
        return cubes

    def _fold(self, cubes: Iterable[Cube]) -> Cubes:
        """Drop the impossible, merge what covers all branches of a conditional, absorb what another cube implies."""
        found = {cube for cube in cubes if len({node for node, _ in cube}) == len(cube)}
        if len(found) > MAX_CUBES:
            return frozenset(found)
        merged = True
        while merged:
            merged = False
            for cube in list(found):
                for node, branch in cube:
                    rest = cube - {(node, branch)}
                    names = self._branches.get(node, frozenset())
                    if names and all(rest | {(node, name)} in found for name in names):
                        found -= {rest | {(node, name)} for name in names}
                        found.add(rest)
                        merged = True
                        break
                if merged:
                    break
        return frozenset(cube for cube in found if not any(other < cube for other in found))
