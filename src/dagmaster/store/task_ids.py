"""Ids of tasks and groups that code made without a store: the store rejects the second use of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.errors import NodesRejected

if TYPE_CHECKING:
    from dagmaster.ports.added_nodes import NodeRecord


def id_in_use(node: NodeRecord) -> NodesRejected:
    return NodesRejected(
        f"task {node.node_id}: its id {node.id} is that of another task: make the task again"
    )
