"""Lay out a workflow as a tree of lines, and choose the lines for a screen that is too small for all."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.application.views import TERMINAL_NODE, NodeStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Failed nodes may take this part of a screen that is too small: active nodes also need lines.
_SHARE_OF_FAILED: Final = 3


class Row(NamedTuple):
    """A node's line: its id, and the branches drawn before it."""

    node_id: str
    prefix: str


class Tree:
    """The rows of a workflow.

    Statuses are updated one by one, so the cost of a frame depends on the rows it shows.
    """

    def __init__(self, dependencies: Mapping[str, Sequence[str]]) -> None:
        self.rows = tree_rows(dependencies)
        self.positions = {row.node_id: position for position, row in enumerate(self.rows)}
        self.active: set[str] = set()
        self.failed: set[str] = set()
        self.finished: set[str] = set()

    def mark(self, node_id: str, status: NodeStatus) -> None:
        is_finished = status in TERMINAL_NODE
        for members, belongs in (
            (self.finished, is_finished),
            (self.active, not is_finished and status is not NodeStatus.PENDING),
            (self.failed, status is NodeStatus.FAILED),
        ):
            if belongs:
                members.add(node_id)
            else:
                members.discard(node_id)

    def pick(self, limit: int) -> tuple[list[Row], int]:
        """Return the rows that fit and the number of those that do not: failed and active ones first."""
        if len(self.rows) <= limit:
            return self.rows, 0
        positions = self.positions
        failed = heapq.nlargest(
            max(limit // _SHARE_OF_FAILED, 1), (positions[node_id] for node_id in self.failed)
        )
        active = heapq.nsmallest(limit - len(failed), (positions[node_id] for node_id in self.active))
        chosen = {*failed, *active}
        last = max(active or failed or [positions[node_id] for node_id in self.finished] or [0])
        around = (*range(last - 1, -1, -1), *range(last, len(self.rows)))
        for position in around:
            if len(chosen) >= limit:
                break
            chosen.add(position)
        return [self.rows[position] for position in sorted(chosen)], len(self.rows) - len(chosen)


def tree_rows(dependencies: Mapping[str, Sequence[str]]) -> list[Row]:
    """Lay out nodes, given in topological order, as a tree: each below the deepest node that it waits for."""
    under: dict[str | None, list[str]] = {}
    depth: dict[str, int] = {}
    for node_id, depends_on in dependencies.items():
        parent = max(depends_on, key=lambda node: depth[node], default=None)
        depth[node_id] = 0 if parent is None else depth[parent] + 1
        under.setdefault(parent, []).append(node_id)
    rows: list[Row] = []
    # An only child is drawn below its parent, not to the right of it: a chain is not indented.
    pending: list[tuple[str, str, str]] = [(node_id, "", "") for node_id in reversed(under.get(None, []))]
    while pending:
        node_id, lines, branch = pending.pop()
        rows.append(Row(node_id, lines + branch))
        inside = lines + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        children = under.get(node_id, [])
        for position, child in reversed(list(enumerate(children))):
            if len(children) == 1:
                pending.append((child, inside, ""))
            else:
                pending.append((child, inside, "└─ " if position == len(children) - 1 else "├─ "))
    return rows
