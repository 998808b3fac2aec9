"""Clients of a running stack: they submit jobs and wait for their end, and measure how long that takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.stack import ROOT, connect
from dagmaster.application.submission import JobSubmitter, Submission
from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.bootstrap import find_handlers
from dagmaster.store.postgres.client_store import PostgresClientStore
from dagmaster.store.postgres.connection import DatabaseConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import asyncpg

    from dagmaster.engine.graph import Graph

LIMIT_SECONDS = 120.0
"""No job here takes so long: something is wrong."""

HANDLERS = find_handlers()
FAN_OUT = compile_file(ROOT / "workflows" / "fan_out.yaml", handlers=HANDLERS).graph

_HOPS = """
SELECT percentile_cont(ARRAY[0.5, 0.9]) WITHIN GROUP (ORDER BY hop)
FROM (SELECT extract(epoch FROM at - lag(at) OVER (PARTITION BY job_id ORDER BY seq))::float8 * 1000 AS hop
      FROM dag_job_events WHERE type = 'NodeDispatched' AND job_id = ANY($1::bigint[])) AS hops
WHERE hop IS NOT NULL
"""
_OPEN = "SELECT count(*) FROM dag_jobs WHERE status IN ('PENDING', 'RUNNING') AND workflow_id = $1"


def chain_of(length: int) -> Graph:
    """Tasks one after the other."""
    nodes: dict[str, Any] = {f"n{place}": {"handler": "echo", "params": {"i": place}} for place in range(length)}
    for place in range(1, length):
        nodes[f"n{place}"]["depends_on"] = [f"n{place - 1}"]
    return _graph(f"chain_{length}", nodes)


def waits_of(count: int) -> Graph:
    """Nodes that wait for a signal that never comes."""
    return _graph("waits", {f"w{place}": {"type": "wait", "signal": "go"} for place in range(count)})


def _graph(name: str, nodes: Mapping[str, Any]) -> Graph:
    text = json.dumps({"workflow_id": name, "version": 1, "nodes": nodes})
    return compile_text(text, handlers=HANDLERS).graph


@dataclass(slots=True)
class Client:
    """One connection to submit, one to watch."""

    store: PostgresClientStore
    intake: JobSubmitter
    watching: asyncpg.Connection[Any]

    async def run(
        self, graph: Graph, inputs: Mapping[str, Any] | None = None, limit_seconds: float = LIMIT_SECONDS
    ) -> tuple[float, int]:
        """Submit a job and wait for its end: the seconds, and its id."""
        woken = asyncio.Event()
        begun = time.perf_counter()
        accepted = await self.intake.submit([Submission(graph=graph, inputs=inputs or {})])
        job_id = int(accepted[0].job_id)
        channel = f"dagmaster_job_{job_id}"

        def wake(*_: object) -> None:
            woken.set()

        await self.watching.add_listener(channel, wake)
        status = ""
        while status in ("", "PENDING", "RUNNING"):
            woken.clear()
            status = await self.watching.fetchval("SELECT status FROM dag_jobs WHERE id = $1", job_id)
            if status in ("PENDING", "RUNNING"):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), 2)
            if time.perf_counter() - begun > limit_seconds:
                raise TimeoutError(f"job {job_id} is {status} after {limit_seconds:.0f} s")
        taken = time.perf_counter() - begun
        await self.watching.remove_listener(channel, wake)
        assert status == "COMPLETED", f"job {job_id}: {status}"
        return taken, job_id

    async def hops(self, job_ids: list[int]) -> tuple[float, float]:
        """Milliseconds from one dispatch to the next, in jobs that are chains: median, and nine in ten."""
        found = await self.watching.fetchval(_HOPS, job_ids)
        return found[0], found[1]

    async def wal(self) -> int:
        """Bytes of WAL, so far."""
        return int(await self.watching.fetchval("SELECT pg_current_wal_lsn() - '0/0'"))

    async def wait(self, graph: Graph, jobs: int) -> None:
        """Submit jobs whose nodes wait, and wait until they do. A few at a time, so that no turn is huge."""
        many = [Submission(graph=graph, inputs={})] * 5
        nodes = len(graph.specs)
        before = await self._waiting()
        for _ in range(jobs // len(many)):
            await self.intake.submit(many)
            await self.until_none("SELECT count(*) FROM dag_jobs WHERE status = 'PENDING'")
        assert await self._waiting() - before == jobs * nodes

    async def until_none(self, counting: str, *arguments: object) -> None:
        """Ask again and again until the count is 0."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while await self.watching.fetchval(counting, *arguments):  # noqa: ASYNC110 - the database is asked
                await asyncio.sleep(0.005)

    async def _waiting(self) -> int:
        return int(await self.watching.fetchval("SELECT count(*) FROM dag_node_states WHERE status = 'WAITING'"))


@contextlib.asynccontextmanager
async def client(dsn: str) -> AsyncIterator[Client]:
    """A client, for as long as it is used."""
    store = PostgresClientStore(DatabaseConfig(dsn=dsn))
    await store.open()
    watching = await connect(dsn)
    try:
        yield Client(store, JobSubmitter(store, store.identity.ids), watching)
    finally:
        await watching.close()
        await store.close()


@dataclass(frozen=True, slots=True)
class Jobs:
    """Many small jobs: how many a second were accepted, and completed, from the first submit on."""

    accepted: float
    completed: float


async def jobs_in_batches(dsn: str, graph: Graph, count: int, size: int) -> Jobs:
    """Submit small jobs, many in each call."""
    async with client(dsn) as one:
        batch = [Submission(graph=graph, inputs={})] * size
        await one.intake.keep(graph)
        begun = time.perf_counter()
        for _ in range(count // size):
            await one.intake.submit(batch)
        return await _until_over(one, graph, count, begun)


async def jobs_one_by_one(dsn: str, graph: Graph, count: int, clients: int) -> Jobs:
    """Submit small jobs, each alone, from clients that have a connection each and await each acceptance."""
    async with contextlib.AsyncExitStack() as opened:
        watcher = await opened.enter_async_context(client(dsn))
        stores = [PostgresClientStore(DatabaseConfig(dsn=dsn)) for _ in range(clients)]
        for store in stores:
            await store.open()
            opened.push_async_callback(store.close)
        intakes = [JobSubmitter(store, store.identity.ids) for store in stores]
        for intake in intakes:
            await intake.keep(graph)
        left = iter(range(count))

        async def submit(intake: JobSubmitter) -> None:
            for _ in left:
                await intake.submit([Submission(graph=graph, inputs={})])

        begun = time.perf_counter()
        await asyncio.gather(*(submit(intake) for intake in intakes))
        return await _until_over(watcher, graph, count, begun)


async def _until_over(one: Client, graph: Graph, count: int, begun: float) -> Jobs:
    accepted = time.perf_counter() - begun
    await one.until_none(_OPEN, graph.workflow_id)
    return Jobs(count / accepted, count / (time.perf_counter() - begun))
