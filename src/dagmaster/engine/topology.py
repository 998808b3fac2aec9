"""The order of nodes by their dependencies, and cycles among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def topological_order(ids: Collection[str], sources: Mapping[str, list[str]]) -> list[str]:
    """Sort nodes topologically, without those on a cycle."""
    waiting = {node_id: len(sources.get(node_id, ())) for node_id in ids}
    followers: dict[str, list[str]] = {}
    for node_id in ids:
        for source in sources.get(node_id, ()):
            followers.setdefault(source, []).append(node_id)
    order = [node_id for node_id in ids if waiting[node_id] == 0]
    for node_id in order:
        for follower in followers.get(node_id, ()):
            waiting[follower] -= 1
            if waiting[follower] == 0:
                order.append(follower)
    return order


def find_cycle(sources: Mapping[str, list[str]]) -> list[str]:
    """Find a cycle among nodes, in flow order, starting with the first in the file."""
    places = {node_id: index for index, node_id in enumerate(sources)}
    node_id = next(iter(sources))
    seen: dict[str, int] = {}
    path: list[str] = []
    while node_id not in seen:
        seen[node_id] = len(path)
        path.append(node_id)
        node_id = next(source for source in sources[node_id] if source in sources)
    cycle = path[seen[node_id] :][::-1]
    first = cycle.index(min(cycle, key=places.__getitem__))
    return cycle[first:] + cycle[:first]
