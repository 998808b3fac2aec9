"""Queries about orchestrators, workers and queues."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.views.fleet import OrchestratorStatusView
from dagmaster.engine.diagnosis.active_nodes import format_all_draining
from dagmaster.engine.diagnosis.context import format_busy_processes
from dagmaster.ports.run_queues import is_orphaned_queue, is_served
from dagmaster.records.fleet import FleetRecord, OrchestratorRecord, QueueRecord, WorkerRecord
from dagmaster.records.page import Page
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dagmaster.application.context import Application
    from dagmaster.records.page import Position

    FleetReader = Callable[[], Awaitable[FleetRecord]]

_SUMMED: Final = ("jobs_claimed", "jobs_reclaimed", "jobs_finished", "turns", "results")
V = TypeVar("V", OrchestratorRecord, WorkerRecord, QueueRecord)


async def fleet(app: Application) -> FleetRecord:
    """Return the services that are alive or stopped within the last hour, and the queues with tasks."""
    return describe_queues(await app.read.fleet())


def describe_queues(fleet: FleetRecord) -> FleetRecord:
    """Return a fleet whose queues tell which workers serve them, and why tasks wait."""
    return replace(fleet, queues=tuple(_describe_queue(queue, fleet.workers) for queue in fleet.queues))


async def orchestrator_status(app: Application) -> OrchestratorStatusView:
    """Return what the orchestrators did that are alive or stopped within the last hour, in sum."""
    return sum_orchestrators(await fleet(app))


def sum_orchestrators(view: FleetRecord) -> OrchestratorStatusView:
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
) -> Page[OrchestratorRecord]:
    """List the orchestrators that are alive or stopped within the last hour, by id."""
    return await page_of_orchestrators(partial(fleet, app), cursor, limit)


async def list_workers(
    app: Application, *, cursor: str | None = None, limit: int = 100
) -> Page[WorkerRecord]:
    """List the workers that are alive or stopped within the last hour, by id."""
    return await page_of_workers(partial(fleet, app), cursor, limit)


async def list_queues(app: Application, *, cursor: str | None = None, limit: int = 100) -> Page[QueueRecord]:
    return await page_of_queues(partial(fleet, app), cursor, limit)


# ── Pages of a fleet that `read` returns: a server may have an earlier one ──


async def page_of_orchestrators(
    read: FleetReader, cursor: str | None, limit: int
) -> Page[OrchestratorRecord]:
    after = start_page(CursorKind.ORCHESTRATORS, cursor, limit)
    views = (await read()).orchestrators
    return _page(CursorKind.ORCHESTRATORS, views, after, limit, lambda view: view.orchestrator_id)


async def page_of_workers(read: FleetReader, cursor: str | None, limit: int) -> Page[WorkerRecord]:
    after = start_page(CursorKind.WORKERS, cursor, limit)
    return _page(CursorKind.WORKERS, (await read()).workers, after, limit, lambda view: view.worker_id)


async def page_of_queues(read: FleetReader, cursor: str | None, limit: int) -> Page[QueueRecord]:
    after = start_page(CursorKind.QUEUES, cursor, limit)
    return _page(CursorKind.QUEUES, (await read()).queues, after, limit, lambda view: view.queue)


def _page(
    kind: CursorKind, views: Sequence[V], after: Position | None, limit: int, key: Callable[[V], str]
) -> Page[V]:
    """Return a page of a list that is read as a whole: a fleet is small."""
    later = [view for view in sorted(views, key=key) if after is None or key(view) > str(after[0])]
    page = later[:limit]
    return Page(items=tuple(page), next_cursor=next_cursor(kind, page, limit, lambda view: (key(view),)))


def _describe_queue(record: QueueRecord, workers: Sequence[WorkerRecord]) -> QueueRecord:
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
    finished = sum(worker.finished_last_minute.get(queue, 0) for worker in workers)
    note = _explain_waiting(record, alive, claiming)
    return replace(record, workers=claiming, note=note, finished_last_minute=finished)


def _explain_waiting(record: QueueRecord, alive: Sequence[WorkerRecord], claiming: int) -> str | None:
    """Return why tasks of a queue wait, if something is missing. `claiming`: how many of `alive` claim."""
    queue = record.queue
    if record.waiting and not claiming:
        if not alive:
            return f"no live worker serves {queue}"
        return f"no worker claims from {queue}: {format_all_draining(len(alive), 'worker')}"
    if record.waiting_exclusive:
        tasks = format_count(record.waiting_exclusive, "task waits", "tasks wait")
        them = "it" if record.waiting_exclusive == 1 else "them"
        return (
            f"{tasks} for a worker of {queue} that runs nothing else:"
            f" workers died that ran {them} next to other tasks"
        )
    return _process_shortage(queue, alive) if record.waiting else None


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
