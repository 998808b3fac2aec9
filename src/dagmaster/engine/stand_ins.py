"""Nodes that were superseded, because the node that had added them runs again: what waits for them meanwhile.

A leaf on such a node has the outcome of its stand-in: the node that added it, which may add it again. Without
that, a node could start, or a group could be complete, before it gets its new dependencies. A node before its
own stand-in would wait for itself: for it, the superseded node counts as completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.gates import SATISFIED
from dagmaster.engine.model import is_dormant, leaf_outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dagmaster.engine.graph import Wiring
    from dagmaster.engine.model import Job, Node


def derive_stand_ins(job: Job) -> None:
    job.superseded, job.stand_ins, job.standing_for = {}, {}, {}
    superseded = [job.nodes[node_id] for node_id in job.graph.specs if is_dormant(job.nodes[node_id])]
    for node in superseded:
        if node.spec.added_by is not None:
            job.superseded.setdefault(job.nodes[node.spec.added_by].top.id, []).append(node.id)
    _choose_stand_ins(job, superseded)


def update_stand_ins(job: Job, reused: Iterable[str], kept: Iterable[str]) -> Iterable[str]:
    """Choose stand-ins again after names were reused; return the superseded nodes this affects.

    The caller counts the dependents of these again.

    `kept`: the superseded members of groups that were added again. It costs these, and what reused nodes had
    added.
    """
    affected = {node_id: None for node_id in kept if is_dormant(job.nodes[node_id])}
    pending = list(reused)
    for node_id in (*affected, *pending):
        _forget(job, node_id)
    while pending:
        for node_id in job.superseded.get(pending.pop(), ()):
            if is_dormant(job.nodes[node_id]) and node_id not in affected:
                _forget(job, node_id)
                affected[node_id] = None
                pending.append(node_id)
    _choose_stand_ins(job, [job.nodes[node_id] for node_id in affected])
    return affected


def _choose_stand_ins(job: Job, superseded: Iterable[Node]) -> None:
    edges = LiveEdges(job)
    for node in superseded:
        dependents = edges.live_dependents(node.id)
        stand_in = find_stand_in(job, node).id
        if dependents and not edges.leads_to(dependents, stand_in):
            job.stand_ins[node.id] = stand_in
            job.standing_for.setdefault(stand_in, {})[node.id] = None


def _forget(job: Job, node_id: str) -> None:
    stand_in = job.stand_ins.pop(node_id, None)
    if stand_in is not None:
        del job.standing_for[stand_in][node_id]


def find_stand_in(job: Job, node: Node) -> Node:
    """Return the node that added a superseded one and runs again; the node itself if it is not superseded."""
    while node.spec.added_by is not None and is_dormant(node):
        node = job.nodes[node.spec.added_by].top
    return node


def superseded_outcome(job: Job, node_id: str) -> int:
    stand_in = job.stand_ins.get(node_id)
    return SATISFIED if stand_in is None else leaf_outcome(job.nodes[stand_in], None)


def dependents_of_superseded(job: Job, stand_in: str) -> Iterator[tuple[str, int]]:
    """Yield the nodes, each with its gate, that wait for superseded nodes with this stand-in."""
    for node_id in job.standing_for.get(stand_in, ()):
        for dependent, gate, _ in job.graph.wiring.dependents.get(node_id, ()):
            yield dependent, gate


class Edges:
    """The dependencies between nodes."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def dependents(self, node_id: str) -> list[str]:
        """Return the nodes that depend on a node, maybe with repetitions."""
        return [dependent.node for dependent in self._wiring.dependents.get(node_id, ())]

    def sources(self, node_id: str) -> list[str]:
        """Return the nodes that a node depends on, maybe with repetitions."""
        return [leaf.node for leaf, _ in self._wiring.leaves.get(node_id, ())]

    def leads_to(self, node_ids: Iterable[str], target: str) -> bool:
        """Return whether one of these nodes is the target, or before it."""
        seen = set(node_ids)
        pending = list(seen)
        while pending and target not in seen:
            following = set(self.dependents(pending.pop())) - seen
            seen |= following
            pending += following
        return target in seen


class LiveEdges(Edges):
    """The dependencies between the nodes of this run, with stand-ins in place of superseded ones."""

    def __init__(self, job: Job, reused: Collection[str] = ()) -> None:
        super().__init__(job.graph.wiring)
        self._job = job
        self._nodes = job.nodes
        # Names of superseded nodes that new ones are about to have.
        self._reused = reused

    def dependents(self, node_id: str) -> list[str]:
        waiting = [node for node, _ in dependents_of_superseded(self._job, node_id)]
        return [
            node for node in (*super().dependents(node_id), *waiting) if not is_dormant(self._nodes[node])
        ]

    def live_dependents(self, node_id: str) -> list[str]:
        return [node for node in super().dependents(node_id) if not is_dormant(self._nodes[node])]

    def sources(self, node_id: str) -> list[str]:
        """Return the nodes that a node depends on, or waits for as stand-ins."""
        sources, stand_ins = super().sources(node_id), self._job.stand_ins
        live = [stand_ins.get(node) if self._is_gone(node) else node for node in sources]
        return [node for node in live if node is not None]

    def _is_gone(self, node_id: str) -> bool:
        return node_id not in self._reused and is_dormant(self._nodes[node_id])
