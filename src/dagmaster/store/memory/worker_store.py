"""The worker's door in memory, with the meaning of the one to PostgreSQL: both pass `tests/conformance`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.task_source import ClaimedTask
from dagmaster.store.memory.database import Registration, StoredCheckpoint, StoredLog
from dagmaster.store.result_notifications import fits_notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.turn_records import TaskResult
    from dagmaster.store.memory.database import MemoryDatabase, StoredTask

UNHEARD_SECONDS: Final = 30.0
"""How long after its claim a task may be unknown to the worker that holds it."""


class MemoryWorkerStore:
    """The worker's door."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.wakeup = asyncio.Event()
        self.stops = asyncio.Event()
        self.on_disconnect: Callable[[], None] = lambda: None
        self.worker_id = ""
        self._database = database
        self._ids = database.new_ids()
        self._queues: frozenset[str] = frozenset()
        self._heard: list[Callable[[str], None]] = []

    async def register(
        self, queues: Sequence[str], concurrency: int, handlers: Mapping[str, str] | None = None
    ) -> None:
        """Be known, as alive."""
        database = self._database
        self.worker_id = self._ids.new()
        self._queues = frozenset(queues)
        database.workers[self.worker_id] = Registration(
            database.clock.now(), tuple(queues), concurrency, handlers=dict(handlers or {})
        )
        database.deafen(self._heard)
        self._heard = [self._hear_tasks, lambda _payload: self.stops.set()]
        database.listen("tasks", self._heard[0])
        database.listen(f"worker {self.worker_id}", self._heard[1])

    def _hear_tasks(self, queue: str) -> None:
        if queue in self._queues or (not self._queues and not queue.startswith("run:")):
            self.wakeup.set()

    async def heartbeat(self, held: Collection[str], counters: Mapping[str, Any]) -> set[str] | None:
        """Stay alive; give the tasks to stop."""
        database = self._database
        me = database.workers.get(self.worker_id)
        if me is None or me.stopped_at is not None:
            return None
        me.heartbeat_at = database.clock.now()
        me.counters = dict(counters)
        mine = [task for task in database.queue.values() if task.worker_id == self.worker_id]
        for task in mine:
            # Its claim was answered, and the answer never arrived: nobody runs it.
            if task.task_id not in held and (task.claimed_at or 0.0) <= me.heartbeat_at - UNHEARD_SECONDS:
                database.give_back(task, "RELEASED", me.heartbeat_at)
                database.tell_owners([task.job_id])
        return {task_id for task_id in held if self._is_to_stop(database.queue.get(task_id))}

    def _is_to_stop(self, task: StoredTask | None) -> bool:
        """Return whether a task that is held here is to stop, or is over, or another's by now."""
        return task is None or task.worker_id not in (None, self.worker_id) or task.stop_requested_at is not None

    async def claim(self, limit: int, process_bound: Collection[str] = (), process_slots: int = 0) -> list[ClaimedTask]:
        """Hold tasks; of those whose handler is one of `process_bound`, so many at most."""
        database = self._database
        me = database.workers.get(self.worker_id)
        if me is None or me.stopped_at is not None:
            return []
        served = self._queues or self._all_queues()
        chosen: list[StoredTask] = []
        for task in database.tasks_by_rank():
            if len(chosen) == limit:
                break
            if task.worker_id is not None or task.stop_requested_at is not None or task.queue not in served:
                continue
            if task.handler in process_bound:
                if process_slots <= 0:
                    continue
                process_slots -= 1
            chosen.append(task)
        token, now = int(self._ids.new()), database.clock.now()
        claimed: list[ClaimedTask] = []
        for task in chosen:
            task.worker_id, task.token, task.claimed_at = self.worker_id, token, now
            checkpoint = database.checkpoints.get((task.job_id, task.node_id)) if task.attempt > 1 else None
            job = database.jobs.get(task.job_id)
            claimed += [
                ClaimedTask(
                    task.task_id, token, task.job_id, task.node_id, task.attempt, task.handler, task.params,
                    task.secrets, task.timeout_seconds, task.dispatched_at, _as_json(checkpoint),
                    "" if job is None else f"{job.new.workflow_id} v{job.new.version}",
                )
            ]  # fmt: skip
        return claimed

    async def other_worker_has_handler(self, task_id: str) -> bool:
        """Return whether another could run this task."""
        task = self._database.queue.get(task_id)
        return task is not None and any(
            task.handler in who.handlers and (not who.queues or task.queue in who.queues)
            for worker_id, who in self._database.workers.items()
            if worker_id != self.worker_id and who.stopped_at is None and not who.counters.get("draining")
        )

    def rescan_queues(self) -> None:
        """Nothing to do: every claim looks at every queue."""

    def _all_queues(self) -> set[str]:
        """Return every queue, but none of a `run` that still lives."""
        alive = {queue for who in self._database.workers.values() if who.stopped_at is None for queue in who.queues}
        queues = {task.queue for task in self._database.queue.values()}
        return {queue for queue in queues if not (queue.startswith("run:") and queue in alive)}

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        """Report tasks."""
        database = self._database
        taken: dict[str, TaskResult] = {}
        for each in reports:
            task = database.held(each.task_id, each.token)
            if task is not None and task.worker_id == self.worker_id:
                taken[task.task_id] = database.give_back(
                    task, each.status, database.clock.now(), permanent=each.permanent, output=each.output,
                    error=each.error, metrics=each.metrics, handler_version=each.handler_version,
                )  # fmt: skip
        if fits_notification(reports):
            database.push(taken.values())
        else:
            database.tell_owners(said.job_id for said in taken.values())
        return set(taken)

    async def release(self, reports: Sequence[TaskReport]) -> set[str]:
        """Let go of tasks that never began."""
        free: set[str] = set()
        for each in reports:
            task = self._database.held(each.task_id, each.token)
            if task is not None and task.worker_id == self.worker_id and task.stop_requested_at is None:
                task.worker_id = task.token = task.claimed_at = None
                free.add(task.task_id)
        for queue in sorted({self._database.queue[task_id].queue for task_id in free}):
            self._database.tell("tasks", queue)
        return free

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        """Keep pieces of logs."""
        for each in chunks:
            task = self._database.held(each.task_id, each.token)
            if task is not None:
                log = StoredLog(task.job_id, task.node_id, task.attempt, self._database.clock.now(), each.text)
                self._database.logs.setdefault((each.task_id, each.chunk), log)

    async def checkpoint(self, checkpoints: Sequence[CheckpointWrite]) -> None:
        """Keep the newest checkpoint of each task."""
        stored = self._database.checkpoints
        for each in checkpoints:
            task = self._database.held(each.task_id, each.token)
            if task is None:
                continue
            before = stored.get((task.job_id, task.node_id))
            if before is None or before.attempt <= task.attempt:
                record = StoredCheckpoint(task.attempt, each.phase, each.data, each.artifacts)
                stored[task.job_id, task.node_id] = record

    async def progress(self, progress: Mapping[str, tuple[int, str]]) -> None:
        """Keep how far tasks are."""
        for task_id, (token, text) in progress.items():
            task = self._database.held(task_id, token)
            if task is not None:
                task.progress = text

    async def deregister(self) -> None:
        """Hand back what is held."""
        database = self._database
        database.give_all_back("RELEASED", lambda worker_id: worker_id == self.worker_id)
        me = database.workers.get(self.worker_id)
        if me is not None:
            me.stopped_at = database.clock.now()
        database.deafen(self._heard)


def _as_json(checkpoint: StoredCheckpoint | None) -> str | None:
    if checkpoint is None:
        return None
    data = json.loads(checkpoint.data)
    return json.dumps({"phase": checkpoint.phase, "data": data, "artifacts": checkpoint.artifacts})
