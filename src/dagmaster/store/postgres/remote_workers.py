"""Workers that speak HTTP, on PostgreSQL. All workers of a server share its connections, and one listener."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.remote_workers import HeldTask
from dagmaster.ports.tenants import ALL_TENANTS, DEFAULT_TENANT
from dagmaster.store.claim_waiters import ClaimWaiters
from dagmaster.store.postgres.handler_contracts import PostgresHandlerContracts
from dagmaster.store.postgres.job_list import bigint, first_id
from dagmaster.store.postgres.named_queries import queries, split_ids
from dagmaster.store.postgres.worker_store import (
    SCAN_AHEAD,
    PostgresWorkerStore,
    TenantConnections,
    WorkerConnections,
    claim_query,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.remote_workers import NewWorker
    from dagmaster.ports.task_ledger import HeartbeatAnswer, TaskReport
    from dagmaster.ports.task_source import ClaimedTask

_SQL = queries("worker")
_REMOTE = queries("remote_workers")
_CONTRACTS = queries("handlers")
_CLAIM: Final = claim_query("ready", "holds_no_exclusive")
_CLAIM_EXCLUSIVE: Final = claim_query("ready_exclusive", "is_idle")
RECEIPT_SECONDS: Final = 3 * 86_400.0
"""How long after its dispatch the receipt of a task is kept at least. A task runs for a day at most."""
REFRESH_SECONDS: Final = 5.0
"""How long a worker keeps the handlers that it had: as long as a revoked key may be used."""
COUNT_SECONDS: Final = 1.0
"""How often the counters of a worker are stored."""
FORGET_SECONDS: Final = 600.0
"""After this time without a request, a server forgets a worker, and reads it again when it is asked for
it."""


class PostgresRemoteWorkers:
    """The workers whose requests reach this server.

    What it remembers of them can be lost: it is read again.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config
        self.connections = WorkerConnections(config, "dagmaster server, workers")
        self.sessions: WorkerConnections | TenantConnections = self.connections
        self.contracts = PostgresHandlerContracts(self.connections.side)
        self._waiters = ClaimWaiters()
        self._workers: dict[tuple[int, str], PostgresRemoteWorker] = {}
        self._leasing = asyncio.Lock()

    def for_tenant(self, tenant: str) -> PostgresRemoteWorkers:
        view = copy.copy(self)
        view.sessions = self.connections.for_tenant(tenant)
        # What workers of the installation publish is the installation's.
        owner = DEFAULT_TENANT if tenant == ALL_TENANTS else tenant
        view.contracts = PostgresHandlerContracts(self.connections.side.for_tenant(owner))
        return view

    async def close(self) -> None:
        """Close the connections. Workers stay registered: another server acts for them."""
        with contextlib.suppress(DatabaseUnavailable):
            await self.connections.identity.release()
        for connection in self.connections.all:
            await connection.close()

    async def register(self, worker: NewWorker) -> str:
        await self.ensure_leased()
        worker_id = int(self.connections.identity.ids.new())
        params = {
            "worker_id": worker_id, "host": worker.host, "pid": worker.pid, "version": worker.version,
            "queues": list(worker.queues), "concurrency": worker.concurrency,
            "handlers": json.dumps(dict(worker.handlers)), "registered_by": worker.registered_by,
            "secret_digest": None, "previous_id": None, "offered": _offered(worker),
        }  # fmt: skip
        await self.sessions.side.fetch(_SQL["register"], params)
        await self._remember(worker_id, worker.registered_by, worker.queues, worker.handlers)
        return str(worker_id)

    async def find(self, worker_id: str, registered_by: str) -> PostgresRemoteWorker | None:
        number = bigint(worker_id)
        if number is None:
            return None
        worker = self._workers.get((number, registered_by))
        if worker is None:
            row = await self.sessions.side.row(
                _REMOTE["registered"], {"worker_id": number, "registered_by": registered_by}
            )
            if row is None:
                return None
            await self.ensure_leased()
            worker = await self._remember(number, registered_by, row["queues"], json.loads(row["handlers"]))
        worker.used_at = time.monotonic()
        return worker

    async def receipt(self, task_id: str, token: int) -> AttemptStatus | None:
        params = {"task_id": bigint(task_id) or 0, "token": token}
        row = await self.sessions.side.row(_REMOTE["receipt"], params)
        return None if row is None else AttemptStatus(row["status"])

    def forget(self, worker: PostgresRemoteWorker) -> None:
        """Forget a worker that has expired or stopped."""
        self._workers.pop(worker.key, None)

    async def ensure_leased(self) -> None:
        """Lease a machine id for new ids, or renew the lease if half of it has passed."""
        async with self._leasing:
            await self.connections.identity.ensure_leased()

    async def _remember(
        self, worker_id: int, registered_by: str, queues: Collection[str], handlers: Mapping[str, str]
    ) -> PostgresRemoteWorker:
        await self.connections.side.listen("dagmaster_tasks", self._on_tasks)
        now = time.monotonic()
        for key in [key for key, worker in self._workers.items() if now - worker.used_at > FORGET_SECONDS]:
            del self._workers[key]
        worker = PostgresRemoteWorker(self, self._config, self.sessions, self._waiters)
        worker.attach(worker_id, registered_by, queues, handlers)
        return self._workers.setdefault(worker.key, worker)

    def _on_tasks(self, queue: str) -> None:
        for worker in self._workers.values():
            worker.note_queue(queue)
        self._waiters.on_tasks(queue)


