"""Queries about orchestrators, workers and queues."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.views.fleet import (
    DrainView,
    FleetView,
    LeftJobsView,
    LeftTasksView,
    OrchestratorStatusView,
    OrchestratorView,
    QueueView,
    TaskNodeView,
    WorkerView,
)
from dagmaster.engine.diagnosis.active_nodes import format_all_draining, format_busy_processes
from dagmaster.ports.run_queues import is_orphaned_queue, is_served
from dagmaster.records.page import Page
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.read_store import (
        DrainRecord,
        FleetRecord,
        OrchestratorRecord,
        Position,
        QueueRecord,
        WorkerRecord,
    )

_SUMMED: Final = ("jobs_claimed", "jobs_reclaimed", "jobs_finished", "turns", "results")
V = TypeVar("V", OrchestratorView, WorkerView, QueueView)


async def fleet(app: Application) -> FleetView:
    """Return the services that are alive or stopped within the last hour, and the queues with tasks."""
    return fleet_view(await app.read.fleet())


def fleet_view(record: FleetRecord) -> FleetView:
    """Return the view of a fleet."""
    return FleetView(
        orchestrators=tuple(map(_orchestrator_view, record.orchestrators)),
        workers=tuple(map(_worker_view, record.workers)),
        queues=tuple(_queue_view(queue, record.workers) for queue in record.queues),
        unowned_jobs=record.unowned_jobs,
    )


async def orchestrator_status(app: Application) -> OrchestratorStatusView:
    """Return what the orchestrators did that are alive or stopped within the last hour, in sum."""
    view = await fleet(app)
    alive = [one for one in view.orchestrators if one.is_alive]
    sums = dict.fromkeys(_SUMMED, 0)
    for one in view.orchestrators:
        for name in _SUMMED:
            count = one.counters.get(name)
            # An orchestrator of an older version does not count everything.
            sums[name] += count if isinstance(count, int) else 0
    return OrchestratorStatusView(
        alive=len(alive),
        jobs=sum(one.jobs for one in alive),
        unowned_jobs=view.unowned_jobs,
        orchestrators=view.orchestrators,
        **sums,
    )


async def list_orchestrators(
    app: Application, *, cursor: str | None = None, limit: int = 100
) -> Page[OrchestratorView]:
    """List the orchestrators that are alive or stopped within the last hour, by id."""
    after = start_page(CursorKind.ORCHESTRATORS, cursor, limit)
    views = (await fleet(app)).orchestrators
    return _page(CursorKind.ORCHESTRATORS, views, after, limit, lambda view: view.orchestrator_id)


async def list_workers(app: Application, *, cursor: str | None = None, limit: int = 100) -> Page[WorkerView]:
    """List the workers that are alive or stopped within the last hour, by id."""
    after = start_page(CursorKind.WORKERS, cursor, limit)
    return _page(CursorKind.WORKERS, (await fleet(app)).workers, after, limit, lambda view: view.worker_id)


async def list_queues(app: Application, *, cursor: str | None = None, limit: int = 100) -> Page[QueueView]:
    """List the queues that have tasks, by name."""
    after = start_page(CursorKind.QUEUES, cursor, limit)
    return _page(CursorKind.QUEUES, (await fleet(app)).queues, after, limit, lambda view: view.queue)


def _page(
    kind: CursorKind, views: Sequence[V], after: Position | None, limit: int, key: Callable[[V], str]
) -> Page[V]:
    """Return a page of a list that is read as a whole: a fleet is small."""
    later = [view for view in sorted(views, key=key) if after is None or key(view) > str(after[0])]
    page = later[:limit]
    return Page(items=tuple(page), next_cursor=next_cursor(kind, page, limit, lambda view: (key(view),)))


def _queue_view(record: QueueRecord, workers: Sequence[WorkerRecord]) -> QueueView:
    queue = record.queue
    is_orphaned = is_orphaned_queue(
        queue, [worker.queues for worker in workers if worker.stopped_seconds is None]
    )
    alive = [
        worker
        for worker in workers
        if worker.is_alive and is_served(queue, worker.queues, is_orphaned=is_orphaned)
    ]
    claiming = sum(not worker.is_draining for worker in alive)
    note = None
    if record.waiting and alive and not claiming:
        note = f"no worker claims from {queue}: {format_all_draining(len(alive), 'worker')}"
    elif record.waiting and not claiming:
        note = f"no live worker serves {queue}"
    elif record.waiting_exclusive:
        tasks = format_count(record.waiting_exclusive, "task waits", "tasks wait")
        them = "it" if record.waiting_exclusive == 1 else "them"
        note = (
            f"{tasks} for a worker of {queue} that runs nothing else: workers died that ran {them} beside other"
            " tasks"
        )
    elif record.waiting:
        note = _process_shortage(queue, alive)
    finished = sum(worker.finished_last_minute.get(queue, 0) for worker in workers)
    return _from_record(QueueView, record, workers=claiming, note=note, finished_last_minute=finished)


def _process_shortage(queue: str, workers: Sequence[WorkerRecord]) -> str | None:
    """Return why tasks wait although workers have free slots: plain functions run in fewer processes."""
    concurrency, running = (
        sum(worker.concurrency for worker in workers),
        sum(worker.running for worker in workers),
    )
    processes, busy = (
        sum(worker.processes for worker in workers),
        sum(worker.processes_busy for worker in workers),
    )
    if running >= concurrency or not 0 < processes <= busy:
        return None
    owner = "the worker's" if len(workers) == 1 else "the workers'"
    return f"{queue} waits although there are free slots: {format_busy_processes(owner, processes)}"


def _orchestrator_view(record: OrchestratorRecord) -> OrchestratorView:
    left = None if record.left is None else LeftJobsView(**record.left)
    drains = _drain_fields(record.drain, record.jobs)
    return _from_record(OrchestratorView, record, orchestrator_id=record.owner_id, left=left, **drains)


def _drain_fields(drain: DrainRecord | None, holds: int) -> dict[str, Any]:
    if drain is None:
        return {"drain": None, "is_drained": False}
    view = DrainView(requested_seconds=drain.requested_seconds, is_seen=drain.is_seen)
    return {"drain": view, "is_drained": drain.is_seen and holds == 0}


def _worker_view(record: WorkerRecord) -> WorkerView:
    drains = _drain_fields(record.drain, record.running + record.prefetched)
    if record.left is None:
        return _from_record(WorkerView, record, left=None, **drains)
    alone_with = record.left.get("alone_with")
    left = LeftTasksView(
        tasks=record.left["tasks"],
        not_reclaimed=record.left["not_reclaimed"],
        now=record.left["now"],
        alone_with=None if alone_with is None else TaskNodeView(**alone_with),
        crashed=tuple(TaskNodeView(**node) for node in record.left.get("crashed", ())),
    )
    return _from_record(WorkerView, record, left=left, **drains)


def _from_record(view: type[V], record: Any, **others: Any) -> V:
    """Return a view with the fields of a record by their names, besides those that are passed."""
    names = [field.name for field in fields(view) if field.name not in others]
    return view(**{name: getattr(record, name) for name in names}, **others)
