"""Workers that speak HTTP, in memory. They behave like those on PostgreSQL: both pass `tests/conformance`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dagmaster.engine.status import Isolation
from dagmaster.ports.remote_workers import HeldTask
from dagmaster.store.claim_waiters import ClaimWaiters
from dagmaster.store.memory.database import StoredService
from dagmaster.store.memory.handler_contracts import MemoryHandlerContracts
from dagmaster.store.memory.worker_store import MemoryWorkerStore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dagmaster.engine.status import AttemptStatus
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.remote_workers import NewWorker
    from dagmaster.ports.task_ledger import HeartbeatAnswer, TaskReport
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.store.memory.database import MemoryDatabase


class MemoryRemoteWorkers:
    """Registered workers of a `MemoryDatabase`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._ids = database.new_ids()
        self._waiters = ClaimWaiters()
        self.contracts = MemoryHandlerContracts(database)
        database.listen("tasks", self._waiters.on_tasks)

    def for_tenant(self, tenant: str) -> MemoryRemoteWorkers:
        del tenant
        return self

    async def register(self, worker: NewWorker) -> str:
        worker_id = self._ids.new()
        now = self._database.clock.now()
        handlers = dict(worker.handlers)
        self._database.workers[worker_id] = StoredService(
            started_at=now, heartbeat_at=now, queues=worker.queues, concurrency=worker.concurrency,
            handlers=handlers, remote=worker, untrusted=_untrusted(worker, handlers),
        )  # fmt: skip
        return worker_id

    async def find(self, worker_id: str, registered_by: str) -> MemoryRemoteWorker | None:
        stored = self._database.workers.get(worker_id)
        if stored is None or stored.remote is None or stored.stopped_at is not None:
            return None
        if stored.remote.registered_by != registered_by:
            return None
        return MemoryRemoteWorker(self._database, worker_id, stored, self._waiters)

    async def receipt(self, task_id: str, token: int) -> AttemptStatus | None:
        reported_token, status = self._database.receipts.get(task_id, (None, None))
        return status if reported_token == token else None


class MemoryRemoteWorker(MemoryWorkerStore):
    """A worker that speaks HTTP. It claims only tasks of its handlers."""

    def __init__(
        self, database: MemoryDatabase, worker_id: str, stored: StoredService, waiters: ClaimWaiters
    ) -> None:
        super().__init__(database)
        self.worker_id = worker_id
        self.handlers: Mapping[str, str] = stored.handlers
        self._queues = frozenset(stored.queues)
        self._waiters = waiters

    @property
    def id(self) -> str:
        return self.worker_id

    def waiting(self) -> AbstractContextManager[asyncio.Event]:
        return self._waiters.waiting((self._queues, frozenset(self.handlers)))

    async def refresh_handlers(self) -> None:
        """Read which handlers the worker may have now."""
        stored = self._database.workers[self.worker_id]
        if stored.remote is None or stored.remote.offer is None:
            return
        offer, contracts = stored.remote.offer, MemoryHandlerContracts(self._database)
        offered = stored.remote.offered.items()
        stored.handlers = {
            name: version for name, version in offered if contracts.may_have(name, offer.actor, offer.named)
        }
        stored.untrusted = _untrusted(stored.remote, stored.handlers)
        self.handlers = stored.handlers

    async def renew(self, held: Collection[str]) -> HeartbeatAnswer | None:
        return self._renew(held)

    async def heartbeat(
        self, held: Collection[str], counters: Mapping[str, JsonValue]
    ) -> HeartbeatAnswer | None:
        stored = self._database.workers.get(self.worker_id)
        return await super().heartbeat(held, {**({} if stored is None else stored.counters), **counters})

    def count(self, counter: str, number: int = 1) -> None:
        stored = self._database.workers.get(self.worker_id)
        if stored is not None:
            stored.counters[counter] = stored.counters.get(counter, 0) + number

    async def claim_exclusive(self) -> ClaimedTask | None:
        return None if self._claimed_tasks() else await super().claim_exclusive()

    async def claim_handled(self, limit: int) -> list[ClaimedTask]:
        """Claim up to `limit` tasks of its handlers; none next to an exclusive one."""
        if any(task.isolation is Isolation.EXCLUSIVE for task in self._claimed_tasks()):
            return []
        others = {task.handler for task in self._unclaimed_tasks()} - self.handlers.keys()
        return await self.claim(limit, others, None)

    async def keep_fingerprints(self, fingerprints: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
        for task_id, (token, prints) in fingerprints.items():
            task = self._database.queue.get(task_id)
            if (
                task is None
                or task.secrets is None
                or (task.worker_id, task.token) != (self.worker_id, token)
            ):
                continue
            task.secrets = json.dumps(json.loads(task.secrets) | {"fingerprints": dict(prints)})

    async def report_with_receipts(self, reports: Sequence[TaskReport]) -> set[str]:
        accepted = await self.report(reports)
        for report in reports:
            if report.task_id in accepted:
                self._database.receipts[report.task_id] = (report.token, report.status)
        return accepted

    async def held_task(self, task_id: str, token: int) -> HeldTask | None:
        return next((task for task in self._held_tasks([task_id]) if task.token == token), None)

    async def overdue_tasks(self, task_ids: Collection[str], grace_seconds: float) -> list[HeldTask]:
        held = self._held_tasks(task_ids)
        return [task for task in held if task.running_seconds > task.timeout_seconds + grace_seconds]

    def _held_tasks(self, task_ids: Collection[str]) -> list[HeldTask]:
        now = self._database.clock.now()
        queued = [task for task in map(self._database.queue.get, task_ids) if task is not None]
        return [
            HeldTask(
                task_id=task.task_id,
                token=task.token or 0,
                job_id=task.job_id,
                node_id=task.node_id,
                attempt=task.attempt,
                handler=task.handler,
                secrets=task.secrets,
                is_stopping=task.stop_requested_at is not None,
                running_seconds=now - (task.started_at or task.claimed_at or now),
                timeout_seconds=task.timeout_seconds,
                progress=task.progress,
            )
            for task in queued
            if task.worker_id == self.worker_id
        ]


def _untrusted(worker: NewWorker, handlers: Mapping[str, str]) -> frozenset[str]:
    """Return the handlers that a worker offers and may not have."""
    return frozenset(worker.offered.keys() - handlers.keys())
