"""A fleet of real processes on a real server, that can be killed, paused and cut off; and who looks on from outside.

What a scenario is promised is checked by three that share no code with the engine: the auditor, which reads the tables;
the ledger, in which handlers write with their own hands what they did; and the onlooker, who remembers what he saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import asyncpg
from asyncpg.exceptions import InterfaceError, InternalClientError, PostgresError

from dagmaster.application.submission import JobSubmitter, Submission
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.audit import audit
from dagmaster.store.postgres.client_store import PostgresClientStore
from tests.acceptance.chaos.ledger import HANDLERS, Ledger
from tests.acceptance.fork_server import DAGMASTER, ROOT, CommandProcess

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from dagmaster.ports.job_records import Accepted

A_LONG_WHILE: Final = 120.0
"""Longer than anything here takes, on a machine that is busy. Nobody waits so long unless something hangs."""

LOOK_SECONDS: Final = 0.02
PROFILE: Final = {
    "DAGMASTER_ORCHESTRATOR_LEASE_SECONDS": "3",  # renewed and scanned each second
    "DAGMASTER_WORKER_LEASE_SECONDS": "3",
    "DAGMASTER_CONCURRENCY": "32",
    "DAGMASTER_DRAIN_SECONDS": "2",
}


class Service:
    """An orchestrator or a worker: a process, and what it said."""

    def __init__(self, kind: str, arguments: tuple[str, ...], env: dict[str, str], log: Path) -> None:
        self.kind = kind
        self.log = log
        with log.open("wb") as said:
            self._process = CommandProcess(
                [DAGMASTER, *arguments],
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, cwd=ROOT, env=env,
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

    async def over(self) -> None:
        """Wait for its end."""
        await asyncio.to_thread(self._process.wait, A_LONG_WHILE)

    def end(self) -> None:
        """End it at once."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Fleet:
    """A place with a server, services, a client and an onlooker. Used as a context."""

    def __init__(self, **settings: str) -> None:
        self.services: list[Service] = []
        self.restarts = 0
        self._settings = settings
        self._eyes: asyncpg.Connection[asyncpg.Record] | None = None
        self._looking = asyncio.Lock()
        self._clients: list[PostgresClientStore] = []
        self._seen: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._expected: set[int] = set()

    async def __aenter__(self) -> Self:
        # Not below the user's own folders: as root the server runs as another user, who may not look into them.
        self.folder = Path(tempfile.mkdtemp(prefix="dagmaster-chaos-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.embedded = EmbeddedPostgres(self.folder / "data")
        self.server = await asyncio.to_thread(self.embedded.start)
        await asyncio.to_thread(schema_version.upgrade, self.server.dsn)
        self.ledger = Ledger(self.folder / "ledger")
        handlers = self.folder / "handlers.py"
        handlers.write_text(HANDLERS)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DAGMASTER_")}
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
            error.add_note(self.told())
        for service in self.services:
            service.end()
        for client in self._clients:
            with contextlib.suppress(DatabaseUnavailable):
                await client.close()
        if self._eyes is not None:
            self._eyes.terminate()
        await asyncio.to_thread(self.embedded.stop)
        if error is None or "CHAOS_KEEP" not in os.environ:
            shutil.rmtree(self.folder, ignore_errors=True)

    def told(self) -> str:
        """Return the last lines of every service, for a person to read."""
        parts = []
        for service in self.services:
            lines = service.log.read_text(errors="replace").splitlines()[-12:] if service.log.exists() else []
            parts.append("\n".join([f"--- {service.log.name} (pid {service.pid}, alive: {service.is_alive})", *lines]))
        return "\n".join(parts)

    # ── Who lives ──

    async def start(self, *kinds: str, dsn: str | None = None) -> list[Service]:
        """Start services, and wait until all are known as alive. `dsn`: another way to the server."""
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
        """Who owns a job: the process, and the id that it owns it with."""
        found: list[tuple[Service, int]] = []

        async def look() -> bool:
            sql = "SELECT o.pid, o.owner_id FROM dag_jobs j JOIN dag_orchestrators o USING (owner_id) WHERE j.id = $1"
            for pid, owner_id in await self.rows(sql, int(job)):
                found.extend((each, owner_id) for each in self.alive("orchestrator") if each.pid == pid)
            return bool(found)

        await self.wait_for(look, f"somebody owns job {job}")
        return found[0]

    async def busy_worker(self, chance: random.Random) -> tuple[Service, int]:
        """Return a worker that holds tasks, and the id that it holds them with."""
        found: list[tuple[Service, int]] = []

        async def look() -> bool:
            sql = "SELECT DISTINCT w.pid, worker_id FROM dag_task_queue JOIN dag_workers w USING (worker_id)"
            for pid, worker_id in await self.rows(sql):
                found.extend((each, worker_id) for each in self.alive("worker") if each.pid == pid)
            return bool(found)

        await self.wait_for(look, "a worker holds tasks")
        return chance.choice(found)

    def kill_server(self) -> None:
        """`kill -9` of the postmaster. Its children end when they notice."""
        pid = int((self.folder / "data" / "cluster" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    async def restart_server(self) -> None:
        """Restart dead services, as an operator's supervisor does."""
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
        """Submit, once, whatever happens to the client meanwhile."""
        store = client or self.client
        graph = compile_text(text).graph
        wanted = [Submission(graph=graph, inputs={}, idempotency_key=key, submitted_by="chaos") for _ in range(times)]
        accepted = await JobSubmitter(store, store.identity.ids).submit(wanted)
        self._expected.update(int(each.job_id) for each in accepted)
        return accepted

    async def job(self, text: str) -> str:
        return (await self.submit(text))[0].job_id

    async def over(self, *jobs: str) -> None:
        """Wait until jobs are over."""
        ids = [int(job) for job in jobs]
        await self.until("SELECT count(*) = 0 FROM dag_jobs WHERE id = ANY($1) AND finished_at IS NULL", ids)

    async def events(self, job: str) -> int:
        return int(await self.value("SELECT event_seq FROM dag_jobs WHERE id = $1", int(job)))

    async def until_events(self, job: str, count: int) -> None:
        """Wait until so much was told of a job."""
        await self.until("SELECT event_seq >= $2 FROM dag_jobs WHERE id = $1", int(job), count)

    # ── What can be seen ──

    async def rows(self, sql: str, *given: Any) -> list[asyncpg.Record]:
        """Ask the server, past every proxy. A connection that was lost is made again."""
        async with self._looking, asyncio.timeout(A_LONG_WHILE):
            while True:
                try:
                    if self._eyes is None or self._eyes.is_closed():
                        self._eyes = await asyncpg.connect(self.server.dsn, server_settings={"search_path": "dagapp"})
                    return await self._eyes.fetch(sql, *given)
                except (OSError, InterfaceError, InternalClientError, PostgresError) as error:
                    if isinstance(error, PostgresError) and (error.sqlstate or "")[:2] not in ("57", "08"):
                        raise
                    self._eyes = None
                    await asyncio.sleep(LOOK_SECONDS)

    async def value(self, sql: str, *given: Any) -> Any:
        found = await self.rows(sql, *given)
        return found[0][0] if found else None

    async def until(self, sql: str, *given: Any) -> None:
        """Wait until a question is answered with yes."""

        async def asked() -> bool:
            return bool(await self.value(sql, *given))

        await self.wait_for(asked, f"{sql} {given}")

    async def wait_for(self, condition: Callable[[], Awaitable[bool]], what: str = "") -> None:
        """Wait until something is so. Neither rows nor files tell anybody."""
        ends = time.monotonic() + A_LONG_WHILE
        while not await condition():
            assert time.monotonic() < ends, f"it did not come about within {A_LONG_WHILE:g} s: {what}"
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Remember how each node ended that is over: what was seen is never taken back."""
        sql = """SELECT job_id, node_id, status, attempt, finished_seq, md5(output::text) FROM dag_node_states
                 WHERE status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')"""
        now = {(job, node): tuple(rest) for job, node, *rest in await self.rows(sql)}
        changed = {place: (was, now.get(place)) for place, was in self._seen.items() if now.get(place) != was}
        assert not changed, f"what was seen was taken back: {list(changed.items())[:5]}"
        self._seen = now

    # ── What is promised ──

    async def check(self) -> None:
        """All that was accepted is there and done, once, and the rows are sound."""
        await self.until("SELECT count(*) = 0 FROM dag_jobs WHERE finished_at IS NULL")
        ends = {row["status"] for row in await self.rows("SELECT DISTINCT status FROM dag_jobs")}
        assert ends == {"COMPLETED"}, f"jobs ended otherwise: {ends}"
        there = {row["id"] for row in await self.rows("SELECT id FROM dag_jobs")}
        assert self._expected <= there, f"accepted jobs are gone: {self._expected - there}"
        await self.until("SELECT count(*) = 0 FROM dag_inbox")
        await self.look()
        connection = await asyncpg.connect(self.server.dsn)
        try:
            found = await audit(connection, lease_seconds=3, worker_lease_seconds=3)
        finally:
            await connection.close()
        assert not found.violations, "\n".join(map(str, found.violations[:20]))
        sql = "SELECT job_id, node_id, attempt, output FROM dag_node_states WHERE task_id IS NOT NULL AND status = 'COMPLETED'"
        # A server that dies may forget who held an attempt, so that another runs it; else each is run once.
        wrong = self.ledger.violations([tuple(row) for row in await self.rows(sql)], may_repeat=self.restarts > 0)
        assert not wrong, "\n".join(wrong[:20])


_TABLE: Final = {"orchestrator": "dag_orchestrators", "worker": "dag_workers"}
