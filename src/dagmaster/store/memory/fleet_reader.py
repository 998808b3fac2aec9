"""Reads orchestrators, workers, queues and the facts of a diagnosis from a `MemoryDatabase`."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from dataclasses import fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from dagmaster.engine.diagnosis.context import FinishedAttempt, InFlightTask
from dagmaster.engine.served_handlers import has_handler
from dagmaster.engine.status import TERMINAL_NODE, Isolation, NodeStatus
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.read_store import DiagnosisFacts
from dagmaster.records.fleet import FleetCounts, FleetRecord, QueueRecord
from dagmaster.records.handlers import (
    INSTALLATION,
    HandlerChange,
    HandlerRecord,
    describe_differences,
    owned_names,
)
from dagmaster.store.fleet_state import (
    CRASH_KINDS,
    OVERDUE_SECONDS,
    ClaimedTasks,
    LeftNodes,
    Registration,
    ServiceRow,
    advance_failure,
    count_stale,
    left_status,
    orchestrator_record,
    queue_state,
    recent,
    service_of,
    unknown_service,
    worker_record,
)

if TYPE_CHECKING:
    from dagmaster.engine.diagnosis.context import Service
    from dagmaster.records.page import Position
    from dagmaster.store.memory.database import (
        MemoryDatabase,
        StoredJob,
        StoredResult,
        StoredService,
        StoredTask,
    )

PLACE: Final = (socket.gethostname(), os.getpid())
"""Everything in memory is in this process."""
_VERSION: Final = version("dagmaster")
_OF_ROW: Final = tuple(one.name for one in fields(ServiceRow))


def worker_place(database: MemoryDatabase, worker_id: str | None) -> str | None:
    stored = database.workers.get(worker_id or "")
    return None if stored is None else ":".join(map(str, _place(stored)))


def _place(stored: StoredService) -> tuple[str, int]:
    return PLACE if stored.remote is None else (stored.remote.host, stored.remote.pid)


def _registration(
    database: MemoryDatabase, service_id: str, stored: StoredService, lease_seconds: float
) -> Registration:
    host, pid = _place(stored)
    return Registration(
        id=service_id,
        host=host,
        pid=pid,
        version=_VERSION if stored.remote is None else stored.remote.version,
        lease_seconds=lease_seconds,
        now=database.clock.now(),
        **{name: getattr(stored, name) for name in _OF_ROW},
    )


def orchestrators(database: MemoryDatabase, lease_seconds: float) -> dict[str, Registration]:
    registered = database.orchestrators.items()
    return {
        owner_id: _registration(database, owner_id, stored, lease_seconds) for owner_id, stored in registered
    }


def workers(database: MemoryDatabase, lease_seconds: float) -> dict[str, Registration]:
    registered = database.workers.items()
    return {
        worker_id: _registration(database, worker_id, stored, lease_seconds)
        for worker_id, stored in registered
    }


# ── The fleet ──


def read_fleet(database: MemoryDatabase, *, lease_seconds: float, worker_lease_seconds: float) -> FleetRecord:
    """Return the live services, services that stopped within the last hour, and what waits."""
    open_jobs = [job for job in database.jobs.values() if job.is_open]
    registered = recent(workers(database, worker_lease_seconds).values())
    claimed = _count_claimed(database)
    return FleetRecord(
        orchestrators=tuple(
            orchestrator_record(
                row, sum(job.owner_id == row.id for job in open_jobs), _left_jobs(open_jobs, row.id)
            )
            for row in recent(orchestrators(database, lease_seconds).values())
        ),
        workers=tuple(
            worker_record(row, claimed.get(row.id, ClaimedTasks(0)).tasks, _left_nodes(database, row))
            for row in registered
        ),
        queues=tuple(
            _queue_record(database, queue)
            for queue in sorted({task.queue for task in database.queue.values()})
        ),
        unowned_jobs=sum(job.owner_id is None for job in open_jobs),
        stale_tasks=count_stale(claimed, registered, lease_seconds),
    )


def _count_claimed(database: MemoryDatabase) -> dict[str, ClaimedTasks]:
    claimed: dict[str, ClaimedTasks] = {}
    for task in database.queue.values():
        if task.worker_id is not None:
            seconds = 0.0 if task.started_at is None else database.clock.now() - task.started_at
            tasks, overdue = claimed.get(task.worker_id, ClaimedTasks(0))
            overdue += seconds > task.timeout_seconds + OVERDUE_SECONDS
            claimed[task.worker_id] = ClaimedTasks(tasks + 1, overdue)
    return claimed


def count_services(
    database: MemoryDatabase, *, lease_seconds: float, worker_lease_seconds: float
) -> FleetCounts:
    """Count orchestrators and workers that claim, and orchestrators that drain."""
    owners = orchestrators(database, lease_seconds).values()
    return FleetCounts(
        sum(row.may_claim for row in owners),
        sum(row.may_claim for row in workers(database, worker_lease_seconds).values()),
        sum(row.is_draining for row in owners),
        sum(row.is_alive and "database_condition" in row.counters for row in owners),
    )


def read_handlers(
    database: MemoryDatabase, after: Position | None, limit: int, worker_lease_seconds: float
) -> list[HandlerRecord]:
    """Return the published handlers by name, with the number of live workers that have each."""
    live = Counter(
        (name, handler_version)
        for row in workers(database, worker_lease_seconds).values()
        if row.is_alive
        for name, handler_version in database.workers[row.id].handlers.items()
    )
    names = sorted({name for name, _ in database.handlers if after is None or name > str(after[0])})
    return [_handler_record(database, name, live) for name in names[:limit]]


def _handler_record(database: MemoryDatabase, name: str, live: Counter[tuple[str, str]]) -> HandlerRecord:
    contracts = [stored for (of, _), stored in database.handlers.items() if of == name]
    installed = [stored for stored in contracts if stored.owner == INSTALLATION]
    newest = sorted(
        installed or contracts,
        key=lambda stored: (stored.published_at, stored.definition.version),
        reverse=True,
    )
    chosen = min(newest, key=lambda stored: live[name, stored.definition.version] == 0)
    own_version, contract = chosen.definition.version, json.loads(chosen.definition.document)
    owned = owned_names(name, chosen.owner, contract)
    return HandlerRecord.of_definition(
        contract,
        name=name,
        version=own_version,
        published_at=chosen.published_at,
        workers=live[name, own_version],
        other_versions=tuple(
            stored.definition.version for stored in newest if stored.definition.version != own_version
        ),
        owner=chosen.owner,
        is_trusted=chosen.owner == INSTALLATION or chosen.trusted_at is not None,
        changes=tuple(
            HandlerChange(
                actor=actor,
                version=version,
                proposed_at=stored.published_at,
                differences=describe_differences(contract, json.loads(stored.definition.document)),
            )
            for (of, actor, version), stored in sorted(database.handler_changes.items())
            if of in owned
        ),
    )


def _left_jobs(open_jobs: list[StoredJob], owner_id: str) -> dict[str, int]:
    left = [job for job in open_jobs if job.previous_owner_id == owner_id]
    unowned = sum(job.owner_id is None for job in left)
    return {"owned": len(left) - unowned, "unowned": unowned}


def _left_nodes(database: MemoryDatabase, worker: Registration) -> LeftNodes:
    left = LeftNodes()
    for job_id, node_id in worker.counters.get("left_tasks", ()) if not worker.is_alive else ():
        node = database.jobs[job_id].nodes.get(node_id)
        if node is not None:
            task = (
                database.queue.get(node.task_id or "") if node.row.status is NodeStatus.DISPATCHED else None
            )
            status = left_status(node.row.status if task is None else task.status)
            left.statuses[status] = left.statuses.get(status, 0) + 1
            if (node.row.error or {}).get("kind") in CRASH_KINDS:
                left.crashed.append((job_id, node_id))
    return left


def _queue_record(database: MemoryDatabase, queue: str) -> QueueRecord:
    tasks = [task for task in database.queue.values() if task.queue == queue]
    unclaimed = [task for task in tasks if task.worker_id is None]
    waiting = [task.dispatched_at for task in unclaimed]
    return QueueRecord(
        queue=queue,
        waiting=len(waiting),
        waiting_exclusive=sum(task.isolation is Isolation.EXCLUSIVE for task in unclaimed),
        claimed=len(tasks) - len(waiting),
        oldest_seconds=database.clock.now() - min(waiting) if waiting else None,
    )


# ── Diagnosis ──


def read_diagnosis(
    database: MemoryDatabase, job: StoredJob, *, lease_seconds: float, worker_lease_seconds: float
) -> DiagnosisFacts:
    now, job_id = database.clock.now(), job.new.id
    registered = workers(database, worker_lease_seconds)
    owners = orchestrators(database, lease_seconds)
    owner = owners.get(job.owner_id or "")
    in_flight = _in_flight(database, job)
    waiting = {task.queue for task in in_flight.values() if task.worker_id is None}
    cancels = [event.by for event in job.events if event.type == EventType.CANCEL_REQUESTED]
    return DiagnosisFacts(
        job=job.row,
        nodes=[node.row for node in job.nodes.values()],
        owner=_service(owners, job.owner_id, lease_seconds),
        orchestrators=sum(row.may_claim for row in owners.values()),
        draining_orchestrators=sum(row.is_draining for row in owners.values()),
        advance_failure=None if owner is None else advance_failure(owner.counters, job_id, now),
        cancelled_by=cancels[-1] if cancels and job.row.cancel_requested else None,
        cancelled_at=job.cancel_requested_at,
        tasks={
            node_id: _in_flight_task(database, task, registered, worker_lease_seconds)
            for node_id, task in in_flight.items()
        },
        reports=_unread_reports(database, job_id),
        attempts=_last_attempts(database, job),
        queues={queue: queue_state(registered.values(), queue) for queue in sorted(waiting)},
    )


def _in_flight(database: MemoryDatabase, job: StoredJob) -> dict[str, StoredTask]:
    return {
        node_id: task
        for node_id, node in job.nodes.items()
        if node.row.status is NodeStatus.DISPATCHED
        and (task := database.queue.get(node.task_id or "")) is not None
    }


def _unread_reports(database: MemoryDatabase, job_id: str) -> dict[str, FinishedAttempt]:
    return {
        stored.result.node_id: _finished_attempt(database, stored)
        for stored in database.results.values()
        if stored.result.job_id == job_id
    }


def _last_attempts(database: MemoryDatabase, job: StoredJob) -> dict[str, FinishedAttempt]:
    return {
        node_id: _finished_attempt(database, stored)
        for node_id, node in job.nodes.items()
        if node.row.status in TERMINAL_NODE - {NodeStatus.SKIPPED}
        and (stored := database.attempts.get((job.new.id, node_id, node.row.attempt))) is not None
    }


def _service(
    registered: dict[str, Registration], service_id: str | None, lease_seconds: float
) -> Service | None:
    if service_id is None:
        return None
    row = registered.get(service_id)
    return unknown_service(service_id, lease_seconds) if row is None else service_of(row)


def _in_flight_task(
    database: MemoryDatabase, task: StoredTask, registered: dict[str, Registration], lease_seconds: float
) -> InFlightTask:
    return InFlightTask(
        queue=task.queue,
        dispatched_at=task.dispatched_at,
        worker=_service(registered, task.worker_id, lease_seconds),
        claimed_at=task.claimed_at,
        started_at=task.started_at,
        stop_requested_at=task.stop_requested_at,
        progress=None if task.progress is None else json.loads(task.progress),
        queue_position=_queue_position(database, task),
        handler=task.handler,
        untrusted_caller=None if task.worker_id is not None else _untrusted_caller(database, task.handler),
    )


def _untrusted_caller(database: MemoryDatabase, handler: str) -> str | None:
    """Return whose live workers offer a handler without being trusted with it, if no live worker has it."""
    live = [row for row in database.workers.values() if row.stopped_at is None]
    if any(has_handler(row.handlers, handler) for row in live):
        return None
    offers = [
        row.remote.offer.actor
        for row in live
        if handler in row.untrusted and row.remote is not None and row.remote.offer is not None
    ]
    return min(offers, default=None)


def _queue_position(database: MemoryDatabase, task: StoredTask) -> int | None:
    def waits(other: StoredTask) -> bool:
        is_unclaimed = (
            other.worker_id is None and other.stop_requested_at is None and other.queue == task.queue
        )
        return is_unclaimed and other.isolation is not Isolation.EXCLUSIVE

    if not waits(task):
        return None
    return 1 + sum(waits(other) and other.rank < task.rank for other in database.queue.values())


def _finished_attempt(database: MemoryDatabase, stored: StoredResult) -> FinishedAttempt:
    result = stored.result
    return FinishedAttempt(
        attempt=result.attempt,
        status=result.status,
        at=result.reported_at,
        seconds=None if result.started_at is None else result.reported_at - result.started_at,
        where=worker_place(database, stored.task.worker_id),
    )
