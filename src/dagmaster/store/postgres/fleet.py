"""Reads the fleet: orchestrators, workers, queues, and the handlers that workers have published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import NodeStatus
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.records.fleet import FleetRecord, QueueRecord
from dagmaster.records.handlers import HandlerChange, HandlerRecord, describe_differences, owned_names
from dagmaster.store.fleet_state import (
    CRASH_KINDS,
    MAX_STOPPED,
    OVERDUE_SECONDS,
    RECENT_SECONDS,
    ClaimedTasks,
    LeftNodes,
    Registration,
    count_stale,
    left_status,
    orchestrator_record,
    recent,
    without_counts,
    worker_record,
)
from dagmaster.store.postgres.job_list import is_storable
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from asyncpg import Record

    from dagmaster.json_types import JsonObject
    from dagmaster.records.page import Position
    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("fleet")
_CONTRACTS = queries("handlers")
_NONE: Final = ClaimedTasks(0)


async def read_fleet(
    pool: Reader, *, lease_seconds: float, worker_lease_seconds: float, sees_all: bool = True
) -> FleetRecord:
    """Read the live services, services that stopped within the last hour, and what waits.

    Services count and name what they did for all tenants: who does not see all gets none of that.
    """
    params = {"recent_seconds": RECENT_SECONDS, "max_stopped": MAX_STOPPED}
    rows = await pool.fetch(_SQL["orchestrators"], params)
    jobs = {str(row["id"]): row["jobs"] for row in rows}
    orchestrators = recent(_registrations(rows, lease_seconds, sees_all=sees_all))
    rows = await pool.fetch(_SQL["workers"], params)
    workers = recent(_registrations(rows, worker_lease_seconds, sees_all=sees_all))
    claimed = await _read_claimed(pool)
    left_jobs = await _left_jobs(pool, [row for row in orchestrators if not row.is_alive])
    left_nodes = await _left_nodes(pool, [row for row in workers if not row.is_alive])
    queue_rows = await pool.fetch(_SQL["queues"], {})
    unowned = await pool.row(_SQL["unowned_jobs"], {})
    return FleetRecord(
        orchestrators=tuple(
            orchestrator_record(row, jobs[row.id], left_jobs.get(row.id, {})) for row in orchestrators
        ),
        workers=tuple(
            worker_record(row, claimed.get(row.id, _NONE).tasks, left_nodes.get(row.id)) for row in workers
        ),
        queues=tuple(QueueRecord(**dict(row)) for row in queue_rows),
        unowned_jobs=0 if unowned is None else unowned["jobs"],
        stale_tasks=count_stale(claimed, workers, lease_seconds),
    )


async def has_tenants(pool: Reader) -> bool:
    """Return whether there are other tenants than the installation."""
    row = await pool.row(_SQL["has_tenants"], {})
    return row is not None and bool(row["has_tenants"])


def _registrations(rows: Iterable[Record], lease_seconds: float, *, sees_all: bool) -> Iterator[Registration]:
    for row in rows:
        registration = registration_of(row, lease_seconds)
        is_own = row.get("tenant") not in (None, DEFAULT_TENANT)
        yield registration if sees_all or is_own else without_counts(registration)


async def _read_claimed(pool: Reader) -> dict[str, ClaimedTasks]:
    rows = await pool.fetch(_SQL["claimed"], {"overdue_seconds": OVERDUE_SECONDS})
    return {str(row["worker_id"]): ClaimedTasks(row["tasks"], row["overdue"]) for row in rows}


async def read_workers(
    pool: Reader, worker_ids: Collection[int], worker_lease_seconds: float
) -> dict[str, Registration]:
    """Read the registered workers, and these."""
    rows = await pool.fetch(_SQL["workers_of_tasks"], {"worker_ids": sorted(worker_ids)})
    return {str(row["id"]): registration_of(row, worker_lease_seconds) for row in rows}


async def read_handlers(
    pool: Reader, after: Position | None, limit: int, worker_lease_seconds: float
) -> list[HandlerRecord]:
    """Read the published handlers by name, with the number of live workers that have each."""
    last = "" if after is None else str(after[0])
    if not is_storable(last):
        return []
    params = {"after": last, "limit": limit, "lease_seconds": worker_lease_seconds}
    rows = await pool.fetch(_SQL["handlers"], params)
    contracts = [json.loads(row["definition"]) for row in rows]
    owned = [owned_names(row["name"], row["owner"], of) for row, of in zip(rows, contracts, strict=True)]
    names = sorted(frozenset().union(*owned))
    changes = await pool.fetch(_CONTRACTS["changes"], {"names": names}) if names else []
    return [
        HandlerRecord.of_definition(
            contract,
            name=row["name"],
            version=row["version"],
            published_at=row["published_at"],
            workers=row["workers"],
            other_versions=tuple(json.loads(row["versions"])[1:]),
            owner=row["owner"],
            is_trusted=row["is_trusted"],
            changes=tuple(_change(contract, change) for change in changes if change["name"] in names_of_row),
        )
        for row, contract, names_of_row in zip(rows, contracts, owned, strict=True)
    ]


def _change(contract: JsonObject, row: Record) -> HandlerChange:
    return HandlerChange(
        actor=row["actor"],
        version=row["version"],
        proposed_at=row["proposed_at"],
        differences=describe_differences(contract, json.loads(row["definition"])),
    )


def registration_of(row: Record | Mapping[str, Any], lease_seconds: float) -> Registration:
    return Registration(
        id=str(row["id"]),
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        stopped_at=row["stopped_at"],
        lease_seconds=lease_seconds,
        now=row["now"],
        counters=json.loads(row["counters"] or "{}"),
        queues=tuple(row.get("queues") or ()),
        concurrency=row.get("concurrency") or 1,
        drain_requested_at=row.get("drain_requested_at"),
        drain_seen_at=row.get("drain_seen_at"),
    )


async def _left_jobs(pool: Reader, stopped: Sequence[Registration]) -> dict[str, dict[str, int]]:
    if not stopped:
        return {}
    rows = await pool.fetch(_SQL["left_jobs"], {"owner_ids": [int(row.id) for row in stopped]})
    return {str(row["owner_id"]): {"owned": row["owned"], "unowned": row["unowned"]} for row in rows}


async def _left_nodes(pool: Reader, stopped: Sequence[Registration]) -> dict[str, LeftNodes]:
    """Count the nodes of tasks that dead workers left, by status, and find those that crashed since."""
    tasks = [
        (int(row.id), int(job_id), node)
        for row in stopped
        for job_id, node in row.counters.get("left_tasks", ())
    ]
    if not tasks:
        return {}
    worker_ids, job_ids, node_ids = (list(column) for column in zip(*tasks, strict=True))
    params = {
        "worker_ids": worker_ids, "job_ids": job_ids, "node_ids": node_ids,
        "crash_kinds": sorted(CRASH_KINDS),
    }  # fmt: skip
    left: dict[str, LeftNodes] = {}
    for row in await pool.fetch(_SQL["left_nodes"], params):
        status = left_status(NodeStatus(row["status"]))
        of_worker = left.setdefault(str(row["worker_id"]), LeftNodes())
        of_worker.statuses[status] = of_worker.statuses.get(status, 0) + row["nodes"]
        of_worker.crashed += [(job_id, node_id) for job_id, node_id in json.loads(row["crashed"] or "[]")]
    return left
