"""Tasks of graphs that were built in code, by the ids that their makers gave them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.application.queries.nodes import node_detail
from dagmaster.application.views.graph_tasks import GraphTaskView
from dagmaster.authoring.added_nodes import fill_place
from dagmaster.engine.expressions.json_values import path_text
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import NodeNotFound
from dagmaster.host.snowflakes import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.added_nodes import PlacedNode


async def find_task(app: Application, task_id: str, *, max_bytes: int | None = None) -> GraphTaskView:
    """Return a task that was made in Python, by its own id; raise `NodeNotFound`.

    A larger result is not read.
    """
    number = int(task_id) if task_id.isascii() and task_id.isdigit() else -1
    place = await app.read.added_nodes.find_node(number)
    if place is None:
        raise NodeNotFound(f"there is no task {task_id!r} that was made in Python")
    try:
        detail = await node_detail(app, place.job_id, place.node.node_id, max_bytes=max_bytes)
    except NodeNotFound:
        # The owner of the job has not accepted it yet.
        return _view(place)
    attempt: dict[str, object] = {"worker_id": detail.worker_id}
    if detail.attempts:
        last = detail.attempts[-1]
        attempt = {
            "worker_id": last.worker_id,
            "attempt_id": last.task_id,
            "claimed_at": last.claimed_at,
            "started_at": last.started_at,
        }
    return _view(
        place,
        status=detail.status,
        attempts=detail.attempt,
        result=detail.output,
        error=detail.error,
        **attempt,
        completed_at=detail.finished_at,
    )


def _view(place: PlacedNode, **state: object) -> GraphTaskView:
    node = place.node
    definition = json.loads(node.definition)
    return GraphTaskView(
        task_id=str(node.id),
        job_id=place.job_id,
        node_id=node.node_id,
        group=node.group,
        group_id=None if place.group_id is None else str(place.group_id),
        entrypoint=definition.get("handler"),
        kwargs=_kwargs(definition),
        queue=definition.get("queue"),
        created_at=time_of(str(node.id)),
        **{"status": NodeStatus.PENDING, **state},  # type: ignore[arg-type]
    )


def _kwargs(definition: Mapping[str, Any]) -> JsonObject:
    """Return params as they were given, with results of other tasks as a workflow file names them."""
    params: JsonObject = definition.get("params", {})
    for path, node_id, *within in definition.get("references", ()):
        source = path_text(["nodes", node_id, "output", *(key for keys in within for key in keys)])
        params = fill_place(params, path, f"{{{{ {source} }}}}")
    return params
