"""Queries about nodes, attempts and tasks: of one job, and across jobs."""

from __future__ import annotations

from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, encode_cursor, next_cursor, start_page
from dagmaster.application.job_lookup import find_job, load_value
from dagmaster.application.job_snapshot import JobSnapshot, node_view, progress_view
from dagmaster.application.node_lookup import child_of, find_node, members_of
from dagmaster.application.secret_inputs import JobRedactor, RedactorCache
from dagmaster.application.views.nodes import AttemptView, NodeDetailView, NodeView, TaskView
from dagmaster.engine.groups import is_group_start
from dagmaster.engine.status import NOT_BEGUN_MEMBER, NodeStatus
from dagmaster.ports.finished_tasks import FinishedTaskFilter
from dagmaster.ports.read_store import NodeFilter, TaskFilter
from dagmaster.records.page import Page

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.read_store import AttemptRecord, NodeRecord, TaskRecord
    from dagmaster.records.jobs import JobRecord

_DETAIL_ATTEMPTS: Final = 100
MEMBERS_AT_ONCE: Final = 1_000
"""How many members of a group are read at once."""


async def list_nodes(
    app: Application, node_filter: NodeFilter | None = None, *, cursor: str | None = None, limit: int = 100
) -> Page[NodeView]:
    """List nodes that have started, across jobs (newest job first) or of one job."""
    node_filter = node_filter or NodeFilter()
    kind = CursorKind.NODES if node_filter.job_id is None else CursorKind.JOB_NODES
    records = await app.read.list_nodes(node_filter, after=start_page(kind, cursor, limit), limit=limit)
    redactors = RedactorCache(app)
    items = tuple(
        [
            node_view(record, redact=await redactors.get(record.job_id), started_at=record.started_at)
            for record in records
            if not is_group_start(record.node_id)
        ]
    )
    position = _position_in_job if kind is CursorKind.JOB_NODES else _position_across_jobs
    return Page(items=items, next_cursor=next_cursor(kind, records, limit, position))


def _position_in_job(record: NodeRecord) -> tuple[int | str, ...]:
    return (record.parent_node_id or "", record.fan_out_index, record.node_id)


def _position_across_jobs(record: NodeRecord) -> tuple[int | str, ...]:
    return (record.job_id, record.node_id)


async def list_children(
    app: Application,
    job_id: str | None,
    fan_out: str,
    *,
    statuses: frozenset[NodeStatus] = frozenset(),
    cursor: str | None = None,
    limit: int = 100,
) -> Page[NodeView]:
    """List the children of a fan-out by index."""
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
    redact = JobRedactor(graph.inputs, job.inputs)
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
    base = snapshot.node_view(record)
    output = await load_value(app, values.output, values.output_ref, max_bytes=max_bytes)
    attempts = await app.read.attempts(job.job_id, node_id, limit=_DETAIL_ATTEMPTS)
    # What a task's params name as secret is redacted in everything that is shown beside them.
    hide = redact.with_secrets(values.hidden)
    return NodeDetailView(
        **{field.name: getattr(base, field.name) for field in fields(base)},
        workflow_id=job.workflow_id,
        version=job.version,
        handler_version=record.handler_version,
        attempts=tuple(attempt_view(job.job_id, attempt, hide) for attempt in reversed(attempts)),
        has_item=values.has_item,
        item=hide(values.item),
        params=hide(values.params),
        output=hide(output),
        read_at=job.read_at,
    )


async def _begun_members(
    app: Application, job: JobRecord, graph: Graph, group: NodeRecord
) -> list[NodeRecord]:
    """Return some members of a group that have begun, if there are any: those of a large one are not all read."""
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
) -> Page[AttemptView]:
    """List the attempts at a node, newest first."""
    after = start_page(CursorKind.ATTEMPTS, cursor, limit)
    job = await find_job(app, job_id)
    graph = await app.outlines.of_job(job)
    await find_node(app, job, graph, node_id)
    records = await app.read.attempts(job.job_id, node_id, after=after, limit=limit)
    values = await app.read.node_values(job.job_id, node_id)
    hide = JobRedactor(graph.inputs, job.inputs).with_secrets(values.hidden)
    return Page(
        items=tuple(attempt_view(job.job_id, record, hide) for record in records),
        next_cursor=next_cursor(CursorKind.ATTEMPTS, records, limit, lambda record: (record.attempt,)),
    )


async def list_tasks(
    app: Application, task_filter: TaskFilter | None = None, *, cursor: str | None = None, limit: int = 100
) -> Page[TaskView]:
    """List tasks in flight across jobs, newest first."""
    after = start_page(CursorKind.TASKS, cursor, limit)
    records = await app.read.tasks(task_filter or TaskFilter(), after=after, limit=limit)
    redactors = RedactorCache(app)
    items = []
    for record in records:
        has_message = bool((record.progress or {}).get("message"))
        items.append(task_view(record, await redactors.get(record.job_id) if has_message else None))
    return Page(
        items=tuple(items),
        next_cursor=next_cursor(CursorKind.TASKS, records, limit, lambda record: (record.task_id,)),
    )


async def list_finished_tasks(
    app: Application,
    task_filter: FinishedTaskFilter | None = None,
    *,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[AttemptView]:
    """List finished tasks across jobs, newest first.

    A page with a cursor may be short: few of many tasks match.
    """
    after = start_page(CursorKind.FINISHED_TASKS, cursor, limit)
    page = await app.read.finished_tasks.page(task_filter or FinishedTaskFilter(), after=after, limit=limit)
    redactors = RedactorCache(app)
    items = [
        attempt_view(job_id, attempt, await redactors.get(job_id)) for job_id, attempt, _ in page.records
    ]
    following = None if page.after is None else encode_cursor(CursorKind.FINISHED_TASKS, page.after)
    return Page(items=tuple(items), next_cursor=following)


def attempt_view(job_id: str, attempt: AttemptRecord, redact: Callable[[Any], Any]) -> AttemptView:
    """Return the view of an attempt's record."""
    started, completed = attempt.started_at, attempt.completed_at
    seconds = None if started is None or completed is None else round(max(completed - started, 0.0), 6)
    return AttemptView(
        job_id=job_id,
        node_id=attempt.node_id,
        attempt=attempt.attempt,
        task_id=attempt.task_id,
        status=attempt.status,
        queue=attempt.queue,
        worker_id=attempt.worker_id,
        worker=attempt.worker,
        dispatched_at=attempt.dispatched_at,
        claimed_at=attempt.claimed_at,
        started_at=started,
        finished_at=completed,
        duration_seconds=seconds,
        progress=progress_view(redact(attempt.progress)),
        error=redact(attempt.error),
        metrics=redact(attempt.metrics),
    )


def task_view(record: TaskRecord, redact: Callable[[Any], Any] | None = None) -> TaskView:
    """Return the view of a task's record. A record whose progress has a message needs the job's redactor."""
    return TaskView(
        task_id=record.task_id,
        job_id=record.job_id,
        node_id=record.node_id,
        attempt=record.attempt,
        queue=record.queue,
        priority=record.priority,
        handler=record.handler,
        isolation=record.isolation,
        status=record.status,
        dispatched_at=record.dispatched_at,
        worker_id=record.worker_id,
        claimed_at=record.claimed_at,
        started_at=record.started_at,
        stop_requested_at=record.stop_requested_at,
        progress=progress_view(record.progress if redact is None else redact(record.progress)),
    )
