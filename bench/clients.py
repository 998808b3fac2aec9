"""Clients of a running stack: submit jobs, wait until they are finished, measure how long that takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.dev_stack import ROOT, connect
from dagmaster.application.submission import JobRequest, JobSubmitter
from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.bootstrap import find_handlers
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.postgres.client_store import PostgresClientStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import asyncpg

    from dagmaster.engine.graph import Graph

LIMIT_SECONDS = 120.0
"""No job of a benchmark takes this long; a longer one is an error."""

HANDLERS = find_handlers()
FAN_OUT = compile_file(ROOT / "workflows" / "fan_out.yaml", handlers=HANDLERS).graph

_HOPS = """
SELECT percentile_cont(ARRAY[0.5, 0.9]) WITHIN GROUP (ORDER BY hop)
FROM (SELECT extract(epoch FROM at - lag(at) OVER (PARTITION BY job_id ORDER BY seq))::float8 * 1000 AS hop
      FROM dag_job_events WHERE type = 'NodeDispatched' AND job_id = ANY($1::bigint[])) AS hops
WHERE hop IS NOT NULL
"""
_TABLES_OF_JOB = {
    "dag_jobs": "id", "dag_node_states": "job_id", "dag_task_attempts": "job_id", "dag_job_events": "job_id",
}  # fmt: skip
_OPEN = "SELECT count(*) FROM dag_jobs WHERE status IN ('PENDING', 'RUNNING') AND workflow_id = $1"


def chain_of(length: int) -> Graph:
    """Return a graph of `length` tasks, one after the other."""
    nodes: dict[str, Any] = {
        f"n{index}": {"handler": "echo", "params": {"i": index}} for index in range(length)
    }
    for index in range(1, length):
        nodes[f"n{index}"]["depends_on"] = [f"n{index - 1}"]
    return _graph(f"chain_{length}", nodes)


def waits_of(count: int) -> Graph:
    """Return a graph of nodes that wait for a signal that is never sent."""
    return _graph("waits", {f"w{index}": {"type": "wait", "signal": "go"} for index in range(count)})


def timers_of(length: int, seconds: float) -> Graph:
    """Return a graph of timers, one after the other."""
    nodes: dict[str, Any] = {f"t{index}": {"type": "wait", "seconds": seconds} for index in range(length)}
    for index in range(1, length):
        nodes[f"t{index}"]["depends_on"] = [f"t{index - 1}"]
    return _graph("timers", nodes)


def _graph(name: str, nodes: Mapping[str, Any]) -> Graph:
    text = json.dumps({"workflow_id": name, "version": 1, "nodes": nodes})
    return compile_text(text, handlers=HANDLERS).graph


@dataclass(slots=True)
class Client:
    """A client with one connection to submit and one to watch."""

    store: PostgresClientStore
    submitter: JobSubmitter
    reader: asyncpg.Connection[Any]

    async def run(
        self, graph: Graph, inputs: Mapping[str, Any] | None = None, limit_seconds: float = LIMIT_SECONDS
    ) -> tuple[float, int]:
        """Submit a job and wait until it is finished; return the seconds and its id."""
        wakeup = asyncio.Event()
        started = time.perf_counter()
        accepted = await self.submitter.submit(graph, JobRequest(inputs=inputs or {}))
        job_id = int(accepted[0].job_id)
        channel = f"dagmaster_job_{job_id}"

        def wake(*_: object) -> None:
            wakeup.set()

        await self.reader.add_listener(channel, wake)
        status = ""
        while status in ("", "PENDING", "RUNNING"):
            wakeup.clear()
            status = await self.reader.fetchval("SELECT status FROM dag_jobs WHERE id = $1", job_id)
            if status in ("PENDING", "RUNNING"):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wakeup.wait(), 2)
            if time.perf_counter() - started > limit_seconds:
                raise TimeoutError(f"job {job_id} is {status} after {limit_seconds:.0f} s")
        seconds = time.perf_counter() - started
        await self.reader.remove_listener(channel, wake)
        assert status == "COMPLETED", f"job {job_id}: {status}"
        return seconds, job_id

    async def hops(self, job_ids: list[int]) -> tuple[float, float]:
        """Return milliseconds between dispatches in jobs that are chains: the median and the 90th percentile."""
        p50, p90 = await self.reader.fetchval(_HOPS, job_ids)
        return p50, p90

    async def wal_bytes(self) -> int:
        """Return the bytes of WAL written so far."""
        return int(await self.reader.fetchval("SELECT pg_current_wal_lsn() - '0/0'"))

    async def start_waiting_jobs(self, graph: Graph, jobs: int) -> None:
        """Submit jobs of waiting nodes, and wait until the nodes are WAITING; a few jobs at a time, for small turns."""
        batch = [JobRequest()] * 5
        nodes = len(graph.specs)
        before = await self._count_waiting()
        for _ in range(jobs // len(batch)):
            await self.submitter.submit(graph, *batch)
            await self.until_zero("SELECT count(*) FROM dag_jobs WHERE status = 'PENDING'")
        assert await self._count_waiting() - before == jobs * nodes

    async def until_zero(self, count_query: str, *arguments: object) -> None:
        """Poll a counting query until it returns 0."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while await self.reader.fetchval(count_query, *arguments):  # noqa: ASYNC110 - the database is polled
                await asyncio.sleep(0.005)

    async def _count_waiting(self) -> int:
        return int(
            await self.reader.fetchval("SELECT count(*) FROM dag_node_states WHERE status = 'WAITING'")
        )


