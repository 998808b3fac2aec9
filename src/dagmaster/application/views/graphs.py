"""Views of the graph of a workflow: what runs, and what waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.engine.graph import Kind
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNodeView(Record):
    """A node of a graph. `action`: what it does, in a few words.

    `handler`: what a task runs, or a fan-out for each item; null for other kinds. `group`: the group that it
    is in.
    """

    node_id: str
    kind: Kind
    action: str
    handler: str | None
    description: str
    group: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdgeView(Record):
    """A dependency: `target` waits for `source`, or for one of these `branches` of it.

    `is_alternative`: it is a member of an `any_of`, so that another node may take its place.
    """

    source: str
    target: str
    branches: tuple[str, ...]
    is_alternative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView(Record):
    """The graph of a version. It never changes: equal hashes are equal graphs."""

    workflow_id: str
    version: int
    name: str
    content_hash: str
    nodes: tuple[GraphNodeView, ...]
    edges: tuple[GraphEdgeView, ...]
