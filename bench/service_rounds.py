"""Parts of a round of `bench.compare` that are measured by the same code in both checkouts.

`bench.compare_round` loads this file by its path: an older checkout may not have it. It uses only names of `bench` and
`dagmaster` that both have.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from bench import dev_stack
from bench.chain_tasks import decorated_chain
from bench.clients import FAN_OUT, chain_of, client, until_completed
from bench.dev_stack import Stack, folder
from bench.http_connection import HttpConnection
from bench.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS, CLIENTS, BATCH, REPEATS = 1_000, 32, 100, 3
# An older checkout has no such setting, and no files.
_NO_LOG_FILES: Final[dict[str, str]] = getattr(dev_stack, "NO_LOG_FILES", {})
A_PORT: Final = "--port=0"
"""Another `dagmaster dev` of this machine may take the default port."""
REQUESTS: Final = 60
TASKS: Final = 20_000
CHAINS: Final = 21
READS: Final = {
    "100 jobs": "/api/v1/jobs?limit=100",
    "a job with 1,000 children": "/api/v1/jobs/{job}",
    "500 nodes": "/api/v1/jobs/{job}/nodes?limit=500",
    "the progress of a job": "/api/v1/jobs/{job}/progress",
    "the fleet": "/api/v1/fleet",
}
_APPLY: Final = """
import asyncio, json, time
from dagmaster import OrchContext, create_job, create_task

def build(count):
    tasks = [create_task("pipeline.step", {"number": number, "text": "x"}, queue="q") for number in range(count)]
    for number in range(1, count):
        tasks[number - 1] >> tasks[number]
        if number > 1:
            tasks[number - 2] >> tasks[number]
    return tasks

async def apply(count):
    async with OrchContext() as context:
        await create_job("warm", create_task("m.f", queue="q"))
        began = time.perf_counter()
        tasks = build(count)
        built = time.perf_counter()
        await context.create_job("large", tasks)
        return built - began, time.perf_counter() - built

print(json.dumps(asyncio.run(apply(%d))))
"""


def measure_http() -> Iterator[Row]:
    """Measure jobs that are submitted over HTTP, and the most frequent reads."""
    with folder() as place, Stack(place / "http", A_PORT) as stack:
        graph = chain_of(1)
        body = json.dumps({"text": json.dumps(graph.definition)}).encode()
        asyncio.run(_post(stack, "/api/v1/workflows", body))
        asyncio.run(_submit(stack, 200, batch=1))
        for method, batch in (("one by one from 32 clients", 1), ("in batches of 100", BATCH)):
            rates = [asyncio.run(_submit(stack, JOBS, batch=batch)) for _ in range(REPEATS)]
            yield Row(f"jobs over HTTP {method}", statistics.median(rates), "jobs/s")
        yield from asyncio.run(_reads(stack))


def measure_python() -> Iterator[Row]:
    """Measure a graph of tasks that is built and stored by Python code, and a chain of decorated functions."""
    with folder() as place, Stack(place / "data", A_PORT, "--handlers", "bench.chain_tasks") as stack:
        runs = [_apply(stack.dsn) for _ in range(REPEATS)]
        for name, seconds in zip(
            ("built", "applied"), map(statistics.median, zip(*runs, strict=True)), strict=True
        ):
            yield Row(f"python: {TASKS:,} tasks and {2 * TASKS:,} edges, {name}", seconds * 1_000, "ms")
        chain_ms = asyncio.run(_decorated_chain(stack.dsn)) * 1_000
        yield Row("python: a decorated chain of 40, submit to completed", chain_ms, "ms")


ROUND_PARTS: Final = {"http": measure_http, "python": measure_python}


async def _post(stack: Stack, path: str, body: bytes) -> None:
    async with HttpConnection(stack.api, stack.key) as connection:
        await connection.post(path, body)


async def _submit(stack: Stack, count: int, *, batch: int) -> float:
    """Submit small jobs from clients that await every answer; return how many a second are completed."""
    graph = chain_of(1)
    job = {"workflow_id": graph.workflow_id}
    path, document = ("/api/v1/jobs", job) if batch == 1 else ("/api/v1/jobs/batch", {"jobs": [job] * batch})
    body = json.dumps(document).encode()
    async with contextlib.AsyncExitStack() as opened:
        watcher = await opened.enter_async_context(client(stack.dsn))
        connections = [
            await opened.enter_async_context(HttpConnection(stack.api, stack.key))
            for _ in range(CLIENTS if batch == 1 else 1)
        ]
        for connection in connections:
            await connection.get("/livez")
        remaining = iter(range(count // batch))

        async def submit(connection: HttpConnection) -> None:
            for _ in remaining:
                await connection.post(path, body)

        started = time.perf_counter()
        await asyncio.gather(*map(submit, connections))
        return (await until_completed(watcher, graph, count, started)).completed


async def _reads(stack: Stack) -> list[Row]:
    async with client(stack.dsn) as submitter:
        _, job_id = await submitter.run(FAN_OUT, {"count": 1_000})
    rows = []
    async with HttpConnection(stack.api, stack.key) as connection:
        for name, path in READS.items():
            durations = []
            for _ in range(REQUESTS):
                started = time.perf_counter()
                await connection.get(path.format(job=job_id))
                durations.append((time.perf_counter() - started) * 1_000)
            # The first requests plan their queries.
            rows.append(Row(f"GET {name}, median", statistics.median(durations[5:]), "ms"))
    return rows


def _apply(dsn: str) -> tuple[float, float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DAGMASTER_")}
    command = [sys.executable, "-c", _APPLY % TASKS]
    done = subprocess.run(  # noqa: S603 - our own command
        command,
        env=environment | {"DAGMASTER_DATABASE_URL": dsn, **_NO_LOG_FILES},
        check=True,
        capture_output=True,
        text=True,
    )
    built, applied = json.loads(done.stdout)
    return built, applied


async def _decorated_chain(dsn: str) -> float:
    graph: Any = decorated_chain.compile().graph
    async with client(dsn) as submitter:
        runs = [(await submitter.run(graph, {"x": 1}))[0] for _ in range(CHAINS + 3)]
    # The first ones load code.
    return statistics.median(runs[3:])
