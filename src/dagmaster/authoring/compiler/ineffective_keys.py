"""Keys that would have no effect: they are rejected by name instead of being ignored.

The runtime does not implement some yet; others have no effect without, or together with, another key. Stored
definitions are not checked: a job that was accepted with such a key must still load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.sdk.retry_options import delay_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

_ON_TIMEOUT: Final = {"approval": ("approve", "reject"), "wait": ("go_on", "fail")}


def check_ineffective_keys(document: Document) -> Iterator[Problem]:
    data = document.data
    if data.get("max_active_jobs") is not None:
        message = "max_active_jobs is not implemented yet: all jobs of the workflow would run at once"
        yield document.problem(
            message, ("max_active_jobs",), hint="remove it, and limit how many jobs are submitted"
        )
    nodes = data.get("nodes")
    for node_id, node in nodes.items() if isinstance(nodes, dict) else ():
        yield from _check_node(document, node, ("nodes", node_id))


def _check_node(document: Document, node: Any, path: Path) -> Iterator[Problem]:
    while isinstance(node, dict):
        if node.get("pool") is not None:
            message = "pool is not implemented yet: the task would run without taking a slot"
            hint = (
                "remove it; a dedicated queue, served by workers with a --concurrency, limits tasks of all"
                " jobs"
            )
            yield document.problem(message, (*path, "pool"), hint=hint)
        if node.get("on_item_error") == "quarantine":
            message = "on_item_error: quarantine is not implemented yet: failed items would not be set aside"
            hint = "use on_item_error: tolerate; the output of a fan_in lists the failed children"
            yield document.problem(message, (*path, "on_item_error"), hint=hint)
        yield from _check_combinations(document, node, path)
        yield from _check_delays(document, node.get("retry"), (*path, "retry"))
        node, path = node.get("task"), (*path, "task")


def _check_combinations(document: Document, node: dict[str, Any], path: Path) -> Iterator[Problem]:
    allowed = _ON_TIMEOUT.get(str(node.get("type")), ())
    if node.get("on_timeout") in allowed and node.get("timeout_seconds") is None:
        message = "on_timeout has no effect without timeout_seconds"
        yield document.problem(
            message, (*path, "on_timeout"), at_key=True, hint="add timeout_seconds, or remove it"
        )
    if node.get("on_item_error") == "tolerate":
        for key in ("tolerate_failures", "fail_fast"):
            if node.get(key):
                message = f"{key} has no effect with on_item_error: tolerate, which tolerates every failure"
                yield document.problem(message, (*path, key), at_key=True, hint="remove one of the two")


def _check_delays(document: Document, retry: Any, path: Path) -> Iterator[Problem]:
    for message, hint in delay_problems(retry):
        yield document.problem(message, (*path, "initial_delay_seconds"), hint=hint)
