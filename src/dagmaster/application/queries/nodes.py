"""Queries about nodes, attempts and tasks: of one job, and across jobs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, encode_cursor, next_cursor, start_page
from dagmaster.application.job_lookup import find_job, load_value
from dagmaster.application.job_snapshot import JobSnapshot
from dagmaster.application.node_lookup import child_of, find_node, members_of
from dagmaster.application.secret_inputs import RedactorCache, redactor_of
from dagmaster.application.views.nodes import NodeDetailView
from dagmaster.engine.groups import is_group_start
from dagmaster.engine.status import NOT_BEGUN_MEMBER, NodeStatus
from dagmaster.ports.finished_tasks import FinishedTaskFilter
from dagmaster.ports.read_store import NodeFilter, TaskFilter
from dagmaster.records.nodes import NodeRecord
from dagmaster.records.page import Page
from dagmaster.records.redacted import redacted
from dagmaster.records.tasks import AttemptRecord, TaskRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import NodeRecord
    from dagmaster.records.page import Position
    from dagmaster.records.tasks import AttemptRecord, TaskRecord

_DETAIL_ATTEMPTS: Final = 100
MEMBERS_AT_ONCE: Final = 1_000
"""How many members of a group are read at once."""


async def list_nodes(
    app: Application, node_filter: NodeFilter | None = None, *, cursor: str | None = None, limit: int = 100
) -> Page[NodeRecord]:
    """List nodes that have started, across jobs (newest job first) or of one job."""
    node_filter = node_filter or NodeFilter()
    kind = CursorKind.NODES if node_filter.job_id is None else CursorKind.JOB_NODES
    records = await app.read.list_nodes(node_filter, after=start_page(kind, cursor, limit), limit=limit)
    nodes = [record for record in records if not is_group_start(record.node_id)]
    items = await RedactorCache(app).redacted(nodes)
    return Page(items=items, next_cursor=next_cursor(kind, records, limit, _POSITIONS[kind]))


_POSITIONS: Final[Mapping[CursorKind, Callable[[NodeRecord], Position]]] = {
    CursorKind.NODES: lambda record: (record.job_id, record.node_id),
    CursorKind.JOB_NODES: lambda record: record.place_in_job,
}


async def list_children(
    app: Application,
    job_id: str | None,
    fan_out: str,
    *,
    statuses: frozenset[NodeStatus] = frozenset(),
    cursor: str | None = None,
    limit: int = 100,
) -> Page[NodeRecord]:
    job = await find_job(app, job_id)
    graph = await app.outlines.of_job(job)
    await find_node(app, job, graph, fan_out)
    children = NodeFilter(job_id=job.job_id, parent_node_id=fan_out, statuses=statuses)
    return await list_nodes(app, children, cursor=cursor, limit=limit)


async def node_detail(
    app: Application, job_id: str | None, node_id: str, *, max_bytes: int | None = None
) -> NodeDetailView:
    """Return one node, or one child of a fan-out, with its attempts and values.

    A larger output is not read.
    """
    job = await find_job(app, job_id)
    graph = await app.outlines.of_job(job)
    record = await find_node(app, job, graph, node_id)
    redact = redactor_of(graph.inputs, job)
    place = None if record.parent_node_id is None else child_of(node_id)
    values = await app.read.node_values(job.job_id, node_id, child_of=place)
    children = {} if record.source_count is None else await app.read.child_counts(job.job_id, [node_id])
    members = await _begun_members(app, job, graph, record)
    is_waiting = not job.is_finished and record.status is NodeStatus.WAITING
    snapshot = JobSnapshot(
        job=job,
        graph=graph,
        redact=redact,
        lease_seconds=app.read.lease_seconds,
        nodes={node_id: record, **{member.node_id: member for member in members}},
        children=children,
        waits=await app.read.waits(job.job_id, [node_id]) if is_waiting else {},
    )
    output = await load_value(app, values.output, values.output_ref, max_bytes=max_bytes)
    attempts = await app.read.attempts(job.job_id, node_id, limit=_DETAIL_ATTEMPTS)
    # What a task's params name as secret is redacted in everything that is shown next to them.
    hide = redact.with_secrets(values.hidden)
    detail = NodeDetailView.of(
        snapshot.describe(record),
        workflow_id=job.workflow_id,
        version=job.version,
        attempts=tuple(redacted(attempt, hide) for attempt in reversed(attempts)),
        has_item=values.has_item,
        item=values.item,
        params=values.params,
        output=output,
        read_at=job.read_at,
    )
    return redacted(detail, hide)


async def _begun_members(
    app: Application, job: JobRecord, graph: Graph, group: NodeRecord
) -> list[NodeRecord]:
    """Return some members of a group that have begun; a large group is not read as a whole."""
    if group.status is not NodeStatus.PENDING or job.is_finished:
        return []
    members = members_of(graph, group.node_id)
    while some := list(islice(members, MEMBERS_AT_ONCE)):
        rows = await app.read.nodes(job.job_id, some)
        if any(row.status not in NOT_BEGUN_MEMBER for row in rows):
            return rows
    return []


async def list_attempts(
    app: Application, job_id: str | None, node_id: str, *, cursor: str | None = None, limit: int = 100
) -> Page[AttemptRecord]:
    after = start_page(CursorKind.ATTEMPTS, cursor, limit)
    job = await find_job(app, job_id)
    graph = await app.outlines.of_job(job)
    await find_node(app, job, graph, node_id)
    records = await app.read.attempts(job.job_id, node_id, after=after, limit=limit)
    values = await app.read.node_values(job.job_id, node_id)
    hide = redactor_of(graph.inputs, job).with_secrets(values.hidden)
    return Page(
        items=tuple(redacted(record, hide) for record in records),
        next_cursor=next_cursor(CursorKind.ATTEMPTS, records, limit, lambda record: (record.attempt,)),
    )


async def list_tasks(
    app: Application, task_filter: TaskFilter | None = None, *, cursor: str | None = None, limit: int = 100
) -> Page[TaskRecord]:
    """List tasks in flight across jobs, newest first."""
    after = start_page(CursorKind.TASKS, cursor, limit)
    records = await app.read.tasks(task_filter or TaskFilter(), after=after, limit=limit)
    return Page(
        items=await RedactorCache(app).redacted(records),
        next_cursor=next_cursor(CursorKind.TASKS, records, limit, lambda record: (record.task_id,)),
    )


async def list_finished_tasks(
    app: Application,
    task_filter: FinishedTaskFilter | None = None,
    *,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[AttemptRecord]:
    """List finished tasks across jobs, newest first.

    A page with a cursor may be short: few of many tasks match.
    """
    after = start_page(CursorKind.FINISHED_TASKS, cursor, limit)
    page = await app.read.finished_tasks.page(task_filter or FinishedTaskFilter(), after=after, limit=limit)
    items = await RedactorCache(app).redacted([record.attempt for record in page.records])
    following = None if page.after is None else encode_cursor(CursorKind.FINISHED_TASKS, page.after)
    return Page(items=items, next_cursor=following)
