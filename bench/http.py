"""The HTTP API: beside the direct path in the same run, on a table of a million jobs, and at rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bench import http_metrics, http_streams, process_usage
from bench.clients import JobRates, chain_of, client, jobs_in_batches, jobs_one_by_one, until_completed
from bench.dev_stack import DAGMASTER, ROOT, Stack, environment, folder
from bench.http_connection import HttpConnection
from bench.job_table import fill_jobs
from bench.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.engine.graph import Graph

JOBS, CLIENTS, BATCH, REPEATS = 1_000, 32, 100, 5
FEW, MANY = 1_000, 1_000_000
REQUESTS = 60
"""Requests of each list, of both tables in alternation."""
KEY = "the-admin-key-of-a-benchmark-0123456789"
FILTERS = {
    "no filter": "",
    "a cursor": "cursor={cursor}",
    "status completed": "status=completed",
    "status failed": "status=failed",
    "status cancelled": "status=cancelled",
    "status running": "status=running",
    "status waiting": "status=waiting",
    "status pending": "status=pending",
    "workflow_id": "workflow_id=flow_3",
    "version": "workflow_id=flow_3&version=1",
    "name": "name=nightly_1",
    "submitted_by": "submitted_by=user_3",
    "correlation_id": "correlation_id=request-7",
    "idempotency_key": "idempotency_key=key-500",
    "parent_job_id": "parent_job_id={parent}",
    "since": "since=3d",
    "until": "until=20d",
    "finished_since": "finished_since=3d",
    "finished_until": "finished_until=20d",
    "text": "text=user_1",
    "text, of no job": "text=zzz",
    "submitted_by, of no job": "submitted_by=zzz",
    "workflow_id and status failed": "workflow_id=flow_5&status=failed",
}
"""The query of each filter. Those of old jobs are far from the newest one, where a list begins."""


def measure() -> Iterator[Row]:
    """Measure the API; then its streams and metrics, which have modules of their own."""
    with folder() as place, Stack(place / "http") as stack:
        yield from _start(stack)
        yield from _idle(stack, seconds=15)
        yield from _jobs(stack)
        yield from _lists(stack)
    yield from http_streams.measure()
    yield from http_metrics.measure()


# ── Start and rest ──


class Server:
    """A `dagmaster server` of its own; a context manager that starts and stops it."""

    def __init__(self, *arguments: str, **settings: str) -> None:
        self._command = [DAGMASTER, "server", "--port=0", *arguments]
        self._settings = settings

    def __enter__(self) -> Self:
        started = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            self._command,
            cwd=ROOT,
            env=environment() | self._settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if " is ready " in line:
                self.url = line[line.index("http://") :].split()[0]
                break
        else:
            raise RuntimeError("dagmaster server did not start")
        asyncio.run(get(self.url, "", "/livez"))
        self.ready_seconds = time.perf_counter() - started
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)


async def get(url: str, key: str, path: str) -> Any:
    """Send one request on a connection of its own."""
    async with HttpConnection(url, key) as connection:
        return await connection.get(path)


def _start(stack: Stack) -> Iterator[Row]:
    durations = []
    for _ in range(REPEATS):
        with Server(f"--data-dir={stack.data_dir}") as server:
            durations.append(server.ready_seconds)
    workload = "dagmaster server, from its start to its first answer"
    yield Row(f"{workload}, median of {REPEATS}", statistics.median(durations), "s", at_most=1.5)


def _idle(stack: Stack, *, seconds: float) -> Iterator[Row]:
    # Its connections to the database are part of it.
    asyncio.run(get(stack.api, stack.key, "/api/v1/jobs"))
    services = {"dagmaster server", "dagmaster keys", "dagmaster audit trail", "dagmaster reader"}
    backends = [pid for pid, name in stack.names().items() if name.removeprefix("postgres for ") in services]
    server = [stack.pids["server"], *backends]
    time.sleep(1)
    started, own, whole = time.perf_counter(), _cpu(server), stack.fine_cpu()
    time.sleep(seconds)
    elapsed, own, whole = time.perf_counter() - started, _cpu(server) - own, stack.fine_cpu() - whole
    yield Row("server idle, with its connections", own / elapsed * 100, "% of a core", at_most=0.3)
    yield Row("idle, CPU of the whole dev stack, with the server", whole / elapsed * 100, "% of a core", at_most=1.3)
    yield Row("memory of the server at rest, RSS", process_usage.memory(stack.pids["server"])["Rss"] / 1e6, "MB")


def _cpu(pids: list[int]) -> float:
    return sum(map(process_usage.fine_cpu_seconds, pids))


# ── Jobs: over HTTP, and directly into the database ──


def _jobs(stack: Stack) -> Iterator[Row]:
    graph = chain_of(1)
    asyncio.run(_publish(stack, graph))
    # Both paths once, without counting.
    asyncio.run(jobs_in_batches(stack.dsn, graph, 200, BATCH))
    asyncio.run(_over_http(stack, graph, 200, batch=1, clients=CLIENTS))
    for method, batch, clients in (("one by one from 32 clients", 1, CLIENTS), ("in batches of 100", BATCH, 1)):
        direct: list[JobRates] = []
        over_http: list[JobRates] = []
        for _ in range(REPEATS):
            if batch == 1:
                direct.append(asyncio.run(jobs_one_by_one(stack.dsn, graph, JOBS, clients)))
            else:
                direct.append(asyncio.run(jobs_in_batches(stack.dsn, graph, JOBS, batch)))
            over_http.append(asyncio.run(_over_http(stack, graph, JOBS, batch=batch, clients=clients)))
        floor = statistics.median(run.completed for run in direct)
        yield Row(
            f"1,000 jobs over HTTP {method}, completed; floor: direct",
            statistics.median(run.completed for run in over_http),
            "jobs/s",
            floor=floor,
            at_least=floor / 2,
            target="≥ 0.5 x direct",
        )
        yield Row(
            f"1,000 jobs over HTTP {method}, accepted; floor: direct",
            statistics.median(run.accepted for run in over_http),
            "jobs/s",
            floor=statistics.median(run.accepted for run in direct),
        )


async def _publish(stack: Stack, graph: Graph) -> None:
    body = json.dumps({"text": json.dumps(graph.definition)}).encode()
    async with HttpConnection(stack.api, stack.key) as connection:
        await connection.post("/api/v1/workflows", body)


async def _over_http(stack: Stack, graph: Graph, count: int, *, batch: int, clients: int) -> JobRates:
    """Submit small jobs from clients that await every answer."""
    job = {"workflow_id": graph.workflow_id}
    path, document = ("/api/v1/jobs", job) if batch == 1 else ("/api/v1/jobs/batch", {"jobs": [job] * batch})
    body = json.dumps(document).encode()
    async with contextlib.AsyncExitStack() as opened:
        watcher = await opened.enter_async_context(client(stack.dsn))
        connections = [await opened.enter_async_context(HttpConnection(stack.api, stack.key)) for _ in range(clients)]
        for connection in connections:
            await connection.get("/livez")
        remaining = iter(range(count // batch))

        async def submit(connection: HttpConnection) -> None:
            for _ in remaining:
                await connection.post(path, body)

        started = time.perf_counter()
        await asyncio.gather(*map(submit, connections))
        return await until_completed(watcher, graph, count, started)


# ── Lists of jobs ──


@dataclass(frozen=True, slots=True)
class _Table:
    """A server on a table of jobs, and the queries of its filters."""

    connection: HttpConnection
    queries: dict[str, str]


def _lists(stack: Stack) -> Iterator[Row]:
    dsns = {count: stack.create_database(f"jobs_{count}") for count in (FEW, MANY)}
    for count, dsn in dsns.items():
        fill_jobs(dsn, count)
    with contextlib.ExitStack() as servers:
        urls = [
            servers.enter_context(Server(DAGMASTER_DATABASE_URL=dsn, DAGMASTER_ADMIN_KEY=KEY)).url
            for dsn in dsns.values()
        ]
        yield from asyncio.run(_list_rows(urls))


async def _list_rows(urls: list[str]) -> list[Row]:
    rows = []
    async with contextlib.AsyncExitStack() as opened:
        few, many = [await _open_table(await opened.enter_async_context(HttpConnection(url, KEY))) for url in urls]
        for name in FILTERS:
            durations: dict[int, list[float]] = {FEW: [], MANY: []}
            for _ in range(REQUESTS):
                for count, table in ((FEW, few), (MANY, many)):
                    started = time.perf_counter()
                    await table.connection.get(table.queries[name])
                    durations[count].append((time.perf_counter() - started) * 1_000)
            # The first requests plan their queries, and connect.
            floor, p95 = (statistics.quantiles(durations[count][5:], n=20)[-1] for count in (FEW, MANY))
            rows.append(
                Row(
                    f"GET /jobs of 1,000,000, {name}, p95; floor: of 1,000", p95, "ms",
                    floor=floor, at_most=3 * floor, target="≤ 3 x of 1,000",
                )
            )  # fmt: skip
    return rows


async def _open_table(connection: HttpConnection) -> _Table:
    path = "/api/v1/jobs?limit=20"
    page = await connection.get("/api/v1/jobs?limit=500")
    parent = next(job["parent_job_id"] for job in page["items"] if job["parent_job_id"])
    values = {"cursor": page["next_cursor"], "parent": parent}
    return _Table(connection, {name: f"{path}&{query.format(**values)}" for name, query in FILTERS.items()})
