"""Reads the facts that `engine.diagnosis` explains a job with. It decides nothing.

The queries run one after the other: a report that arrives in between is seen as reported, or as processed by
the owner, which is what it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dagmaster.engine.diagnosis.context import FinishedAttempt, InFlightTask
from dagmaster.ports.read_store import DiagnosisFacts
from dagmaster.store.fleet_state import (
    advance_failure,
    queue_state,
    service_of,
    unknown_service,
)
from dagmaster.store.postgres.fleet import read_workers, registration_of
from dagmaster.store.postgres.job_rows import job_row, node_row
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncpg import Record

    from dagmaster.engine.diagnosis.context import QueueState, Service
    from dagmaster.json_types import JsonObject
    from dagmaster.store.fleet_state import Registration
    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("diagnosis")


async def read_diagnosis(
    pool: Reader, job_id: int, *, lease_seconds: float, worker_lease_seconds: float
) -> DiagnosisFacts | None:
    params: JsonObject = {"job_id": job_id}
    job = await pool.row(_SQL["job"], {**params, "lease_seconds": lease_seconds})
    if job is None:
        return None
    rows = await pool.fetch(_SQL["nodes"], params)
    in_flight = [row for row in rows if row["task_id"] is not None]
    workers = await read_workers(
        pool, {row["worker_id"] for row in in_flight if row["worker_id"] is not None}, worker_lease_seconds
    )
    positions, queue_states = await _read_queues(pool, job_id, in_flight, workers)
    waiting = sorted({row["handler"] for row in in_flight if row["worker_id"] is None})
    offers = await pool.fetch(_SQL["untrusted_offers"], {"names": waiting}) if waiting else []
    untrusted = {row["name"]: row["caller"] for row in offers}
    cancel = await pool.row(_SQL["cancelled_by"], params) if job["cancel_requested"] else None
    return DiagnosisFacts(
        job=job_row(job),
        nodes=[node_row(row) for row in rows],
        owner=_owner(job, lease_seconds),
        orchestrators=job["orchestrators"],
        draining_orchestrators=job["draining_orchestrators"],
        advance_failure=advance_failure(json.loads(job["counters"] or "{}"), str(job_id), job["now"]),
        cancelled_by=None if cancel is None else cancel["by"],
        cancelled_at=job["cancelled_at"],
        tasks={
            row["node_id"]: _task(row, workers, positions, untrusted, worker_lease_seconds)
            for row in in_flight
        },
        reports=_attempts(await pool.fetch(_SQL["reports"], params)),
        attempts=_attempts(await pool.fetch(_SQL["attempts"], params)),
        queues=queue_states,
    )


async def _read_queues(
    pool: Reader, job_id: int, in_flight: list[Record], workers: Mapping[str, Registration]
) -> tuple[dict[int, int], dict[str, QueueState]]:
    """Read the positions of the job's tasks in their queues, and the capacity of these queues."""
    names = sorted({row["queue"] for row in in_flight if row["worker_id"] is None})
    if not names:
        return {}, {}
    rows = await pool.fetch(_SQL["queue_positions"], {"queues": names, "job_id": job_id})
    positions = {row["task_id"]: row["position"] for row in rows}
    return positions, {name: queue_state(workers.values(), name) for name in names}


def _owner(job: Record, lease_seconds: float) -> Service | None:
    if job["owner_id"] is None:
        return None
    owner_id = str(job["owner_id"])
    if job["host"] is None:
        return unknown_service(owner_id, lease_seconds)
    return service_of(registration_of({**dict(job), "id": owner_id}, lease_seconds))


def _task(
    row: Record,
    workers: Mapping[str, Registration],
    positions: Mapping[int, int],
    untrusted: Mapping[str, str],
    worker_lease_seconds: float,
) -> InFlightTask:
    worker_id = row["worker_id"]
    worker = None if worker_id is None else workers.get(str(worker_id))
    service: Service | None = None
    if worker is not None:
        service = service_of(worker)
    elif worker_id is not None:
        service = unknown_service(str(worker_id), worker_lease_seconds)
    return InFlightTask(
        queue=row["queue"],
        dispatched_at=row["dispatched_at"],
        worker=service,
        claimed_at=row["claimed_at"],
        started_at=row["started_at"],
        stop_requested_at=row["stop_requested_at"],
        progress=None if row["progress"] is None else json.loads(row["progress"]),
        queue_position=positions.get(row["task_id"]),
        handler=row["handler"],
        untrusted_caller=untrusted.get(row["handler"]) if worker_id is None else None,
    )


def _attempts(rows: Iterable[Record]) -> dict[str, FinishedAttempt]:
    return {
        row["node_id"]: FinishedAttempt(
            attempt=row["attempt"],
            status=row["status"],
            at=row["at"],
            seconds=row["seconds"],
            where=row["worker"],
        )
        for row in rows
    }
