"""Keys of the language that the runtime does not implement yet: they are rejected by name instead of being ignored.

Stored definitions are not checked: a job that was accepted with such a key must still load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem


def check_unimplemented_keys(document: Document) -> Iterator[Problem]:
    """Yield a problem for each key that would have no effect."""
    data = document.data
    if data.get("max_active_jobs") is not None:
        message = "max_active_jobs is not implemented yet: all jobs of the workflow would run at once"
        yield document.problem(message, ("max_active_jobs",), hint="remove it, and limit how many jobs are submitted")
    nodes = data.get("nodes")
    for node_id, node in nodes.items() if isinstance(nodes, dict) else ():
        yield from _check_node(document, node, ("nodes", node_id))


def _check_node(document: Document, node: Any, path: Path) -> Iterator[Problem]:
    """Yield the problems of a node, and of the task of a fan-out at any depth."""
    while isinstance(node, dict):
        if node.get("pool") is not None:
            message = "pool is not implemented yet: the task would run without taking a slot"
            hint = "remove it; a queue of its own, served by workers with a --concurrency, limits tasks of all jobs"
            yield document.problem(message, (*path, "pool"), hint=hint)
        if node.get("on_item_error") == "quarantine":
            message = "on_item_error: quarantine is not implemented yet: failed items would not be set aside"
            hint = "use on_item_error: tolerate; the output of a fan_in lists the failed children"
            yield document.problem(message, (*path, "on_item_error"), hint=hint)
        node, path = node.get("task"), (*path, "task")
