"""The worker's store in memory. It behaves like the one on PostgreSQL: both pass `tests/conformance`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from dagmaster.engine.served_handlers import has_handler
from dagmaster.engine.status import AttemptStatus, Isolation
from dagmaster.ports.read_records import LogRecord
from dagmaster.ports.run_queues import is_run_queue, is_served
from dagmaster.ports.task_ledger import EXCLUSIVE_BUSY_SECONDS, DrainRequest, HeartbeatAnswer
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.records.handlers import INSTALLATION
from dagmaster.store.foreign_handlers import ForeignHandlers
from dagmaster.store.memory.added_nodes import MemoryTaskNodes, stage
from dagmaster.store.memory.database import StoredCheckpoint, StoredHandler, StoredLog, StoredService
from dagmaster.store.result_notifications import fits_notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.handler_definitions import HandlerDefinition
    from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.turn_records import TaskResult
    from dagmaster.store.memory.database import MemoryDatabase, StoredTask

UNKNOWN_CLAIM_SECONDS: Final = 30.0
"""How long after its claim a task may be unknown to its worker."""


class MemoryWorkerStore(MemoryTaskNodes):
    """Tasks in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.wakeup = asyncio.Event()
        self.stops = asyncio.Event()
        self.on_disconnect: Callable[[], None] = lambda: None
        self.worker_id = ""
        self._database = database
        self._foreign = ForeignHandlers(database.clock.now)
        self._ids = database.new_ids()
        self._queues: frozenset[str] = frozenset()
        self._callbacks: list[Callable[[str], None]] = []

    async def register(
        self, queues: Sequence[str], concurrency: int, handlers: Mapping[str, str] | None = None
    ) -> None:
        database = self._database
        previous = database.workers.get(self.worker_id)
        self.worker_id = self._ids.new()
        self._queues = frozenset(queues)
        now = database.clock.now()
        me = database.workers[self.worker_id] = StoredService(
            started_at=now, heartbeat_at=now, queues=tuple(queues), concurrency=concurrency,
            handlers=dict(handlers or {}),
        )  # fmt: skip
        me.keep_drain(previous)
        database.unlisten(self._callbacks)
        self._callbacks = [self._on_tasks, lambda _payload: self.stops.set()]
        database.listen("tasks", self._callbacks[0])
        database.listen(f"worker {self.worker_id}", self._callbacks[1])

    async def publish_handlers(self, definitions: Sequence[HandlerDefinition]) -> None:
        database = self._database
        for definition in definitions:
            key = (definition.name, definition.version)
            stored = database.handlers.get(key)
            is_same = stored is not None and stored.definition.content_hash == definition.content_hash
            if stored is None or not is_same or stored.owner != INSTALLATION:
                database.handlers[key] = StoredHandler(definition, database.clock.now())

    def _on_tasks(self, queue: str) -> None:
        if is_served(queue, self._queues):
            self.wakeup.set()

    async def heartbeat(
        self, held: Collection[str], counters: Mapping[str, JsonValue]
    ) -> HeartbeatAnswer | None:
        answer = self._renew(held)
        if answer is not None:
            self._database.workers[self.worker_id].counters = dict(counters)
            self._reconcile(held)
        return answer

    def _reconcile(self, held: Collection[str]) -> None:
        """Release tasks that are claimed and unknown to the worker: the response to their claim was lost."""
        now = self._database.clock.now()
        for task in self._claimed_tasks():
            if task.task_id not in held and (task.claimed_at or 0.0) <= now - UNKNOWN_CLAIM_SECONDS:
                self._database.finish_task(task, AttemptStatus.RELEASED, now)
                self._database.notify_owners([task.job_id])

    def _claimed_tasks(self) -> list[StoredTask]:
        return [task for task in self._database.queue.values() if task.worker_id == self.worker_id]

    def _renew(self, held: Collection[str]) -> HeartbeatAnswer | None:
        database = self._database
        me = database.workers.get(self.worker_id)
        if me is None or me.stopped_at is not None:
            return None
        me.renew(database.clock.now())
        earlier = [
            worker_id
            for worker_id, worker in database.workers.items()
            if worker.may_claim and int(worker_id) < int(self.worker_id)
        ]
        busy_before = me.heartbeat_at - EXCLUSIVE_BUSY_SECONDS * (1 + len(earlier))
        drain = None
        if me.drain_requested_at is not None:
            deadline = me.drain_deadline_at
            drain = DrainRequest(None if deadline is None else deadline - me.heartbeat_at)
        return HeartbeatAnswer(
            {task_id for task_id in held if self._is_to_stop(database.queue.get(task_id))},
            any(not held or task.dispatched_at <= busy_before for task in self._exclusive_tasks()),
            drain,
        )

    def _is_to_stop(self, task: StoredTask | None) -> bool:
        """Return whether a task of this worker is to stop, has finished, or is claimed by another one."""
        return (
            task is None or task.worker_id not in (None, self.worker_id) or task.stop_requested_at is not None
        )

    async def claim(
        self, limit: int, process_bound: Collection[str] = (), process_slots: int | None = None
    ) -> list[ClaimedTask]:
        chosen: list[StoredTask] = []
        free_slots, foreign = process_slots or 0, self._foreign.names()
        for task in self._unclaimed_tasks():
            if len(chosen) == limit:
                break
            if task.isolation is Isolation.EXCLUSIVE or task.handler in foreign:
                continue
            if task.handler in process_bound or (task.isolation and process_slots is not None):
                if free_slots <= 0:
                    continue
                free_slots -= 1
            chosen.append(task)
        return self._claim(chosen)

    async def claim_exclusive(self) -> ClaimedTask | None:
        return next(iter(self._claim(list(self._exclusive_tasks())[:1])), None)

    def _unclaimed_tasks(self) -> Iterator[StoredTask]:
        """Yield the unclaimed tasks of the served queues by rank; none for an expired or draining worker."""
        me = self._database.workers.get(self.worker_id)
        if me is None or not me.may_claim:
            return
        served = self._queues or self._all_queues()
        for task in self._database.tasks_by_rank():
            if task.worker_id is None and task.stop_requested_at is None and task.queue in served:
                yield task

    def _exclusive_tasks(self) -> Iterator[StoredTask]:
        """Yield the tasks that must run alone, and whose handlers this worker has."""
        me = self._database.workers.get(self.worker_id)
        for task in self._unclaimed_tasks():
            if (
                me is not None
                and task.isolation is Isolation.EXCLUSIVE
                and has_handler(me.handlers, task.handler)
            ):
                yield task

    def _claim(self, chosen: Sequence[StoredTask]) -> list[ClaimedTask]:
        database = self._database
        token, now = int(self._ids.new()), database.clock.now()
        claimed: list[ClaimedTask] = []
        for task in chosen:
            task.worker_id, task.token, task.claimed_at = self.worker_id, token, now
            checkpoint = database.checkpoints.get((task.job_id, task.node_id)) if task.attempt > 1 else None
            job = database.jobs.get(task.job_id)
            claimed += [
                ClaimedTask(
                    **task.values(),
                    token=token,
                    dispatched_at=task.dispatched_at,
                    checkpoint=_as_json(checkpoint),
                    workflow="" if job is None else f"{job.new.workflow_id} v{job.new.version}",
                    claimed_at=now,
                    trace_parent=None if job is None else job.new.trace_parent,
                )
            ]
        return claimed

    async def other_worker_has_handler(self, task_id: str, *, by_package: bool = True) -> bool:
        task = self._database.queue.get(task_id)
        if task is None:
            return False
        is_served = any(
            (
                has_handler(worker.handlers, task.handler, by_package=by_package)
                or (worker.remote is not None and task.handler in worker.remote.offered)
            )
            and (not worker.queues or task.queue in worker.queues)
            for worker_id, worker in self._database.workers.items()
            if worker_id != self.worker_id and worker.stopped_at is None
        )
        if is_served:
            self._foreign.add(task.handler)
        return is_served

    def rescan_queues(self) -> None:
        """Do nothing: every claim reads all queues."""

    def _all_queues(self) -> set[str]:
        """Return every queue except the queues of live `run`s."""
        workers = self._database.workers.values()
        served = {queue for worker in workers if worker.stopped_at is None for queue in worker.queues}
        queues = {task.queue for task in self._database.queue.values()}
        return {queue for queue in queues if not (is_run_queue(queue) and queue in served)}

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        database = self._database
        accepted: dict[str, TaskResult] = {}
        for report in reports:
            task = database.claimed_task(report.task_id, report.token)
            if task is not None and task.worker_id == self.worker_id:
                now = database.clock.now()
                if task.started_at is None and report.running_seconds is not None:
                    task.started_at = now - report.running_seconds
                if report.added_rows is not None:
                    stage(database, task, report.added_rows)
                accepted[task.task_id] = database.finish_task(
                    task, report.status, now, permanent=report.permanent, output=report.output,
                    error=report.error, metrics=report.metrics, handler_version=report.handler_version,
                )  # fmt: skip
        if fits_notification(reports):
            database.notify_results(accepted.values())
        else:
            database.notify_owners(result.job_id for result in accepted.values())
        return set(accepted)

    async def release(self, reports: Sequence[TaskReport]) -> set[str]:
        released: set[str] = set()
        for report in reports:
            task = self._database.claimed_task(report.task_id, report.token)
            if task is not None and task.worker_id == self.worker_id and task.stop_requested_at is None:
                task.worker_id = task.token = task.claimed_at = task.started_at = None
                released.add(task.task_id)
        for queue in sorted({self._database.queue[task_id].queue for task_id in released}):
            self._database.notify("tasks", queue)
        return released

    async def mark_started(self, running_seconds: Mapping[str, tuple[int, float]]) -> None:
        for task_id, (token, seconds) in running_seconds.items():
            task = self._database.claimed_task(task_id, token)
            if task is not None:
                task.started_at = self._database.clock.now() - seconds

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        for chunk in chunks:
            task = self._database.claimed_task(chunk.task_id, chunk.token)
            if task is not None:
                now = self._database.clock.now()
                position = (now, chunk.task_id, chunk.chunk)
                record = LogRecord(task.node_id, task.attempt, now, chunk.text, position)
                self._database.logs.setdefault((chunk.task_id, chunk.chunk), StoredLog(task.job_id, record))

    async def checkpoint(self, checkpoints: Sequence[CheckpointWrite]) -> None:
        stored = self._database.checkpoints
        for checkpoint in checkpoints:
            task = self._database.claimed_task(checkpoint.task_id, checkpoint.token)
            if task is None:
                continue
            before = stored.get((task.job_id, task.node_id))
            if before is None or before.attempt <= task.attempt:
                record = StoredCheckpoint(
                    task.attempt, checkpoint.phase, checkpoint.data, checkpoint.artifacts
                )
                stored[task.job_id, task.node_id] = record

    async def progress(self, progress: Mapping[str, tuple[int, str]]) -> None:
        for task_id, (token, text) in progress.items():
            task = self._database.claimed_task(task_id, token)
            if task is not None:
                task.progress = text

    async def deregister(self) -> None:
        database = self._database
        database.finish_tasks(AttemptStatus.RELEASED, lambda worker_id: worker_id == self.worker_id)
        me = database.workers.get(self.worker_id)
        if me is not None:
            me.stopped_at = database.clock.now()
        database.unlisten(self._callbacks)


def _as_json(checkpoint: StoredCheckpoint | None) -> str | None:
    if checkpoint is None:
        return None
    data = json.loads(checkpoint.data)
    return json.dumps({"phase": checkpoint.phase, "data": data, "artifacts": checkpoint.artifacts})
