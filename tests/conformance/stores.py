"""The worlds of the conformance suite: one in memory, one on a real PostgreSQL. Stores must behave alike in both.

A world opens stores, moves the clock, and reads what no port returns: stored jobs, attempts, logs.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import asyncpg
import pytest

from dagmaster.host.snowflakes import Snowflakes
from dagmaster.ports.audit_events import StoredEvent
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.ids import EPOCH_MS
from dagmaster.ports.task_journal import TaskJournal
from dagmaster.ports.task_ledger import TaskLedger
from dagmaster.ports.task_source import TaskSource
from dagmaster.store.memory.client_store import MemoryClientStore
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.store.memory.orchestrator_store import MemoryOrchestratorStore
from dagmaster.store.memory.output_blobs import MemoryBlobs
from dagmaster.store.memory.read_store import MemoryReadStore
from dagmaster.store.memory.remote_workers import MemoryRemoteWorkers
from dagmaster.store.memory.worker_store import MemoryWorkerStore
from dagmaster.store.postgres.client_store import PostgresClientStore
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore
from dagmaster.store.postgres.read_store import PostgresReadStore
from dagmaster.store.postgres.remote_workers import PostgresRemoteWorkers
from dagmaster.store.postgres.worker_store import PostgresWorkerStore
from dagmaster.testing.clock import FakeClock
from tests.conformance.server import WORKER_LOGIN, dsn_as, dsn_of, release_database, take_database
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.read_store import ReadStore
    from dagmaster.ports.remote_workers import RemoteWorkers


IN_POSTGRES = pytest.mark.parametrize("world", ["postgres", "older postgres"], indirect=True)
"""A test of what the store in memory does not have: connections, transactions, histograms."""

AnyStore = (
    PostgresOrchestratorStore
    | PostgresWorkerStore
    | PostgresClientStore
    | PostgresReadStore
    | PostgresRemoteWorkers
)


class SeenJob(NamedTuple):
    """A stored job."""

    status: str
    result: Any
    error: Any
    owner: str | None
    epoch: int
    priority: int
    depth: int
    submitted_by: str
    queue: str | None


class SeenAttempt(NamedTuple):
    """A finished attempt."""

    node: str
    attempt: int
    status: str
    error: Any
    progress: Any
    has_started: bool


class WorkerStore(TaskSource, TaskLedger, TaskJournal, Protocol):
    """All three roles of a worker's store: each store here implements them in one class."""


class World(Protocol):
    """A database with its stores, its clock and its rows."""

    blobs: MemoryBlobs
    ids: Snowflakes

    async def open(self) -> None:
        """Create the database."""

    async def close(self) -> None:
        """Close every store and release the database."""

    async def client(self) -> ClientStore:
        """Return the store of a client."""

    async def orchestrator(
        self, lease_seconds: float = 15.0, worker_lease_seconds: float = 6.0
    ) -> OrchestratorStore:
        """Return the store of an orchestrator, registered."""

    async def worker(self, *queues: str, handlers: Mapping[str, str] | None = None) -> WorkerStore:
        """Return the store of a worker, registered."""

    async def remote_workers(self) -> RemoteWorkers:
        """Return the workers of another server, for which it acts."""

    async def reader(self) -> ReadStore:
        """Return a read store."""

    async def new_id(self) -> str:
        """Return a job id made at the store's time, as clients make them."""

    async def move(self, seconds: float) -> None:
        """Let time pass in the store."""

    async def silence(self, store: OrchestratorStore | WorkerStore, seconds: float) -> None:
        """Set the last heartbeat of a service to so many seconds ago."""

    async def deliver_notifications(self) -> None:
        """Wait until all notifications have arrived."""

    async def job(self, job_id: str) -> SeenJob:
        """Return a stored job."""

    async def events(self, job_id: str) -> list[StoredEvent]:
        """Return the events of a job."""

    async def attempts(self, job_id: str) -> list[SeenAttempt]:
        """Return the finished attempts of a job, in order."""

    async def log(self, task_id: str) -> list[str]:
        """Return the chunks of a task's log, in order."""

    async def progress(self, task_id: str) -> Any:
        """Return the progress of a task in flight."""

    async def disconnect_worker(self, worker: WorkerStore) -> None:
        """Terminate the connection of a worker's claims."""

    async def notify_owner(self, owner: OrchestratorStore, text: str) -> None:
        """Send a notification to an orchestrator, as every client of the database can."""

    async def queued(self) -> set[str]:
        """Return the ids of the tasks in flight."""


