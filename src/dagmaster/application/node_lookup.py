"""Find the node that a caller names: a node of the graph, or a child of a fan-out such as tiles__4."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import FanOutSpec, Kind, WaitSpec
from dagmaster.engine.groups import all_members, has_members, is_group_start
from dagmaster.engine.shown_graph import shown_graph
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import NodeNotFound
from dagmaster.records.nodes import NodeRecord
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.records.jobs import JobRecord

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


async def find_node(app: Application, job: JobRecord, graph: Graph, node_id: str) -> NodeRecord:
    """Return the row of a node, PENDING if it has none; raise `NodeNotFound` if the node does not exist."""
    return (await find_nodes(app, job, graph, [node_id]))[0]


async def find_nodes(
    app: Application, job: JobRecord, graph: Graph, node_ids: Sequence[str]
) -> list[NodeRecord]:
    """Return the rows of nodes in order; raise `NodeNotFound` for the first one that does not exist."""
    parents = [parent[0] for node_id in node_ids if (parent := child_of(node_id)) is not None]
    rows = {
        row.node_id: row for row in await app.read.nodes(job.job_id, [*dict.fromkeys([*node_ids, *parents])])
    }
    return [_find_row(job, graph, node_id, rows) for node_id in node_ids]


def _find_row(job: JobRecord, graph: Graph, node_id: str, rows: Mapping[str, NodeRecord]) -> NodeRecord:
    if node_id in rows:
        return rows[node_id]
    pending = NodeStatus.PENDING
    if node_id in graph.specs:
        return NodeRecord(node_id=node_id, status=pending, job_id=job.job_id, workflow_id=job.workflow_id)
    fan_out, index = child_of(node_id) or ("", 0)
    count = rows[fan_out].source_count if fan_out in rows else None
    if count is None:
        if isinstance(spec_of(graph, fan_out), FanOutSpec):
            raise NodeNotFound(f"{fan_out} has no children yet: there is no {node_id}")
        raise NodeNotFound(unknown_node(graph.workflow_id, node_id, graph.specs))
    if index >= count:
        raise NodeNotFound(unknown_child(node_id, fan_out, count))
    return NodeRecord(
        node_id=node_id,
        status=pending,
        job_id=job.job_id,
        workflow_id=job.workflow_id,
        parent_node_id=fan_out,
        fan_out_index=index,
    )


def child_of(node_id: str) -> tuple[str, int] | None:
    """Return the fan-out of a child and the child's index. A child of an inner fan-out is tiles__4__7."""
    fan_out, separator, index = node_id.rpartition("__")
    return (fan_out, int(index)) if separator and fan_out and _INDEX.fullmatch(index) else None


def spec_of(graph: Graph, node_id: str) -> Spec | None:
    """Return the spec of a node; of a child, the one that its fan-out runs for each item."""
    parent = child_of(node_id)
    if node_id in graph.specs or parent is None:
        return graph.specs.get(node_id)
    fan_out = spec_of(graph, parent[0])
    return fan_out.child if isinstance(fan_out, FanOutSpec) else None


def members_of(graph: Graph, node_id: str) -> Iterator[str]:
    """Return the members of a group at any depth, without the groups among them; none for any other node."""
    spec = graph.specs.get(node_id)
    return iter(()) if spec is None or not has_members(spec) else all_members(graph.specs, node_id)


def describe_action(spec: Spec) -> str:
    handler = getattr(spec, "handler", None)
    if handler is not None:
        return str(handler)
    if spec.kind is Kind.WORKFLOW:
        return f"workflow {getattr(spec, 'workflow_id', '')}"
    if isinstance(spec, WaitSpec) and spec.signal is not None:
        return f"waits for signal {spec.signal}"
    return "" if spec.kind in (Kind.START, Kind.END) else spec.kind.value


def is_written(node_id: str) -> bool:
    """Return whether a node is one that an author wrote, not one that joins the dependencies of a group."""
    return not is_group_start(node_id)


def actions_of(graph: Graph) -> dict[str, str]:
    """Return in a few words what each node does."""
    return {node_id: describe_action(spec) for node_id, spec in graph.specs.items()}


def approvals_of(graph: Graph) -> list[str] | None:
    """Return the ids of all approvals of a job; None if its fan-outs or child jobs may add others."""
    if any(spec.kind in (Kind.WORKFLOW, Kind.FAN_OUT) for spec in graph.specs.values()):
        return None
    return [node_id for node_id, spec in graph.specs.items() if spec.kind is Kind.APPROVAL]


def dependencies_of(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the nodes that each node waits for, in topological order."""
    graph = shown_graph(graph)
    depends_on = {
        node_id: tuple(dict.fromkeys(leaf.node for leaf in spec.requires.leaves())) if spec.requires else ()
        for node_id, spec in graph.specs.items()
    }
    open_counts = {node_id: len(nodes) for node_id, nodes in depends_on.items()}
    order = [node_id for node_id, count in open_counts.items() if count == 0]
    for node_id in order:
        for follower in dict.fromkeys(leaf.node for leaf in graph.wiring.dependents.get(node_id, ())):
            open_counts[follower] -= 1
            if open_counts[follower] == 0:
                order.append(follower)
    return {node_id: depends_on[node_id] for node_id in order}


def unknown_node(workflow_id: str, node_id: str, node_ids: Collection[str]) -> str:
    """Return the sentence about a node that does not exist, with the nearest name."""
    return f"{workflow_id} has no node {node_id!r}. {suggest_name(node_id, node_ids)}".strip()


def unknown_child(node_id: str, fan_out: str, count: int) -> str:
    """Return the sentence about a child that a fan-out does not have, with those that it has."""
    if not count:
        return f"there is no {node_id}: {fan_out} has no children, because its list is empty"
    last = f" to {fan_out}__{count - 1}" if count > 1 else ""
    return (
        f"there is no {node_id}: {fan_out} has {format_count(count, 'child', 'children')}, {fan_out}__0{last}"
    )


def suggest_name(wrong: str, names: Collection[str]) -> str:
    """Return a sentence that names the nearest of some names; empty if none is near."""
    from dagmaster.errors.suggestions import did_you_mean

    hint = did_you_mean(wrong, names)
    return f"{hint[:1].upper()}{hint[1:]}"