@contextlib.asynccontextmanager
async def client(dsn: str) -> AsyncIterator[Client]:
    """Open a client, and close it at the end."""
    store = PostgresClientStore(DatabaseConfig(dsn=dsn))
    await store.open()
    reader = await connect(dsn)
    try:
        yield Client(store, JobSubmitter(store, store.identity.ids), reader)
    finally:
        await reader.close()
        await store.close()


async def copy_job(connection: asyncpg.Connection[Any], job_id: int, count: int) -> None:
    """Copy the rows of a finished job `count` times, under the ids that follow its own."""
    for table, key in _TABLES_OF_JOB.items():
        rows = await connection.prepare(f"TABLE {table}")
        columns = [attribute.name for attribute in rows.get_attributes()]
        copied = {key: f"{key} + number", "task_id": "task_id + 16 * number"}
        values = ", ".join(copied.get(column, column) for column in columns)
        await connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table}"  # noqa: S608 - our own names
            f" CROSS JOIN generate_series(1, {count}) AS number WHERE {key} = {job_id}"
        )
    await connection.execute("VACUUM ANALYZE")


@dataclass(frozen=True, slots=True)
class JobRates:
    """Accepted and completed jobs per second, counted from the first submit."""

    accepted: float
    completed: float


async def jobs_in_batches(dsn: str, graph: Graph, count: int, size: int) -> JobRates:
    """Submit small jobs, `size` in every call."""
    async with client(dsn) as submitting:
        batch = [JobRequest()] * size
        await submitting.submitter.store_graph(graph)
        started = time.perf_counter()
        for _ in range(count // size):
            await submitting.submitter.submit(graph, *batch)
        return await until_completed(submitting, graph, count, started)


async def jobs_one_by_one(dsn: str, graph: Graph, count: int, clients: int) -> JobRates:
    """Submit small jobs one by one from `clients` clients, which await every acceptance."""
    async with contextlib.AsyncExitStack() as opened:
        watcher = await opened.enter_async_context(client(dsn))
        stores = [PostgresClientStore(DatabaseConfig(dsn=dsn)) for _ in range(clients)]
        for store in stores:
            await store.open()
            opened.push_async_callback(store.close)
        submitters = [JobSubmitter(store, store.identity.ids) for store in stores]
        for submitter in submitters:
            await submitter.store_graph(graph)
        remaining = iter(range(count))

        async def submit(submitter: JobSubmitter) -> None:
            for _ in remaining:
                await submitter.submit(graph, JobRequest())

        started = time.perf_counter()
        await asyncio.gather(*(submit(submitter) for submitter in submitters))
        return await until_completed(watcher, graph, count, started)


async def until_completed(watcher: Client, graph: Graph, count: int, started: float) -> JobRates:
    """Wait until all jobs of a graph are finished. All have been accepted when this is called."""
    accepted = time.perf_counter() - started
    await watcher.until_zero(_OPEN, graph.workflow_id)
    return JobRates(count / accepted, count / (time.perf_counter() - started))