class MemoryWorld:
    """The stores in memory."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.database = MemoryDatabase(self.clock)
        self.blobs = self.database.blobs
        self.ids = self.database.new_ids()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def client(self) -> ClientStore:
        return MemoryClientStore(self.database)

    async def orchestrator(
        self, lease_seconds: float = 15.0, worker_lease_seconds: float = 6.0
    ) -> OrchestratorStore:
        store = MemoryOrchestratorStore(
            self.database, lease_seconds=lease_seconds, worker_lease_seconds=worker_lease_seconds
        )
        await store.register()
        return store

    async def worker(self, *queues: str, handlers: Mapping[str, str] | None = None) -> WorkerStore:
        store = MemoryWorkerStore(self.database)
        await store.register(queues, 4, handlers)
        return store

    async def remote_workers(self) -> RemoteWorkers:
        return MemoryRemoteWorkers(self.database)

    async def reader(self) -> ReadStore:
        return MemoryReadStore(self.database)

    async def new_id(self) -> str:
        return self.ids.new()

    async def move(self, seconds: float) -> None:
        self.clock.move(seconds)

    async def silence(self, store: OrchestratorStore | WorkerStore, seconds: float) -> None:
        if isinstance(store, MemoryOrchestratorStore):
            self.database.orchestrators[store.owner_id].heartbeat_at = self.clock.now() - seconds
        else:
            assert isinstance(store, MemoryWorkerStore)
            self.database.workers[store.worker_id].heartbeat_at = self.clock.now() - seconds

    async def deliver_notifications(self) -> None:
        await asyncio.sleep(0)

    async def job(self, job_id: str) -> SeenJob:
        job = self.database.jobs[job_id]
        result = None if job.result is None else job.result.value()
        new = job.new
        return SeenJob(
            job.row.status.value, result, job.error, job.owner_id, job.epoch, new.priority, new.depth,
            new.submitted_by, new.queue,
        )  # fmt: skip

    async def events(self, job_id: str) -> list[StoredEvent]:
        return list(self.database.jobs[job_id].events)

    async def attempts(self, job_id: str) -> list[SeenAttempt]:
        return [
            SeenAttempt(
                node, attempt, each.result.status, _json(each.result.error), _json(each.task.progress),
                each.result.started_at is not None,
            )
            for (of, node, attempt), each in sorted(self.database.attempts.items())
            if of == job_id
        ]  # fmt: skip

    async def log(self, task_id: str) -> list[str]:
        return [
            log.record.text
            for (of, _), log in sorted(self.database.logs.items(), key=lambda item: item[0])
            if of == task_id
        ]

    async def progress(self, task_id: str) -> Any:
        return _json(self.database.queue[task_id].progress)

    async def disconnect_worker(self, worker: WorkerStore) -> None:
        return

    async def notify_owner(self, owner: OrchestratorStore, text: str) -> None:
        assert isinstance(owner, MemoryOrchestratorStore)
        self.database.notify(f"owner {owner.owner_id}", text)

    async def queued(self) -> set[str]:
        return set(self.database.queue)


class PostgresWorld:
    """A database of its own on a server that tests share."""

    def __init__(self, server: str, *, is_pooled: bool = False) -> None:
        self.blobs = MemoryBlobs()
        self.ids = Snowflakes(_FixedClock(), 0)
        self._server = server
        self._is_pooled = is_pooled
        self.name = ""
        self.dsn = ""
        self._stores: list[AnyStore] = []
        self._connections: list[asyncpg.Connection[asyncpg.Record]] = []
        self._offset = 0.0
        self._made = 0

    async def open(self) -> None:
        self.name = await take_database(self._server)
        self.dsn = dsn_of(self._server, self.name)
        self._admin = await self.connect()

    async def close(self) -> None:
        for store in self._stores:
            for session in _sessions(store):
                await session.close()
        for connection in self._connections:
            if connection is not self._admin:
                await connection.close()
        await release_database(self._server, self.name, self._admin)

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """Return a connection besides those of the stores."""
        connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "dagapp"})
        self._connections.append(connection)
        return connection

    @property
    def config(self) -> DatabaseConfig:
        """Return the configuration of the stores."""
        return DatabaseConfig(dsn=self.dsn, is_pooled=self._is_pooled)

    async def client(self) -> PostgresClientStore:
        store = PostgresClientStore(self.config)
        self._stores.append(store)
        await store.open()
        return store

    async def orchestrator(
        self, lease_seconds: float = 15.0, worker_lease_seconds: float = 6.0
    ) -> PostgresOrchestratorStore:
        store = PostgresOrchestratorStore(
            self.config,
            blobs=self.blobs,
            lease_seconds=lease_seconds,
            worker_lease_seconds=worker_lease_seconds,
        )
        self._stores.append(store)
        await store.register()
        return store

    async def worker(self, *queues: str, handlers: Mapping[str, str] | None = None) -> PostgresWorkerStore:
        store = PostgresWorkerStore(self.worker_config)
        self._stores.append(store)
        await store.register(queues, 4, handlers)
        return store

    @property
    def worker_config(self) -> DatabaseConfig:
        """Return the configuration of workers."""
        return self.config

    async def remote_workers(self) -> PostgresRemoteWorkers:
        workers = PostgresRemoteWorkers(self.config)
        self._stores.append(workers)
        return workers

    async def reader(self, *, is_pooled: bool = False, direct: str | None = None) -> PostgresReadStore:
        store = PostgresReadStore(DatabaseConfig(dsn=self.dsn, is_pooled=is_pooled, direct=direct))
        self._stores.append(store)
        return store

    async def disconnect(self, connection: Connection) -> None:
        """End a connection from the server's side."""
        driver = connection._connection
        assert driver is not None
        await self._admin.execute("SELECT pg_terminate_backend($1)", driver.get_server_pid())

    async def new_id(self) -> str:
        now = await self._admin.fetchval("SELECT extract(epoch FROM clock())::float8")
        self._made += 1
        return str((int(now * 1000) - EPOCH_MS << 22) + self._made)

    async def move(self, seconds: float) -> None:
        self._offset += seconds
        # For later connections, and for open ones.
        await self._admin.execute(f"ALTER DATABASE {self.name} SET dagapp.clock_offset = '{self._offset}'")
        open_connections = [session._connection for store in self._stores for session in _sessions(store)]
        for connection in (*open_connections, *self._connections):
            if connection is not None and not connection.is_closed():
                await connection.execute(f"SET dagapp.clock_offset = '{self._offset}'")

    async def silence(self, store: OrchestratorStore | WorkerStore, seconds: float) -> None:
        if isinstance(store, PostgresOrchestratorStore):
            which, number = "dag_orchestrators SET heartbeat_at = clock() - $2 WHERE owner_id", store.owner_id
        else:
            assert isinstance(store, PostgresWorkerStore)
            which, number = "dag_workers SET heartbeat_at = clock() - $2 WHERE worker_id", store.worker_id
        sql = f"UPDATE {which} = $1".replace("$2", f"make_interval(secs => {seconds})")
        await self._admin.execute(sql, number)

    async def deliver_notifications(self) -> None:
        # Notifications arrive in the order of their commits: after this one, all earlier ones have arrived.
        marks = []
        for session in (each for store in self._stores for each in _sessions(store) if each._channels):
            if session._connection is not None and not session._connection.is_closed():
                mark = asyncio.Event()
                await session.listen("settled", lambda _payload, mark=mark: mark.set())  # type: ignore[misc]
                marks.append(mark)
        await self._admin.execute("NOTIFY settled")
        for mark in marks:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await mark.wait()

    async def job(self, job_id: str) -> SeenJob:
        row = await self._admin.fetchrow(
            "SELECT status, result, error, owner_id::text, owner_epoch, priority, depth, submitted_by, queue"
            " FROM dag_jobs WHERE id = $1",
            int(job_id),
        )
        assert row is not None
        status, result, error, *rest = row
        return SeenJob(status, _json(result), _json(error), *rest)

    async def events(self, job_id: str) -> list[StoredEvent]:
        rows = await self._admin.fetch(
            "SELECT seq, type, extract(epoch FROM at)::float8, by, node_id, attempt, data FROM dag_job_events"
            " WHERE job_id = $1 ORDER BY seq",
            int(job_id),
        )
        return [
            StoredEvent(
                seq=seq, type=kind, at=at, by=by, node_id=node, attempt=attempt, data=_json(data) or {}
            )
            for seq, kind, at, by, node, attempt, data in rows
        ]

    async def attempts(self, job_id: str) -> list[SeenAttempt]:
        rows = await self._admin.fetch(
            "SELECT node_id, attempt, status, error, progress, started_at IS NOT NULL FROM dag_task_attempts"
            " WHERE job_id = $1 ORDER BY node_id, attempt",
            int(job_id),
        )
        return [
            SeenAttempt(node, attempt, status, _json(error), _json(progress), has_started)
            for node, attempt, status, error, progress, has_started in rows
        ]

    async def log(self, task_id: str) -> list[str]:
        sql = "SELECT text FROM dag_task_logs WHERE task_id = $1 ORDER BY chunk"
        return [row["text"] for row in await self._admin.fetch(sql, int(task_id))]

    async def progress(self, task_id: str) -> Any:
        sql = "SELECT progress FROM dag_task_queue WHERE task_id = $1"
        return _json(await self._admin.fetchval(sql, int(task_id)))

    async def disconnect_worker(self, worker: WorkerStore) -> None:
        assert isinstance(worker, PostgresWorkerStore)
        assert isinstance(worker._tasks, Connection)
        connection = worker._tasks._connection
        assert connection is not None
        connection.terminate()

    async def notify_owner(self, owner: OrchestratorStore, text: str) -> None:
        assert isinstance(owner, PostgresOrchestratorStore)
        await self._admin.execute("SELECT pg_notify($1, $2)", f"dagmaster_owner_{owner.owner_id}", text)

    async def queued(self) -> set[str]:
        return {
            row["id"] for row in await self._admin.fetch("SELECT task_id::text AS id FROM dag_task_queue")
        }


