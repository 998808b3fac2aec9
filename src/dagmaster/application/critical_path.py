"""The critical path of a job: the nodes that decided how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def critical_path(ends: Mapping[str, float], dependencies: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the path to the node that ended last: before each node, the last to end of those it waited for.

    `ends`: when each node ended, now for one that runs; nodes that did not run are missing. Of nodes that
    ended at the same time, the one that is last in `dependencies` counts: what follows at once ends in the
    same turn.
    """
    order = {node_id: number for number, node_id in enumerate(dependencies)}
    path: list[str] = []
    candidates = [node_id for node_id in dependencies if node_id in ends]
    while candidates:
        last = max(candidates, key=lambda node_id: (ends[node_id], order[node_id]))
        path.append(last)
        candidates = [node_id for node_id in dependencies[last] if node_id in ends]
    return tuple(reversed(path))
