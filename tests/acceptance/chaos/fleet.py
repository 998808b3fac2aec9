"""A fleet of real processes on a real server, which can be killed, paused and disconnected.

Three observers that share no code with the engine check the guarantees: the auditor, which reads the tables; the
ledger, to which handlers append what they did; and a reader, which remembers every final state that it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final, Self

import asyncpg
from asyncpg.exceptions import InterfaceError, InternalClientError, PostgresError

from dagmaster.application.submission import JobRequest, JobSubmitter
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres.audit import audit
from dagmaster.store.postgres.client_store import PostgresClientStore
from tests.acceptance.chaos.ledger import HANDLERS, Ledger
from tests.acceptance.fork_server import DAGMASTER, ROOT, CommandProcess
from tests.environment import without_settings
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, make_server_folder

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Awaitable, Callable, Collection
    from pathlib import Path
    from types import TracebackType

    from dagmaster.ports.job_records import Accepted


POLL_SECONDS: Final = 0.02
PROFILE: Final = {
    "DAGMASTER_SHORT_LEASES": "1",
    "DAGMASTER_ORCHESTRATOR_LEASE_SECONDS": "3",  # renewed and scanned each second
    "DAGMASTER_WORKER_LEASE_SECONDS": "3",
    "DAGMASTER_CONCURRENCY": "32",
    "DAGMASTER_DRAIN_SECONDS": "2",
    # A task that was lost runs in a child process: not one in each of six, as each takes half a second of CPU to start.
    "DAGMASTER_PROCESSES": "2",
}


class Service:
    """An orchestrator or a worker: a process and its log."""

    def __init__(self, kind: str, arguments: tuple[str, ...], env: dict[str, str], log: Path) -> None:
        self.kind = kind
        self.log = log
        with log.open("wb") as output:
            self._process = CommandProcess(
                [DAGMASTER, *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=env,
            )  # fmt: skip
        self.pid = self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def code(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> None:
        """Wait until it exits."""
        await asyncio.to_thread(self._process.wait, PATIENCE_SECONDS)

    def end(self) -> None:
        """Kill it, if it is alive."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Fleet:
    """A server, services, a client and a reader, as a context manager."""

    def __init__(self, **settings: str) -> None:
        self.services: list[Service] = []
        self.restarts = 0
        self._settings = settings
        self._reader: asyncpg.Connection[asyncpg.Record] | None = None
        self._reader_lock = asyncio.Lock()
        self._clients: list[PostgresClientStore] = []
        self._seen: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._expected: set[int] = set()

    async def __aenter__(self) -> Self:
        self.folder = make_server_folder()
        await asyncio.to_thread(copy_migrated_cluster, self.folder / "data")
        self.embedded = EmbeddedPostgres(self.folder / "data")
        self.server = await asyncio.to_thread(self.embedded.start)
        self.ledger = Ledger(self.folder / "ledger")
        handlers = self.folder / "handlers.py"
        handlers.write_text(HANDLERS)
        kept = without_settings()
        self.env = kept | PROFILE | self._settings | {
            "DAGMASTER_DATABASE_URL": self.server.dsn,
            "DAGMASTER_BLOB_DIR": str(self.folder / "blobs"),
            "DAGMASTER_HANDLERS": str(handlers),
            "CHAOS_LEDGER": str(self.ledger.path),
        }  # fmt: skip
        self.client = await self.new_client()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.log_tails())
        for service in self.services:
            service.end()
        for client in self._clients:
            with contextlib.suppress(DatabaseUnavailable):
                await client.close()
        if self._reader is not None:
            self._reader.terminate()
        await asyncio.to_thread(self.embedded.stop)
        if error is None or "CHAOS_KEEP" not in os.environ:
            shutil.rmtree(self.folder, ignore_errors=True)

    def log_tails(self) -> str:
        """Return the last lines of the log of every service."""
        parts = []
        for service in self.services:
            lines = service.log.read_text(errors="replace").splitlines()[-12:] if service.log.exists() else []
            parts.append(
                "\n".join([f"--- {service.log.name} (pid {service.pid}, alive: {service.is_alive})", *lines])
            )
        return "\n".join(parts)

    # ── Services ──

    async def start(self, *kinds: str, dsn: str | None = None) -> list[Service]:
        """Start services, and wait until all are registered. `dsn`: another address of the server."""
        started = [self._spawn(kind, dsn) for kind in kinds]
        for service in started:
            await self.until(
                f"SELECT true FROM {_TABLE[service.kind]} WHERE pid = $1 AND stopped_at IS NULL", service.pid
            )
        return started

    def _spawn(self, kind: str, dsn: str | None) -> Service:
        arguments = ("worker", "--queue", "*") if kind == "worker" else (kind,)
        env = self.env if dsn is None else self.env | {"DAGMASTER_DATABASE_URL": dsn}
        service = Service(kind, arguments, env, self.folder / f"{kind}-{len(self.services)}.log")
        self.services.append(service)
        return service

    def alive(self, kind: str) -> list[Service]:
        return [service for service in self.services if service.kind == kind and service.is_alive]

    async def owner(self, job: str) -> tuple[Service, int]:
        """Return the owner of a job: the process, and its owner id."""
        matches: list[tuple[Service, int]] = []

        async def has_match() -> bool:
            sql = "SELECT o.pid, o.owner_id FROM dag_jobs j JOIN dag_orchestrators o USING (owner_id) WHERE j.id = $1"
            for pid, owner_id in await self.rows(sql, int(job)):
                matches.extend(
                    (service, owner_id) for service in self.alive("orchestrator") if service.pid == pid
                )
            return bool(matches)

        await self.wait_for(has_match, f"job {job} has an owner")
        return matches[0]

    async def busy_worker(self, chance: random.Random) -> tuple[Service, int]:
        """Return a worker that has claimed tasks, and its worker id."""
        matches: list[tuple[Service, int]] = []

        async def has_match() -> bool:
            sql = "SELECT DISTINCT w.pid, worker_id FROM dag_task_queue JOIN dag_workers w USING (worker_id)"
            for pid, worker_id in await self.rows(sql):
                matches.extend((service, worker_id) for service in self.alive("worker") if service.pid == pid)
            return bool(matches)

        await self.wait_for(has_match, "a worker has claimed tasks")
        return chance.choice(matches)

    async def until_executing(self, worker_id: int, *, first: int) -> None:
        """Wait until a worker executes a child from this index on, behind a gate: one only claimed is not repeated."""

        async def is_executing() -> bool:
            sql = """SELECT q.job_id::text, q.node_id, q.attempt FROM dag_task_queue q
                     JOIN dag_node_states n USING (job_id, node_id)
                     WHERE q.worker_id = $1 AND n.fan_out_index >= $2"""
            held = {tuple(row) for row in await self.rows(sql, worker_id, first)}
            return not held.isdisjoint(self.ledger.in_progress())

        await self.wait_for(is_executing, "the worker executes a task")

    def kill_server(self) -> None:
        """Kill the postmaster with SIGKILL. Its children exit when they notice."""
        pid = int((self.folder / "data" / "cluster" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    async def restart_server(self) -> None:
        """Restart the server, as an operator's supervisor does."""
        self.restarts += 1
        await asyncio.to_thread(self.embedded.start)

    # ── Jobs ──

    async def new_client(self, dsn: str | None = None) -> PostgresClientStore:
        client = PostgresClientStore(DatabaseConfig(dsn=dsn or self.server.dsn))
        await client.open()
        self._clients.append(client)
        return client

    async def submit(
        self, text: str, *, key: str | None = None, client: PostgresClientStore | None = None, times: int = 1
    ) -> list[Accepted]:
        """Submit jobs; remember their ids."""
        store = client or self.client
        graph = compile_text(text).graph
        requests = [JobRequest(idempotency_key=key, submitted_by="chaos")] * times
        accepted = await JobSubmitter(store, store.identity.ids).submit(graph, *requests)
        self._expected.update(int(result.job_id) for result in accepted)
        return accepted

    async def job(self, text: str) -> str:
        return (await self.submit(text))[0].job_id

    async def wait_finished(self, *jobs: str) -> None:
        """Wait until jobs have finished."""
        ids = [int(job) for job in jobs]
        await self.until("SELECT count(*) = 0 FROM dag_jobs WHERE id = ANY($1) AND finished_at IS NULL", ids)

    async def events(self, job: str) -> int:
        return int(await self.value("SELECT event_seq FROM dag_jobs WHERE id = $1", int(job)))

    async def until_events(self, job: str, count: int) -> None:
        """Wait until a job has this number of events."""
        await self.until("SELECT event_seq >= $2 FROM dag_jobs WHERE id = $1", int(job), count)

    # ── Reading ──

    async def rows(self, sql: str, *params: Any) -> list[asyncpg.Record]:
        """Query the server directly, not through a proxy; reconnect if the connection was lost."""
        async with self._reader_lock, asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    if self._reader is None or self._reader.is_closed():
                        self._reader = await asyncpg.connect(
                            self.server.dsn, server_settings={"search_path": "dagapp"}
                        )
                    return await self._reader.fetch(sql, *params)
                except (OSError, InterfaceError, InternalClientError, PostgresError) as error:
                    if isinstance(error, PostgresError) and (error.sqlstate or "")[:2] not in ("57", "08"):
                        raise
                    self._reader = None
                    await asyncio.sleep(POLL_SECONDS)

    async def value(self, sql: str, *params: Any) -> Any:
        rows = await self.rows(sql, *params)
        return rows[0][0] if rows else None

    async def until(self, sql: str, *params: Any) -> None:
        """Wait until a query returns true."""

        async def is_true() -> bool:
            return bool(await self.value(sql, *params))

        await self.wait_for(is_true, f"{sql} {params}")

    async def wait_for(self, condition: Callable[[], Awaitable[bool]], description: str = "") -> None:
        """Poll until a condition is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not await condition():
            assert time.monotonic() < deadline, f"not true within {PATIENCE_SECONDS:g} s: {description}"
            await asyncio.sleep(POLL_SECONDS)

    async def record_finished(self) -> None:
        """Record the final state of every finished node; none that was recorded before may have changed."""
        sql = """SELECT job_id, node_id, status, attempt, finished_seq, md5(output::text) FROM dag_node_states
                 WHERE status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')"""
        now = {(job, node): tuple(rest) for job, node, *rest in await self.rows(sql)}
        changed = {node: (was, now.get(node)) for node, was in self._seen.items() if now.get(node) != was}
        assert not changed, f"final states have changed: {list(changed.items())[:5]}"
        self._seen = now

    # ── Guarantees ──

    async def check(self, *, failed: Collection[str] = ()) -> Counter[str]:
        """Check that every accepted job has completed, that no work was repeated, and that the invariants hold.

        `failed`: the jobs that must fail. Return how often handlers were executed.
        """
        await self.until("SELECT count(*) = 0 FROM dag_jobs WHERE finished_at IS NULL")
        statuses = {
            str(row["id"]): row["status"] for row in await self.rows("SELECT id, status FROM dag_jobs")
        }
        wrong = {
            job: status
            for job, status in statuses.items()
            if status != ("FAILED" if job in failed else "COMPLETED")
        }
        assert not wrong, f"jobs have other statuses: {wrong}"
        stored = {row["id"] for row in await self.rows("SELECT id FROM dag_jobs")}
        assert self._expected <= stored, f"accepted jobs are missing: {self._expected - stored}"
        await self.until("SELECT count(*) = 0 FROM dag_inbox")
        await self.record_finished()
        connection = await asyncpg.connect(self.server.dsn)
        try:
            report = await audit(connection, lease_seconds=3, worker_lease_seconds=3)
        finally:
            await connection.close()
        assert not report.violations, "\n".join(map(str, report.violations[:20]))
        sql = "SELECT job_id, node_id, attempt, output FROM dag_node_states WHERE task_id IS NOT NULL AND status = 'COMPLETED'"
        # A server that crashes may lose a claim, so that another worker runs the attempt; else each attempt runs once.
        problems = self.ledger.violations(
            [tuple(row) for row in await self.rows(sql)], may_repeat=self.restarts > 0
        )
        assert not problems, "\n".join(problems[:20])
        return self.ledger.executions()


_TABLE: Final = {"orchestrator": "dag_orchestrators", "worker": "dag_workers"}
