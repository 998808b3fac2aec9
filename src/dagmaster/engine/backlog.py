"""Nodes that may start, and wait until the owner of their job has started others.

One event can make 100,000 nodes ready: a batch that was added, or a node that they all depend on. A step
starts a part of them, so that no job stalls the others of its owner. The rest is the backlog of the job. It
is not stored: it is the nodes that are PENDING although their gate is satisfied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import GateKind, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagmaster.engine.model import Job, Node

# Nodes that one step starts: as many as children of a fan-out are created in one (`fanout.EXPAND_BATCH`).
START_BATCH: Final = 5_000


class Backlog:
    """The ids of nodes, in an order that depends on nothing but their names: a rebuilt job has the same."""

    __slots__ = ("_ids", "_is_sorted", "_order")

    def __init__(self) -> None:
        self._ids: set[str] = set()
        # The first one last, with ids that were discarded since.
        self._order: list[str] = []
        self._is_sorted = True

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def add(self, node_id: str) -> None:
        if node_id not in self._ids:
            self._ids.add(node_id)
            self._order.append(node_id)
            self._is_sorted = False

    def replace(self, node_ids: Iterable[str]) -> None:
        """Have these nodes, and no others."""
        self._ids = set(node_ids)
        self._order = list(self._ids)
        self._is_sorted = False

    def discard(self, node_id: str) -> None:
        self._ids.discard(node_id)

    def take(self, limit: int) -> list[str]:
        if not self._is_sorted:
            # By length first: work_2 before work_10.
            self._order.sort(key=lambda node_id: (len(node_id), node_id), reverse=True)
            self._is_sorted = True
        taken: list[str] = []
        while self._ids and len(taken) < limit:
            node_id = self._order.pop()
            if node_id in self._ids:
                self._ids.remove(node_id)
                taken.append(node_id)
        if not self._ids:
            self._order.clear()
        return taken


def can_wait(job: Job, node: Node) -> bool:
    """Return whether a node that is ready can be started by a later step.

    A task whose dependencies are all finished can: nothing that happens meanwhile changes what it starts
    with. After an `any_of` some are not, and `upstream` is the one that was first when the node started.
    """
    spec = node.spec
    if node.parent is not None or type(spec) is not TaskSpec:
        return False
    return spec.requires is None or not any(gate.kind is GateKind.ANY for gate in job.gates(node.id))
