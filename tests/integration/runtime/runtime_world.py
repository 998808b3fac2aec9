"""A world with everything in it: a database, orchestrators, workers and a client, all in the loop of one test.

Leases are long, so that none expires on a busy machine; the heartbeat of a dead service is set to long ago. When a
world is closed it audits every row that the test left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg.exceptions import InterfaceError, InternalClientError, InvalidCatalogNameError, PostgresError

from dagmaster.adapters.output_blobs_local import LocalBlobs
from dagmaster.application.diagnosis import explain_job
from dagmaster.application.submission import JobRequest, JobSubmitter
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.errors import BlobNotFound, DatabaseUnavailable
from dagmaster.orchestrator.poll_schedule import Timing
from dagmaster.orchestrator.service import Orchestrator
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.job_records import StoredWorkflow
from dagmaster.sdk.handler_registry import Registry, discover
from dagmaster.store.postgres.audit import audit
from dagmaster.store.postgres.client_store import PostgresClientStore
from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore
from dagmaster.store.postgres.read_store import PostgresReadStore
from dagmaster.store.postgres.worker_store import PostgresWorkerStore
from dagmaster.testing import JobReport
from dagmaster.worker.options import WorkerOptions, WorkerPorts
from dagmaster.worker.process_pool import HandlerProcesses
from dagmaster.worker.service import Worker
from tests.conformance.server import dsn_of, release_database, take_database
from tests.patience import PATIENCE_SECONDS
from tests.secret_vaults import VAULT
from tests.unit.application.world import application_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dagmaster.engine.diagnosis.explain import Why
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.job_records import Accepted
    from dagmaster.ports.secret_vault import SecretVault

MODULES: Final = ("dagmaster.handlers.examples", "tests.integration.runtime.handlers")
SHORTEST_POLL_SECONDS: Final = 0.005
LONGEST_POLL_SECONDS: Final = 0.03

A_LEASE: Final = 60.0
FINISHED: Final = ("COMPLETED", "FAILED", "CANCELLED")


@cache
def known() -> tuple[Any, ...]:
    """Return the handlers that every worker has."""
    return tuple(discover(MODULES, entry_points=False))


class Gate:
    """A gate that tasks of all loops and threads can wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.is_open = False

    def open(self) -> None:
        """Open the gate for all waiting and later tasks."""
        with self._lock:
            self.is_open = True
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_release, future)

    async def wait(self) -> None:
        """Wait until it is open."""
        with self._lock:
            if self.is_open:
                return
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((asyncio.get_running_loop(), future))
        await future


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class World:
    """The services and the database of a test. It is opened before and closed after the test."""

    def __init__(self, server: str, place: Path) -> None:
        self._server = server
        self._name = ""
        self.dsn = ""
        self.blobs = LocalBlobs(place / "blobs")
        self.secrets: dict[str, str] = {}
        # Of the services that start from now on.
        self.vault: SecretVault = VAULT
        self.handlers: list[Callable[..., Any]] = []
        # Modules whose functions are entrypoints.
        self.modules: list[str] = []
        # Whether workflows are compiled without their handlers, which only workers have.
        self.allows_missing = False
        self.orchestrators: list[Orchestrator] = []
        self.workers: list[Worker] = []
        self.restart_embedded: Callable[[], object] | None = None
        self._running: dict[Orchestrator | Worker, asyncio.Task[None]] = {}
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def open(self) -> None:
        if not self.dsn:
            await self._take_database()
            # Nothing expires in the first lease after the server's start: let that be long ago.
            await self.rows(f"ALTER DATABASE {self._name} SET dagapp.clock_offset = '3600'")
            await self._close_connections()
        self.client = PostgresClientStore(self.address)
        await self.client.open()
        self.intake = JobSubmitter(self.client, self.client.identity.ids, vault=self.vault)

    async def _take_database(self) -> None:
        while self._connection is None:
            self._name = await take_database(self._server)
            self.dsn = dsn_of(self._server, self._name)
            # A released database may have been on a server that has stopped.
            with contextlib.suppress(InvalidCatalogNameError):
                self._connection = await asyncpg.connect(self.dsn, server_settings={"search_path": "dagapp"})

    async def close(self) -> None:
        """Stop the services; then audit the database."""
        try:
            await self._explain_all()
            for each in list(self._running):
                await self.stop(each)
            await self._audit()
        finally:
            for life in self._running.values():
                life.cancel()
            await self.client.close()
            await self._close_connections()
            if self._name:
                await release_database(self._server, self._name)

    async def _close_connections(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @property
    def address(self) -> DatabaseConfig:
        return DatabaseConfig(dsn=self.dsn, restart_embedded=self.restart_embedded)

    # ── Who lives ──

    def registry(self) -> Registry:
        """Return the handlers of every worker, and those that the test added."""
        registry = Registry([*known(), *self.handlers])
        return registry.overlay(discover(self.modules, entry_points=False)) if self.modules else registry

    async def orchestrator(
        self, *, lease_seconds: float = A_LEASE, worker_lease_seconds: float = A_LEASE, beats: bool = True
    ) -> Orchestrator:
        store = PostgresOrchestratorStore(
            self.address,
            blobs=self.blobs,
            lease_seconds=lease_seconds,
            worker_lease_seconds=worker_lease_seconds,
        )
        timing = Timing(
            poll_seconds=0.5,
            heartbeat_seconds=0.2 if beats else 3600,
            scan_seconds=0.1,
            worker_scan_seconds=0.1,
            max_backoff_seconds=0.5,
        )
        service = Orchestrator(store, blobs=self.blobs, timing=timing, vault=self.vault)
        self.orchestrators.append(service)
        await self._begin(service)
        return service

    async def worker(
        self,
        *queues: str,
        concurrency: int = 16,
        processes: int | None = 2,
        memory_mb: int | None = None,
        poll_seconds: float = 0.5,
        heartbeat_seconds: float = 0.2,
        drain_seconds: float = 5.0,
        blocked_seconds: float = 60.0,
        stall_seconds: float = 60.0,
        log_dir: Path | None = None,
        recycles: bool = False,
    ) -> Worker:
        modules = (*MODULES, *self.modules)
        pool = (
            None
            if processes is None
            else HandlerProcesses(modules, limit=processes, memory_limit_mb=memory_mb)
        )
        store = PostgresWorkerStore(self.address)
        ports = WorkerPorts(
            source=store,
            ledger=store,
            journal=store,
            blobs=self.blobs,
            secrets=self.secrets.get,
            vault=self.vault,
        )
        options = WorkerOptions(
            queues=queues,
            concurrency=concurrency,
            poll_seconds=poll_seconds,
            heartbeat_seconds=heartbeat_seconds,
            drain_seconds=drain_seconds,
            blocked_seconds=blocked_seconds,
            stall_seconds=stall_seconds,
            log_dir=log_dir,
            recycles=recycles,
        )
        service = Worker(ports, self.registry(), options=options, processes=pool)
        self.workers.append(service)
        await self._begin(service)
        return service

    async def until_ended(self, worker: Worker) -> int:
        """Wait until a worker has ended by itself; return the code with which its process would exit."""
        await asyncio.wait_for(self._running.pop(worker), PATIENCE_SECONDS)
        return worker.recycling.exit_code

    async def _begin(self, service: Orchestrator | Worker) -> None:
        life = self._running[service] = asyncio.create_task(service.run())
        ready = asyncio.create_task(service.ready.wait())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.wait([life, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if life.done():
            life.result()

    async def stop(self, service: Orchestrator | Worker) -> None:
        """Let it end in peace."""
        service.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._running.pop(service)

    async def kill(self, service: Orchestrator | Worker) -> None:
        """Kill it as `kill -9` would: it writes and sends nothing more. Its lease has not expired."""
        life = self._running.pop(service)
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
        if isinstance(service, Worker):
            # Its reports are dropped: no process is left to write them.
            await asyncio.gather(*(lane.close() for lane in service._pools.values()))
        store = service.ledger if isinstance(service, Worker) else service.store
        assert isinstance(store, PostgresOrchestratorStore | PostgresWorkerStore)
        await store.close()

    async def silence(self, service: Orchestrator | Worker) -> None:
        """Let its last heartbeat be long ago, so that its lease is over."""
        if isinstance(service, Orchestrator):
            where, number = (
                "dag_orchestrators SET heartbeat_at = to_timestamp(0) WHERE owner_id",
                owner_of(service),
            )
        else:
            where, number = (
                "dag_workers SET heartbeat_at = to_timestamp(0) WHERE worker_id",
                worker_of(service),
            )
        await self.rows(f"UPDATE {where} = $1", number)

    def is_alive(self, service: Orchestrator | Worker) -> bool:
        return service in self._running and not self._running[service].done()

    async def start(self) -> None:
        """One of each, if there is none yet."""
        if not self.orchestrators:
            await self.orchestrator()
        if not self.workers:
            await self.worker()

    # ── Jobs ──

    def graph(self, text: str) -> Graph:
        return compile_text(text, handlers=self.registry(), allow_missing_handlers=self.allows_missing).graph

    async def publish(self, text: str) -> Graph:
        graph = self.graph(text)
        await self.intake.store_graph(graph)
        await self.client.publish(StoredWorkflow(graph.workflow_id, graph.version, graph.content_hash))
        return graph

    async def accept(
        self,
        text: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        brings: Sequence[str] = (),
        **options: Any,
    ) -> Accepted:
        """Submit, and give what was answered. `brings`: workflows that come with the job."""
        children = [self.graph(each) for each in brings]
        for child in children:
            await self.intake.store_graph(child)
        request = JobRequest(inputs=inputs or {}, child_graphs=children, **options)
        return (await self.intake.submit(self.graph(text), request))[0]

    async def submit(self, text: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> str:
        return (await self.accept(text, inputs, **options)).job_id

    async def run(self, text: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> JobReport:
        """Submit, wait, and give the report."""
        await self.start()
        return await self.finished(await self.submit(text, inputs, **options))

    async def finished(self, job_id: str, *, run: int = 1) -> JobReport:
        """Wait until a job is over."""
        await self._explain_all()
        sql = "SELECT status = ANY($2) AND run >= $3 AND owner_id IS NULL FROM dag_jobs WHERE id = $1"
        try:
            await self.until(sql, int(job_id), list(FINISHED), run)
        except TimeoutError:
            raise AssertionError(f"job {job_id} is not over:\n{await self.event_text(job_id)}") from None
        return await self.report(job_id)

    async def report(self, job_id: str) -> JobReport:
        """Read the report of a job, as `load_report` does in memory."""
        (job,) = await self.rows("SELECT * FROM dag_jobs WHERE id = $1", int(job_id))
        nodes = await self.rows(
            "SELECT * FROM dag_node_states WHERE job_id = $1 ORDER BY fan_out_index, node_id", int(job_id)
        )
        return JobReport(
            job_id=job_id,
            workflow_id=job["workflow_id"],
            version=job["version"],
            status=job["status"],
            result=await self._load(job["result"], job["result_ref"]),
            error=None if job["error"] is None else json.loads(job["error"]),
            duration_seconds=(job["finished_at"] - job["created_at"]).total_seconds(),
            nodes={
                node["node_id"]: {
                    "status": node["status"],
                    "attempts": node["attempt"],
                    "output": await self._load(node["output"], node["output_ref"]),
                    "error": None if node["error"] is None else json.loads(node["error"]),
                }
                for node in nodes
            },
        )

    async def _load(self, text: str | None, ref: str | None) -> Any:
        try:
            return json.loads(await self.blobs.read(ref) if ref is not None else text or "null")
        except BlobNotFound:
            return None

    async def send(self, job_id: str, kind: str, by: str = "ada", **body: Any) -> None:
        assert await self.client.send(job_id, CommandKind(kind), body, by)

    # ── What can be seen ──

    async def rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """Ask the database. A connection that was lost is made again."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await asyncpg.connect(
                            self.dsn, server_settings={"search_path": "dagapp"}
                        )
                    return await self._connection.fetch(sql, *arguments)
                except (OSError, InterfaceError, InternalClientError, PostgresError) as error:
                    if isinstance(error, PostgresError) and (error.sqlstate or "")[:2] not in ("57", "08"):
                        raise
                    self._connection = None
                    self._check_services()
                    await asyncio.sleep(0.02)

    async def value(self, sql: str, *arguments: Any) -> Any:
        result = await self.rows(sql, *arguments)
        return result[0][0] if result else None

    async def until(self, sql: str, *arguments: Any) -> None:
        """Wait until a query returns true. The database does not notify of that.

        It is asked less often the longer that takes: at 200 times a second, polling took a fifth of the CPU time of these tests.
        """
        pause = SHORTEST_POLL_SECONDS
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await self.value(sql, *arguments):
                self._check_services()
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, LONGEST_POLL_SECONDS)

    def _check_services(self) -> None:
        """Fail at once if a service has died: a test must not wait for it."""
        for service, life in self._running.items():
            assert not life.done(), f"{type(service).__name__} died: {life.exception()!r}"

    async def until_node(self, job_id: str, node: str, *statuses: str) -> None:
        sql = "SELECT status = ANY($3) FROM dag_node_states WHERE job_id = $1 AND node_id = $2"
        await self.until(sql, int(job_id), node, list(statuses))

    async def until_claimed(self, count: int = 1) -> None:
        """Wait until workers hold so many tasks."""
        await self.until("SELECT count(*) >= $1 FROM dag_task_queue WHERE worker_id IS NOT NULL", count)

    async def until_event(self, job_id: str, event: str, node: str | None = None) -> None:
        sql = "SELECT true FROM dag_job_events WHERE job_id = $1 AND type = $2 AND ($3::text IS NULL OR node_id = $3)"
        await self.until(sql, int(job_id), event, node)

    async def events(self, job_id: str, *types: str) -> list[asyncpg.Record]:
        sql = (
            "SELECT seq, type, by, node_id, attempt, data FROM dag_job_events WHERE job_id = $1 ORDER BY seq"
        )
        return [row for row in await self.rows(sql, int(job_id)) if not types or row["type"] in types]

    async def types(self, job_id: str, *types: str) -> list[str]:
        """Return the types of the events, in order."""
        return [row["type"] for row in await self.events(job_id, *types)]

    async def event_text(self, job_id: str) -> str:
        """Return the events as text, for a person to read."""
        return "\n".join(" ".join(map(str, row)) for row in await self.events(job_id))

    async def attempts(self, job_id: str, node: str) -> list[str]:
        """Return the status of every attempt at a node, in order."""
        sql = "SELECT status FROM dag_task_attempts WHERE job_id = $1 AND node_id = $2 ORDER BY attempt"
        return [row["status"] for row in await self.rows(sql, int(job_id), node)]

    async def log(self, job_id: str, node: str) -> str:
        """Return the log of a node's attempts, whose pieces are numbered from 1."""
        sql = "SELECT attempt, chunk, text FROM dag_task_logs WHERE job_id = $1 AND node_id = $2 ORDER BY attempt, chunk"
        rows = await self.rows(sql, int(job_id), node)
        for attempt in {row["attempt"] for row in rows}:
            chunks = [row["chunk"] for row in rows if row["attempt"] == attempt]
            assert chunks == list(range(1, len(chunks) + 1))
        return "".join(row["text"] for row in rows)

    async def everything(self, *but: str) -> str:
        """All rows of all tables as text, but those of some columns (`table.column`)."""
        tables = await self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'dagapp' ORDER BY 1")
        result: list[str] = []
        for (table,) in tables:
            for row in await self.rows(f"SELECT * FROM {table}"):
                result += [
                    f"{table}.{key}: {value}" for key, value in row.items() if f"{table}.{key}" not in but
                ]
        return "\n".join(result)

    async def why(self, job_id: str) -> Why:
        """Explain why a job and its nodes have their status."""
        store = PostgresReadStore(self.address, lease_seconds=A_LEASE, worker_lease_seconds=A_LEASE)
        try:
            return await explain_job(application_on(store), job_id)
        finally:
            await store.close()

    async def until_reason(self, job_id: str, node: str, code: str) -> str:
        """Wait until a node has a reason of this code, and give its sentence."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                # A child of a fan-out is not there from the beginning.
                with contextlib.suppress(KeyError):
                    reason = (await self.why(job_id)).reason_for(node)
                    if reason.code == code:
                        return reason.sentence
                self._check_services()
                await asyncio.sleep(0.02)

    async def _explain_all(self) -> None:
        """No job is ever without a reason, nor is a node of it."""
        with contextlib.suppress(DatabaseUnavailable):
            for (job_id,) in await self.rows("SELECT id FROM dag_jobs ORDER BY id DESC LIMIT 5"):
                why = await self.why(str(job_id))
                assert why.head().sentence
                assert all(why.reason_for(node.id).sentence and why.chain(node.id) for node in why.nodes())

    # ── Audit ──

    async def _audit(self) -> None:
        assert not await self.rows("SELECT id FROM dag_jobs WHERE owner_id IS NOT NULL"), (
            "a stopped orchestrator owns jobs"
        )
        left = "SELECT i.* FROM dag_inbox i JOIN dag_jobs j ON j.id = i.job_id WHERE j.status = ANY($1)"
        assert not await self.rows(left, list(FINISHED)), "a finished job has unprocessed commands"
        assert self._connection is not None
        violations = await audit(self._connection, lease_seconds=A_LEASE, worker_lease_seconds=A_LEASE)
        assert not violations.violations, "\n".join(map(str, violations.violations))


def owner_of(service: Orchestrator) -> int:
    store = service.store
    assert isinstance(store, PostgresOrchestratorStore)
    return store.owner_id


def worker_of(service: Worker) -> int:
    store = service.ledger
    assert isinstance(store, PostgresWorkerStore)
    return store.worker_id


def read(data: str | None) -> Any:
    """Return the data of an event."""
    return {} if data is None else json.loads(data)
