"""Timelines of jobs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.status import NodeStatus
from dagmaster.ports.timelines import TimelineRecord
from dagmaster.store.memory.fleet_reader import worker_place
from dagmaster.store.memory.read_rows import current_nodes, has_started, task_in_flight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.records.page import Position
    from dagmaster.store.memory.database import MemoryDatabase

_RUN_WITHOUT_TASK: Final = (NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.COMPLETED, NodeStatus.FAILED)


class MemoryTimelineReader:
    """Timelines of jobs."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def rows(
        self, job_id: str, *, after: Position | None = None, limit: int = 1000
    ) -> list[TimelineRecord]:
        last = ("", -1) if after is None else (str(after[0]), int(after[1]))
        records = [row for row in _records(self._database, job_id) if (row.node_id, row.attempt) > last]
        return sorted(records, key=lambda row: (row.node_id, row.attempt))[:limit]

    async def last_children(self, job_id: str, fan_outs: Sequence[str]) -> dict[str, str]:
        job = self._database.jobs.get(job_id)
        ends: dict[str, list[tuple[float, str]]] = {}
        for node in () if job is None else current_nodes(job):
            if (
                (parent := node.row.parent) is not None
                and parent in fan_outs
                and node.finished_at is not None
            ):
                ends.setdefault(parent, []).append((-node.finished_at, node.row.id))
        return {fan_out: min(children)[1] for fan_out, children in ends.items()}


def _records(database: MemoryDatabase, job_id: str) -> Iterator[TimelineRecord]:
    with_attempts = set()
    for (job, node_id, attempt), stored in database.attempts.items():
        if job == job_id:
            with_attempts.add(node_id)
            started_at = (stored.result.started_at or stored.task.claimed_at) if has_started(stored) else None
            yield TimelineRecord(
                node_id, attempt, stored.result.status, worker_place(database, stored.task.worker_id),
                stored.task.dispatched_at, started_at, stored.result.reported_at,
            )  # fmt: skip
    children = {
        (job.new.parent.node_id): job.created_at
        for job in sorted(database.jobs.values(), key=lambda job: job.created_at)
        if job.new.parent is not None and job.new.parent.job_id == job_id
    }
    stored_job = database.jobs.get(job_id)
    for node in () if stored_job is None else stored_job.nodes.values():
        task, row = task_in_flight(database, node), node.row
        if task is not None:
            worker = worker_place(database, task.worker_id)
            yield TimelineRecord(
                row.id, task.attempt, task.status, worker, task.dispatched_at, task.started_at, None
            )
        elif row.status in _RUN_WITHOUT_TASK and row.id not in with_attempts:
            started_at = node.started_at or children.get(row.id)
            yield TimelineRecord(row.id, 0, row.status, None, None, started_at, node.finished_at)
