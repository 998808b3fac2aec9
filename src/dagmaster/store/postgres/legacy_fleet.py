"""The fleet as it is stored: who lives and what they hold, who went and what they left, what waits. It writes nothing.

A worker says with its heartbeat how many tasks it runs; it may hold more than that, ahead of time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from dagmaster.store.postgres.legacy_read_store import LegacyReadStore

_SQL = queries("legacy_fleet")

# How long those who went are still shown, and how many of each. Who lives is shown, however many they are.
RECENT_SECONDS: Final = 3600.0
_MANY: Final = 200
_OVER: Final = ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED")


@dataclass(slots=True)
class Fleet:
    """Who is alive, who went lately, and what waits. Rows as they are stored."""

    orchestrators: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    queues: list[dict[str, Any]]
    unowned: int


async def read_fleet(store: LegacyReadStore) -> Fleet:
    """Who is alive, who went lately, and what waits."""
    session, leases = store.session, store.leases
    given = {"recent_seconds": RECENT_SECONDS, "most": _MANY}
    orchestrators = [dict(row) for row in await session.fetch(_SQL["orchestrators"], given)]
    workers = [dict(row) for row in await session.fetch(_SQL["workers"], given)]
    held = {row["worker_id"]: row["count"] for row in await session.fetch(_SQL["held"], {})}
    for each in orchestrators:
        _tell_life(each, "owner_id", leases["lease_seconds"])
    for each in workers:
        count = held.get(each["worker_id"], 0)
        _tell_life(each, "worker_id", leases["worker_lease_seconds"])
        counters = each["counters"]
        # Its heartbeat may be older than the rows: it runs no more than it holds.
        each["running"] = min(counters.pop("running", count), count)
        each["prefetched"] = count - each["running"]
        counters.pop("begun", None)
        each["processes"], each["processes_busy"] = (counters.pop(key, 0) for key in ("processes", "processes_busy"))
        each["draining"] = bool(counters.pop("draining", False)) and each["alive"]
    await _tell_left_jobs(store, [each for each in orchestrators if not each["alive"]])
    await _tell_left_tasks(store, [each for each in workers if not each["alive"]])
    queues_found = [dict(row) for row in await session.fetch(_SQL["queues"], {})]
    unowned = await session.row(_SQL["unowned"], {})
    return Fleet(orchestrators, workers, queues_found, 0 if unowned is None else unowned["count"])


def _tell_life(each: dict[str, Any], key: str, lease: float) -> None:
    each[key] = str(each[key])
    each["counters"] = {} if each["counters"] is None else json.loads(each["counters"])
    stopped, silent = each["stopped_seconds"], each["silent_seconds"]
    each["lease_seconds"] = lease
    each["alive"] = stopped is None and silent < lease
    # One that stops says so as it goes; one that died was given up after its lease.
    each["died"] = not each["alive"] and (stopped is None or silent - stopped > lease)
    # One that was seen to be dead was heard later than its lease says.
    each["counters"].pop("heard_at", None)
    heard = each.pop("heard_seconds")
    each["silent_seconds"] = silent if heard is None else heard


async def _tell_left_jobs(store: LegacyReadStore, gone: list[dict[str, Any]]) -> None:
    """Return how many jobs each left, and where these are now."""
    if not gone:
        return
    given = {"owner_ids": [int(each["owner_id"]) for each in gone]}
    rows = {str(row["owner_id"]): row for row in await store.session.fetch(_SQL["left_jobs"], given)}
    for each in gone:
        row = rows.get(each["owner_id"])
        owned, unowned = (0, 0) if row is None else (row["owned"], row["unowned"])
        # One that was not given up yet owns them still.
        total = max(each["counters"].pop("left", each["jobs"]), owned + unowned)
        each["left"] = {
            "jobs": total,
            "owned_again": owned,
            "unowned": unowned,
            "not_reclaimed": each["jobs"],
            # They are over, or others had them and left them since.
            "moved_on": max(total - owned - unowned - each["jobs"], 0),
        }


async def _tell_left_tasks(store: LegacyReadStore, gone: list[dict[str, Any]]) -> None:
    """Return how many tasks each that died left, and where the nodes of these stand now."""
    named = [(each["worker_id"], task) for each in gone for task in each["counters"].pop("left_tasks", ())]
    counts: dict[str, dict[str, int]] = {}
    if named:
        given = {
            "worker_ids": [int(worker_id) for worker_id, _ in named],
            "job_ids": [int(job_id) for _, (job_id, _) in named],
            "node_ids": [node_id for _, (_, node_id) in named],
        }
        for row in await store.session.fetch(_SQL["left_nodes"], given):
            status = "over" if row["status"] in _OVER else row["status"].lower()
            found = counts.setdefault(str(row["worker_id"]), {})
            found[status] = found.get(status, 0) + row["count"]
    for each in gone:
        held = each["running"] + each["prefetched"]
        total = max(each["counters"].pop("left", held), held)
        now = counts.get(each["worker_id"], {})
        # Their jobs were pruned since.
        forgotten = max(total - held - sum(now.values()), 0)
        each["left"] = {
            "tasks": total, "not_reclaimed": held, "now": {**now, "forgotten": forgotten} if forgotten else now,
        }  # fmt: skip
