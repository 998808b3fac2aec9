"""The feed of many jobs on PostgreSQL.

A turn notifies its job's channel only when the job finishes or a command was processed: NOTIFY is not free,
and most jobs have no reader. A feed announces the jobs that it watches; for a while, every turn of these
notifies all feeds on one channel. A channel for each job would take a LISTEN for each stream, and again for
all after a lost connection.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from dagmaster.engine.status import NodeStatus
from dagmaster.ports.job_feed import WATCH_SECONDS
from dagmaster.records.nodes import ChildCounts
from dagmaster.store.postgres.job_list import MAX_INTEGER, bigint, is_storable, jobs_query
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.node_list import keyed_nodes_query
from dagmaster.store.postgres.read_rows import job_record, node_record, stored_event, task_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.job_feed import EventPosition, NodeKey
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import NodeRecord
    from dagmaster.records.tasks import TaskRecord
    from dagmaster.store.postgres.job_subscriptions import JobSubscriptions
    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("job_feed")
_ANNOUNCE_SECONDS: Final = WATCH_SECONDS / 3
# A payload has fewer than 8,000 bytes; an id and a comma have at most 20.
_IDS_IN_PAYLOAD: Final = 390


class PostgresJobFeed:
    """Watches and reads many jobs. Ids that no row can have match nothing."""

    def __init__(
        self, pool: Reader, subscriptions: JobSubscriptions, on_change: Callable[[str], None]
    ) -> None:
        self._pool = pool
        self._subscriptions = subscriptions
        self._listener = subscriptions.listener
        self._losses: int | None = None
        self._on_change = on_change
        self._watched: set[str] = set()
        self._announced_at = float("-inf")

    @property
    def has_notifications(self) -> bool:
        return self._listener.can_listen

    async def watch(self, job_ids: Collection[str]) -> None:
        """Listen, connect again if that is necessary, and announce the jobs."""
        if not self.has_notifications:
            return
        numbers = set(_numbers(job_ids).values())
        new, self._watched = numbers - self._watched, numbers
        await self._subscriptions.add_feed(self._on_turn)
        if self._losses not in (None, self._listener.losses):
            # Nothing arrived between the loss and now.
            self._on_turn(None)
        self._losses = self._listener.losses
        now = time.monotonic()
        is_due = now - self._announced_at > _ANNOUNCE_SECONDS
        announced = list(numbers if is_due else new)
        lists = [
            ",".join(announced[first : first + _IDS_IN_PAYLOAD])
            for first in range(0, len(announced), _IDS_IN_PAYLOAD)
        ]
        if lists:
            await self._listener.fetch(_SQL["announce"], {"lists": lists})
        if is_due:
            self._announced_at = now

    def _on_turn(self, job_id: str | None) -> None:
        """Call back for a watched job; for all of them if notifications may have been missed."""
        for changed in self._watched if job_id is None else self._watched & {job_id}:
            self._on_change(changed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watched = set()
        await self._subscriptions.remove_feed(self._on_turn)

    async def events(self, positions: Sequence[EventPosition], *, limit: int) -> list[list[StoredEvent]]:
        known = [
            (place, number, max(after, 0))
            for place, (job_id, after) in enumerate(positions)
            if after <= MAX_INTEGER and (number := bigint(job_id)) is not None
        ]
        events: list[list[StoredEvent]] = [[] for _ in positions]
        if known:
            places, numbers, afters = map(list, zip(*known, strict=True))
            params = {"places": places, "job_ids": numbers, "afters": afters, "limit": limit}
            for row in await self._pool.fetch(_SQL["events"], params):
                events[row["place"]].append(stored_event(row))
        return events

    async def jobs(self, job_ids: Collection[str]) -> list[JobRecord]:
        numbers = list(_numbers(job_ids))
        return [job_record(row) for row in await self._pool.fetch(jobs_query(), {"job_ids": numbers})]

    async def nodes(self, keys: Collection[NodeKey]) -> list[NodeRecord]:
        known = _keys(keys)
        if not known:
            return []
        params = {"job_ids": [number for number, _ in known], "node_ids": [node_id for _, node_id in known]}
        return [node_record(row) for row in await self._pool.fetch(keyed_nodes_query(), params)]

    async def child_counts(self, fan_outs: Collection[NodeKey]) -> Mapping[NodeKey, ChildCounts]:
        return await read_child_counts(self._pool, fan_outs)

    async def claimed_tasks(self, job_ids: Collection[str], *, limit: int) -> list[TaskRecord]:
        params = {"job_ids": list(_numbers(job_ids)), "limit": limit}
        return [task_record(row) for row in await self._pool.fetch(_SQL["claimed_tasks"], params)]


async def read_child_counts(pool: Reader, fan_outs: Collection[NodeKey]) -> Mapping[NodeKey, ChildCounts]:
    """Count the children of fan-outs by status; a fan-out without children has none."""
    counts: dict[NodeKey, dict[NodeStatus, int]] = {key: {} for key in fan_outs}
    first_started: dict[NodeKey, float] = {}
    known = _keys(fan_outs)
    params = {"job_ids": [number for number, _ in known], "fan_outs": [fan_out for _, fan_out in known]}
    for row in await pool.fetch(_SQL["child_counts"], params) if known else ():
        key, started_at = (str(row["job_id"]), row["fan_out"]), row["first_started_at"]
        counts[key][NodeStatus(row["status"])] = row["nodes"]
        if started_at is not None:
            first_started[key] = min(started_at, first_started.get(key, started_at))
    return {key: ChildCounts(statuses, first_started.get(key)) for key, statuses in counts.items()}


def _numbers(job_ids: Iterable[str]) -> dict[int, str]:
    return {number: job_id for job_id in job_ids if (number := bigint(job_id)) is not None}


def _keys(keys: Iterable[NodeKey]) -> list[tuple[int, str]]:
    return [
        (number, node_id)
        for job_id, node_id in keys
        if is_storable(node_id) and (number := bigint(job_id)) is not None
    ]
