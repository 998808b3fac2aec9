"""The HTTP API: beside the direct path in the same run, its start, and at rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from typing import TYPE_CHECKING

from bench import process_usage
from bench.clients import JobRates, chain_of, client, jobs_in_batches, jobs_one_by_one, until_completed
from bench.dev_stack import Stack, folder
from bench.http_connection import HttpConnection
from bench.http_server import Server, get
from bench.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.engine.graph import Graph

JOBS, CLIENTS, BATCH, REPEATS = 1_000, 32, 100, 5


def measure() -> Iterator[Row]:
    """Measure the server that `dagmaster dev` runs, and jobs that are submitted to it."""
    with folder() as place, Stack(place / "http") as stack:
        yield from _start(stack)
        yield from _idle(stack, seconds=15)
        yield from _jobs(stack)


# ── Start and rest ──


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
    yield Row(
        "idle, CPU of the whole dev stack, with the server", whole / elapsed * 100, "% of a core", at_most=1.3
    )
    yield Row(
        "memory of the server at rest, RSS", process_usage.memory(stack.pids["server"])["Rss"] / 1e6, "MB"
    )


def _cpu(pids: list[int]) -> float:
    return sum(map(process_usage.fine_cpu_seconds, pids))


# ── Jobs: over HTTP, and directly into the database ──


def _jobs(stack: Stack) -> Iterator[Row]:
    graph = chain_of(1)
    asyncio.run(_publish(stack, graph))
    # Both paths once, without counting.
    asyncio.run(jobs_in_batches(stack.dsn, graph, 200, BATCH))
    asyncio.run(_over_http(stack, graph, 200, batch=1, clients=CLIENTS))
    for method, batch, clients in (
        ("one by one from 32 clients", 1, CLIENTS),
        ("in batches of 100", BATCH, 1),
    ):
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
        connections = [
            await opened.enter_async_context(HttpConnection(stack.api, stack.key)) for _ in range(clients)
        ]
        for connection in connections:
            await connection.get("/livez")
        remaining = iter(range(count // batch))

        async def submit(connection: HttpConnection) -> None:
            for _ in remaining:
                await connection.post(path, body)

        started = time.perf_counter()
        await asyncio.gather(*map(submit, connections))
        return await until_completed(watcher, graph, count, started)
