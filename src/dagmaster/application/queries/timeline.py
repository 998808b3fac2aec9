"""The timeline of a job: when its attempts were queued, started and finished, and its critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.job_lookup import find_job
from dagmaster.application.node_lookup import dependencies_of, is_written
from dagmaster.application.views.timeline import TimelineView
from dagmaster.engine.shown_graph import shown_graph
from dagmaster.engine.status import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.timelines import TimelineRecord
    from dagmaster.records.jobs import JobRecord

MAX_TIMELINE: Final = 10_000
"""The most rows of a page."""
_NOT_RUN: Final = frozenset({NodeStatus.PENDING, NodeStatus.READY, NodeStatus.SKIPPED, NodeStatus.CANCELLED})


async def job_timeline(
    app: Application, job_id: str | None, *, cursor: str | None = None, limit: int = MAX_TIMELINE
) -> TimelineView:
    after = start_page(CursorKind.TIMELINE, cursor, limit, max_limit=MAX_TIMELINE)
    job = await find_job(app, job_id)
    records = await app.read.timelines.rows(job.job_id, after=after, limit=limit)
    rows = [row for row in records if is_written(row.node_id)]
    since = await _waiting_since(app, job, rows)
    names = list(dict.fromkeys(row.worker for row in rows if row.worker is not None))
    numbers: dict[str | None, int] = {name: number for number, name in enumerate(names)}
    origin = job.created_at
    return TimelineView(
        job_id=job.job_id,
        status=job.status,
        origin_at=origin,
        now_seconds=round(job.read_at - origin, 3),
        finished_seconds=_seconds_since(origin, job.finished_at),
        worker_names=tuple(names),
        node_ids=tuple(row.node_id for row in rows),
        attempts=tuple(row.attempt for row in rows),
        statuses=tuple(row.status for row in rows),
        workers=tuple(numbers.get(row.worker) for row in rows),
        queued=tuple(_seconds_since(origin, row.queued_at) for row in rows),
        started=tuple(_seconds_since(origin, row.started_at or since.get(row.node_id)) for row in rows),
        finished=tuple(_seconds_since(origin, row.finished_at) for row in rows),
        critical_path=await _critical_path(app, job) if cursor is None else (),
        next_cursor=next_cursor(CursorKind.TIMELINE, records, limit, _position),
    )


def _position(row: TimelineRecord) -> tuple[str, int]:
    return (row.node_id, row.attempt)


def _seconds_since(origin: float, at: float | None) -> float | None:
    return None if at is None else round(at - origin, 3)


async def _waiting_since(
    app: Application, job: JobRecord, rows: Sequence[TimelineRecord]
) -> dict[str, float]:
    node_ids = [row.node_id for row in rows if row.attempt == 0 and row.started_at is None]
    if not node_ids:
        return {}
    waits = await app.read.waits(job.job_id, node_ids)
    return {node_id: wait.since for node_id, wait in waits.items()}


async def _critical_path(app: Application, job: JobRecord) -> tuple[str, ...]:
    graph = shown_graph(await app.outlines.of_job(job))
    records = {record.node_id: record for record in await app.read.nodes(job.job_id, list(graph.specs))}
    ends = {
        node_id: job.read_at if record.finished_at is None else record.finished_at
        for node_id, record in records.items()
        if record.status not in _NOT_RUN
    }
    path = critical_path(ends, dependencies_of(graph))
    children: dict[str, str] = {}
    fan_outs = [node_id for node_id in path if records[node_id].source_count is not None]
    while fan_outs:
        children |= (last := await app.read.timelines.last_children(job.job_id, fan_outs))
        # A child may itself be a fan-out; others have no children.
        fan_outs = list(last.values())
    return tuple(step for node_id in path for step in _with_children(node_id, children))


def _with_children(node_id: str, children: dict[str, str]) -> list[str]:
    steps = [node_id]
    while (child := children.get(steps[-1])) is not None:
        steps.append(child)
    return steps


def critical_path(ends: Mapping[str, float], dependencies: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the path to the node that ended last: before each node, the last to end of those it waited for.

    `ends`: when each node ended, now for one that runs; nodes that did not run are missing. Of nodes that
    ended at the same time, the one that is last in `dependencies` counts: what follows at once ends in the
    same turn.
    """
    order = {node_id: number for number, node_id in enumerate(dependencies)}
    path: list[str] = []
    candidates = [node_id for node_id in dependencies if node_id in ends]
    while candidates:
        last = max(candidates, key=lambda node_id: (ends[node_id], order[node_id]))
        path.append(last)
        candidates = [node_id for node_id in dependencies[last] if node_id in ends]
    return tuple(reversed(path))
