"""The node that a user names: a node of the graph, or a child of a fan-out; else the sentence that helps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import FanOutSpec
from dagmaster.errors import NodeNotFound
from dagmaster.text_format import counted

if TYPE_CHECKING:
    from dagmaster.cli.database import ReadSession
    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.store.postgres.legacy_read_store import JobDetail, NodeRecord

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")


async def named_node(onlooker: ReadSession, head: JobDetail, graph: Graph, node_id: str) -> NodeRecord:
    """Return the row of a node, PENDING if it has none; raise `NodeNotFound` if the node does not exist."""
    from dagmaster.store.postgres.legacy_read_store import NodeRecord

    rows = {line.node_id: line for line in await onlooker.store.nodes(head.id, [node_id, *_above(node_id)])}
    if node_id in rows:
        return rows[node_id]
    if node_id in graph.specs:
        return NodeRecord(node_id=node_id, status="PENDING")
    fan, number = child_of(node_id) or ("", 0)
    count = rows[fan].source_count if fan in rows else None
    if count is None:
        if isinstance(spec_of(graph, fan), FanOutSpec):
            raise NodeNotFound(f"{fan} has no children yet: there is no {node_id}")
        raise NodeNotFound(no_node(graph, node_id))
    if number < count:
        return NodeRecord(node_id=node_id, status="PENDING", parent_node_id=fan)
    raise NodeNotFound(no_child(node_id, fan, count))


def child_of(node_id: str) -> tuple[str, int] | None:
    """The fan-out of a child, and the child's number there. A child of an inner fan-out is tiles__4__7."""
    fan, mark, number = node_id.rpartition("__")
    return (fan, int(number)) if mark and fan and _NUMBER.fullmatch(number) else None


def spec_of(graph: Graph, node_id: str) -> Spec | None:
    """What a node does: of a child, what its fan-out has done for each item."""
    above = child_of(node_id)
    if node_id in graph.specs or above is None:
        return graph.specs.get(node_id)
    fan = spec_of(graph, above[0])
    return fan.child if isinstance(fan, FanOutSpec) else None


def no_node(graph: Graph, node_id: str) -> str:
    """Say that there is no such node, and which one may be meant."""
    return f"{graph.workflow_id} has no node {node_id!r}. {hint(node_id, list(graph.specs))}".strip()


def no_child(node_id: str, fan: str, count: int) -> str:
    """Say that a fan-out has no such child, and which it has."""
    if not count:
        return f"there is no {node_id}: {fan} has no children, for its list is empty"
    last = f" to {fan}__{count - 1}" if count > 1 else ""
    return f"there is no {node_id}: {fan} has {counted(count, 'child', 'children')}, {fan}__0{last}"


def hint(wrong: str, right: list[str]) -> str:
    """Name what may be meant."""
    from dagmaster.authoring.suggestions import did_you_mean

    said = did_you_mean(wrong, right)
    return f"{said[:1].upper()}{said[1:]}"


def _above(node_id: str) -> list[str]:
    above = child_of(node_id)
    return [] if above is None else [above[0]]


async def graph_of(onlooker: ReadSession, head: JobDetail) -> Graph:
    """Return the graph of a job."""
    from dagmaster.authoring.compiler.compile import compile_definition

    definition = await onlooker.store.definition(head.content_hash)
    return compile_definition(definition or {})
