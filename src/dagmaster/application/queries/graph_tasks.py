"""Tasks of graphs that were built in code, by the ids that their makers gave them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dagmaster.application.cursors import CursorKind, encode_cursor, start_page
from dagmaster.application.job_lookup import find_job
from dagmaster.application.queries.nodes import node_detail
from dagmaster.application.secret_inputs import RedactorCache
from dagmaster.application.views.graph_tasks import GraphDependencyView, GraphTaskView
from dagmaster.authoring.added_nodes import fill_place
from dagmaster.engine.expressions.json_values import path_text
from dagmaster.engine.graph import is_hold
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import NodeNotFound
from dagmaster.host.snowflakes import time_of
from dagmaster.ports.added_nodes import PlacedNode
from dagmaster.records.page import Page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.added_nodes import StoredBatch
    from dagmaster.records.nodes import NodeRecord
    from dagmaster.records.page import Position

T = TypeVar("T")

MAX_LISTED: Final = 10_000
"""The most tasks or dependencies of a page: the graph of the job is read for each."""
_NODES_AT_ONCE: Final = 1_000


async def list_graph_tasks(
    app: Application,
    job_id: str,
    *,
    node_id: str | None = None,
    cursor: str | None = None,
    limit: int = MAX_LISTED,
) -> Page[GraphTaskView]:
    """List the tasks of a job that were made in Python, in the order in which they were added.

    Without their results and attempts. `node_id`: only the task of this node.
    """
    start = start_page(CursorKind.GRAPH_TASKS, cursor, limit, max_limit=MAX_LISTED)
    job = await find_job(app, job_id)
    batches = await _load_batches(app, job.job_id)
    groups = {group.name: group.id for batch in batches for group in batch.groups}
    nodes = [node for batch in batches for node in batch.nodes if node_id in (None, node.node_id)]
    tasks = [node for node in nodes if "handler" in json.loads(node.definition)]
    page, following = _cut(CursorKind.GRAPH_TASKS, tasks, start, limit)
    records: dict[str, NodeRecord] = {}
    names = [node.node_id for node in page]
    for first in range(0, len(names), _NODES_AT_ONCE):
        rows = await app.read.nodes(job.job_id, names[first : first + _NODES_AT_ONCE])
        records |= {record.node_id: record for record in await RedactorCache(app).redacted(rows)}
    items = tuple(
        _view(PlacedNode(job.job_id, node, groups.get(node.group or "")), **_state(records.get(node.node_id)))
        for node in page
    )
    return Page(items=items, next_cursor=following)


async def list_dependencies(
    app: Application, job_id: str, *, cursor: str | None = None, limit: int = MAX_LISTED
) -> Page[GraphDependencyView]:
    """List the dependencies of a job between tasks and groups that were made in Python.

    What a task takes as an argument is one of them. Holds of open contexts are left out.
    """
    start = start_page(CursorKind.GRAPH_DEPENDENCIES, cursor, limit, max_limit=MAX_LISTED)
    job = await find_job(app, job_id)
    batches = await _load_batches(app, job.job_id)
    ids = {node.node_id: node.id for batch in batches for node in batch.nodes if not is_hold(node.node_id)}
    ids |= {group.name: group.id for batch in batches for group in batch.groups}
    rows = [row for batch in batches for row in batch.dependencies]
    held = {row.next_id for row in rows if is_hold(row.previous_id)}
    shown = [row for row in rows if {row.previous_id, row.next_id} <= ids.keys() - held]
    page, following = _cut(CursorKind.GRAPH_DEPENDENCIES, shown, start, limit)
    items = tuple(
        GraphDependencyView(
            previous_id=str(ids[row.previous_id]),
            previous_type=row.previous_type,
            next_id=str(ids[row.next_id]),
            next_type=row.next_type,
        )
        for row in page
    )
    return Page(items=items, next_cursor=following)


async def _load_batches(app: Application, job_id: str) -> list[StoredBatch]:
    """Return what was added to a job, with what its owner has not accepted yet."""
    reader = app.read.added_nodes
    pending = await reader.pending_batches(job_id)
    batches = await reader.load_batches(job_id)
    return [*batches, *await reader.load_batches(job_id, pending)] if pending else batches


def _cut(
    kind: CursorKind, rows: Sequence[T], start: Position | None, limit: int
) -> tuple[Sequence[T], str | None]:
    """Return the rows of a page, and the cursor of the next one."""
    first = 0 if start is None else int(start[0])
    following = encode_cursor(kind, [first + limit]) if first + limit < len(rows) else None
    return rows[first : first + limit], following


def _state(record: NodeRecord | None) -> dict[str, object]:
    """Return what is known of a node without its attempts; nothing of one that has no row yet."""
    if record is None:
        return {}
    return {
        "status": record.status,
        "attempts": record.attempt,
        "error": record.error,
        "worker_id": record.worker_id,
        "started_at": record.started_at,
        "completed_at": record.finished_at,
    }


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