class PostgresRemoteWorker(PostgresWorkerStore):
    """A worker that speaks HTTP. It claims only tasks of its handlers: it releases none to others."""

    def __init__(
        self,
        workers: PostgresRemoteWorkers,
        config: DatabaseConfig,
        connections: WorkerConnections | TenantConnections,
        waiters: ClaimWaiters,
    ) -> None:
        super().__init__(config, connections)
        self.handlers: Mapping[str, str] = {}
        self.key = (0, "")
        self.used_at = time.monotonic()
        self._refresh_at = 0.0
        self._workers, self._waiters = workers, waiters
        self._counts: Counter[str] = Counter()
        # What is stored of them, and when the next change may be: each request for tasks is a heartbeat.
        self._stored: Mapping[str, JsonValue] = {}
        self._count_at = 0.0

    def attach(
        self, worker_id: int, registered_by: str, queues: Collection[str], handlers: Mapping[str, str]
    ) -> None:
        self.worker_id, self.key = worker_id, (worker_id, registered_by)
        self._queues, self.handlers = list(queues), dict(handlers)

    @property
    def id(self) -> str:
        return str(self.worker_id)

    def waiting(self) -> AbstractContextManager[asyncio.Event]:
        return self._waiters.waiting((frozenset(self._queues), frozenset(self.handlers)))

    def note_queue(self, queue: str) -> None:
        if not self._queues:
            self._notified_queues.add(queue)

    async def claim_handled(self, limit: int) -> list[ClaimedTask]:
        """Claim up to `limit` tasks of its handlers. Where and how they run is not known here."""
        queues = self._queues or await self._any_queues()
        if not queues:
            return []
        params = {
            "queues": queues, "limit": limit, "other_slots": 0, "process_bound": list(self.handlers),
            "process_slots": limit, "isolates": False, "scan_limit": limit + SCAN_AHEAD,
            "foreign_handlers": [],
        }  # fmt: skip
        return await self._claim(_CLAIM, params, lock=_REMOTE["share_claims"])

    async def claim_exclusive(self) -> ClaimedTask | None:
        tasks = await self._claim(_CLAIM_EXCLUSIVE, {"queues": self._queues}, lock=_REMOTE["lock_claims"])
        return next(iter(tasks), None)

    async def refresh_handlers(self) -> None:
        """Read which handlers the worker may have now, unless that was read a moment ago."""
        if time.monotonic() < self._refresh_at:
            return
        self._refresh_at = time.monotonic() + REFRESH_SECONDS
        row = await self._side.row(_CONTRACTS["refresh_handlers"], {"worker_id": self.worker_id})
        if row is not None:
            self.handlers = json.loads(row["handlers"])

    async def renew(self, held: Collection[str]) -> HeartbeatAnswer | None:
        return await self._renew(held)

    async def heartbeat(
        self, held: Collection[str], counters: Mapping[str, JsonValue]
    ) -> HeartbeatAnswer | None:
        answer = await self._renew(held)
        if answer is not None:
            await self._reconcile(held)
            is_changed = bool(self._counts) or counters != self._stored
            if is_changed and time.monotonic() >= self._count_at:
                self._count_at = time.monotonic() + COUNT_SECONDS
                await self._store_counts(counters)
        return answer

    def count(self, counter: str, number: int = 1) -> None:
        self._counts[counter] += number

    async def _store_counts(self, counters: Mapping[str, JsonValue]) -> None:
        counts, self._counts = self._counts, Counter()
        params = {
            "worker_id": self.worker_id,
            "counters": json.dumps(counters),
            "names": list(counts),
            "numbers": list(counts.values()),
        }
        try:
            await self._side.fetch(_REMOTE["count_tasks"], params)
        except DatabaseUnavailable:
            self._counts.update(counts)
            raise
        self._stored = dict(counters)

    async def keep_fingerprints(self, fingerprints: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
        params = {
            "worker_id": self.worker_id,
            "task_ids": [int(task_id) for task_id in fingerprints],
            "tokens": [token for token, _ in fingerprints.values()],
            "fingerprints": [json.dumps(dict(prints)) for _, prints in fingerprints.values()],
        }
        await self._side.fetch(_REMOTE["keep_fingerprints"], params)

    async def _renew(self, held: Collection[str], counters: str | None = None) -> HeartbeatAnswer | None:
        answer = await super()._renew(held, counters)
        if answer is None:
            self._workers.forget(self)
        return answer

    async def _renew_identity(self) -> bool:
        await self._workers.ensure_leased()
        return True

    async def report_with_receipts(self, reports: Sequence[TaskReport]) -> set[str]:
        query, params = self._report_statement(reports)
        receipts = {
            "worker_id": self.worker_id,
            "task_ids": [int(report.task_id) for report in reports],
            "tokens": [report.token for report in reports],
            "statuses": [report.status.value for report in reports],
            "oldest_id": first_id(self.identity.clock.now() - RECEIPT_SECONDS),
        }
        statements: list[tuple[Any, Mapping[str, Any]]] = [
            (_REMOTE["keep_receipts"], receipts),
            (query, params),
        ]
        rows = await self._reports.execute_in_transaction(statements)
        return split_ids(rows[0]["task_ids"]) if rows else set()

    async def held_task(self, task_id: str, token: int) -> HeldTask | None:
        return next((task for task in await self._held_tasks([task_id]) if task.token == token), None)

    async def overdue_tasks(self, task_ids: Collection[str], grace_seconds: float) -> list[HeldTask]:
        held = await self._held_tasks(task_ids) if task_ids else []
        return [task for task in held if task.running_seconds > task.timeout_seconds + grace_seconds]

    async def _held_tasks(self, task_ids: Collection[str]) -> list[HeldTask]:
        params = {"task_ids": [bigint(task_id) or 0 for task_id in task_ids], "worker_id": self.worker_id}
        return [HeldTask(**dict(row)) for row in await self._side.fetch(_REMOTE["held_tasks"], params)]

    async def deregister(self) -> None:
        """Release all claimed tasks and deregister. The connections belong to the server, and stay."""
        if self._counts:
            await self._store_counts({"running": 0})
        await self.release_all()
        self._workers.forget(self)


def _offered(worker: NewWorker) -> str | None:
    """Return what a worker offers, as it is stored."""
    offer = worker.offer
    if offer is None:
        return None
    return json.dumps({"actor": offer.actor, "named": list(offer.named), "handlers": worker.offered})
