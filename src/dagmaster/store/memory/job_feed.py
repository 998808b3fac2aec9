"""The feed of many jobs of a `MemoryDatabase`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dagmaster.store.memory.read_rows import job_record, node_record, task_in_flight, task_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.job_feed import EventPosition, NodeKey
    from dagmaster.ports.read_store import ReadStore
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import ChildCounts, NodeRecord
    from dagmaster.records.tasks import TaskRecord
    from dagmaster.store.memory.database import MemoryDatabase


class MemoryJobFeed:
    """Watches and reads many jobs."""

    def __init__(self, database: MemoryDatabase, read: ReadStore, on_change: Callable[[str], None]) -> None:
        self._database = database
        self._read = read
        self._on_change = on_change
        self._wakes: dict[str, Callable[[str], None]] = {}

    @property
    def has_notifications(self) -> bool:
        return True

    async def watch(self, job_ids: Collection[str]) -> None:
        """Call back after each turn of exactly these jobs."""
        self._database.unlisten([self._wakes.pop(job_id) for job_id in self._wakes.keys() - set(job_ids)])
        for job_id in set(job_ids) - self._wakes.keys():
            wake = self._wakes[job_id] = self._waker(job_id)
            self._database.listen(f"turn {job_id}", wake)

    def _waker(self, job_id: str) -> Callable[[str], None]:
        return lambda _payload: self._on_change(job_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.watch(())

    async def events(self, positions: Sequence[EventPosition], *, limit: int) -> list[list[StoredEvent]]:
        return [await self._read.events(job_id, after=after, limit=limit) for job_id, after in positions]

    async def jobs(self, job_ids: Collection[str]) -> list[JobRecord]:
        jobs = [job for job_id in set(job_ids) if (job := self._database.jobs.get(job_id)) is not None]
        return [job_record(self._database, job) for job in sorted(jobs, key=lambda job: -int(job.new.id))]

    async def nodes(self, keys: Collection[NodeKey]) -> list[NodeRecord]:
        return [
            node_record(self._database, job, job.nodes[node_id])
            for job_id, node_id in keys
            if (job := self._database.jobs.get(job_id)) is not None and node_id in job.nodes
        ]

    async def child_counts(self, fan_outs: Collection[NodeKey]) -> Mapping[NodeKey, ChildCounts]:
        return {
            (job_id, fan_out): (await self._read.child_counts(job_id, [fan_out]))[fan_out]
            for job_id, fan_out in fan_outs
        }

    async def claimed_tasks(self, job_ids: Collection[str], *, limit: int) -> list[TaskRecord]:
        records: list[TaskRecord] = []
        for job_id in sorted(set(job_ids) & self._database.jobs.keys(), key=int):
            nodes = self._database.jobs[job_id].nodes
            tasks = [task_in_flight(self._database, nodes[node_id]) for node_id in sorted(nodes)]
            claimed = [task for task in tasks if task is not None and task.worker_id is not None]
            records += map(task_record, claimed[:limit])
        return records
