"""Queries about orchestrators, workers and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.views.fleet import FleetView, OrchestratorView, QueueView, WorkerView
from dagmaster.engine.diagnosis.active_nodes import format_busy_processes
from dagmaster.ports.run_queues import is_served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.read_store import OrchestratorRecord, QueueRecord, WorkerRecord


async def fleet(app: Application) -> FleetView:
    """Return the orchestrators and workers that are alive or left lately, and the queues with tasks."""
    record = await app.read.fleet()
    return FleetView(
        orchestrators=tuple(map(_orchestrator_view, record.orchestrators)),
        workers=tuple(map(_worker_view, record.workers)),
        queues=tuple(_queue_view(queue, record.workers) for queue in record.queues),
        unowned_jobs=record.unowned_jobs,
    )


async def list_orchestrators(app: Application) -> tuple[OrchestratorView, ...]:
    """List the orchestrators that are alive or left lately."""
    return (await fleet(app)).orchestrators


async def list_workers(app: Application) -> tuple[WorkerView, ...]:
    """List the workers that are alive or left lately."""
    return (await fleet(app)).workers


async def list_queues(app: Application) -> tuple[QueueView, ...]:
    """List the queues that have tasks."""
    return (await fleet(app)).queues


def _queue_view(record: QueueRecord, workers: Sequence[WorkerRecord]) -> QueueView:
    alive = [worker for worker in workers if worker.is_alive and is_served(record.queue, worker.queues)]
    claiming = sum(not worker.is_draining for worker in alive)
    note = None
    if record.waiting and not claiming:
        note = f"no live worker serves {record.queue}"
    elif record.waiting:
        note = _process_shortage(record.queue, alive)
    return QueueView(
        queue=record.queue,
        waiting=record.waiting,
        claimed=record.claimed,
        oldest_seconds=record.oldest_seconds,
        workers=claiming,
        note=note,
    )


def _process_shortage(queue: str, workers: Sequence[WorkerRecord]) -> str | None:
    """Return why tasks wait although workers have free slots: plain functions run in fewer processes."""
    concurrency, running = sum(worker.concurrency for worker in workers), sum(worker.running for worker in workers)
    processes, busy = sum(worker.processes for worker in workers), sum(worker.processes_busy for worker in workers)
    if running >= concurrency or not 0 < processes <= busy:
        return None
    owner = "the worker's" if len(workers) == 1 else "the workers'"
    return f"{queue} waits although there are free slots: {format_busy_processes(owner, processes)}"


def _orchestrator_view(record: OrchestratorRecord) -> OrchestratorView:
    return OrchestratorView(
        orchestrator_id=record.owner_id,
        host=record.host,
        pid=record.pid,
        version=record.version,
        is_alive=record.is_alive,
        has_died=record.has_died,
        lease_seconds=record.lease_seconds,
        silent_seconds=record.silent_seconds,
        age_seconds=record.age_seconds,
        stopped_seconds=record.stopped_seconds,
        jobs=record.jobs,
        counters=dict(record.counters),
        left=None if record.left is None else dict(record.left),
    )


def _worker_view(record: WorkerRecord) -> WorkerView:
    return WorkerView(
        worker_id=record.worker_id,
        host=record.host,
        pid=record.pid,
        version=record.version,
        queues=record.queues,
        concurrency=record.concurrency,
        is_alive=record.is_alive,
        has_died=record.has_died,
        is_draining=record.is_draining,
        lease_seconds=record.lease_seconds,
        silent_seconds=record.silent_seconds,
        age_seconds=record.age_seconds,
        stopped_seconds=record.stopped_seconds,
        running=record.running,
        prefetched=record.prefetched,
        processes=record.processes,
        processes_busy=record.processes_busy,
        counters=dict(record.counters),
        left=None if record.left is None else dict(record.left),
    )