class RoleWorld(PostgresWorld):
    """The same, with workers that have the role dagmaster_worker alone."""

    @property
    def worker_config(self) -> DatabaseConfig:
        return DatabaseConfig(dsn=dsn_as(self.dsn, WORKER_LOGIN), is_pooled=self._is_pooled)


class _FixedClock:
    """A fixed time for the ids of tests, so that they grow by one and never clash with those of stores."""

    def now(self) -> float:
        return 1_800_000_000.0

    async def wait(self, event: asyncio.Event, until: float | None, *, idle: bool) -> None:
        raise NotImplementedError


def _sessions(
    store: AnyStore,
) -> list[Connection]:
    if isinstance(store, PostgresRemoteWorkers):
        return list(store.connections.all)
    if isinstance(store, PostgresReadStore):
        pools = store.connections, store.feed_connections
        return [*(one for pool in pools for one in pool.connections), store.subscriptions.listener]
    if isinstance(store, PostgresClientStore):
        return [store.connection]
    if isinstance(store, PostgresOrchestratorStore):
        return list(store.sessions)
    return list(store.sessions)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


# ── Tests that are coroutines ───────────────────────────────────────────────────────────────────────────────────────


def in_world(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine test in a loop of its own, in an open world."""
    assert inspect.iscoroutinefunction(test)

    @functools.wraps(test)
    def run(*, world: World, **values: Any) -> None:
        async def run_world() -> None:
            await world.open()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await test(world=world, **values)
            finally:
                await world.close()

        asyncio.run(run_world())

    return run
