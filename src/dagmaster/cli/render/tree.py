"""A graph as a tree of lines, and which of them are shown when the screen is too small for all."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.engine.status import TERMINAL_NODE, NodeStatus

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph

# Failed nodes may take this part of a screen that is too small: what moves wants to be seen, too.
_SHARE_OF_FAILED: Final = 3


class Row(NamedTuple):
    """A node's line: its id, and what is drawn before it."""

    node_id: str
    prefix: str


class Tree:
    """The rows of a graph. It is told where nodes stand: a frame costs what it shows, not what the graph has."""

    def __init__(self, graph: Graph) -> None:
        self.rows = tree_of(graph)
        self.places = {row.node_id: place for place, row in enumerate(self.rows)}
        self.moving: set[str] = set()
        self.failed: set[str] = set()
        self.over: set[str] = set()

    def mark(self, node_id: str, status: NodeStatus) -> None:
        """Note where a node stands."""
        is_over = status in TERMINAL_NODE
        for kept, holds in (
            (self.over, is_over),
            (self.moving, not is_over and status is not NodeStatus.PENDING),
            (self.failed, status is NodeStatus.FAILED),
        ):
            if holds:
                kept.add(node_id)
            else:
                kept.discard(node_id)

    def pick(self, room: int) -> tuple[list[Row], int]:
        """Choose the rows that fit: what failed and what moves, then what stands around it. And how many do not."""
        if len(self.rows) <= room:
            return self.rows, 0
        places = self.places
        failed = heapq.nlargest(max(room // _SHARE_OF_FAILED, 1), (places[node_id] for node_id in self.failed))
        moving = heapq.nsmallest(room - len(failed), (places[node_id] for node_id in self.moving))
        chosen = {*failed, *moving}
        last = max(moving or failed or [places[node_id] for node_id in self.over] or [0])
        around = (*range(last - 1, -1, -1), *range(last, len(self.rows)))
        for place in around:
            if len(chosen) >= room:
                break
            chosen.add(place)
        return [self.rows[place] for place in sorted(chosen)], len(self.rows) - len(chosen)


def tree_of(graph: Graph) -> list[Row]:
    """Lay a graph out as a tree: each node under the last one it waits for. Gives (node, lines before it)."""
    under: dict[str | None, list[str]] = {}
    depth: dict[str, int] = {}
    for node_id in _in_order(graph):
        requires = graph.specs[node_id].requires
        before = [] if requires is None else [leaf.node for leaf in requires.leaves()]
        parent = max(before, key=lambda each: depth[each], default=None)
        depth[node_id] = 0 if parent is None else depth[parent] + 1
        under.setdefault(parent, []).append(node_id)
    rows: list[Row] = []
    # A chain is not a staircase: an only child stands below its parent, not to the right of it.
    pending: list[tuple[str, str, str]] = [(node_id, "", "") for node_id in reversed(under.get(None, []))]
    while pending:
        node_id, lines, branch = pending.pop()
        rows.append(Row(node_id, lines + branch))
        inside = lines + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        children = under.get(node_id, [])
        for place, child in reversed(list(enumerate(children))):
            if len(children) == 1:
                pending.append((child, inside, ""))
            else:
                pending.append((child, inside, "└─ " if place == len(children) - 1 else "├─ "))
    return rows


def _in_order(graph: Graph) -> list[str]:
    waiting = {
        node_id: len({leaf.node for leaf in spec.requires.leaves()}) if spec.requires else 0
        for node_id, spec in graph.specs.items()
    }
    order = [node_id for node_id, count in waiting.items() if count == 0]
    for node_id in order:
        for follower in dict.fromkeys(each.node for each in graph.wiring.dependents.get(node_id, ())):
            waiting[follower] -= 1
            if waiting[follower] == 0:
                order.append(follower)
    return order
