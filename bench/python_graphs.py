"""Graphs that are built in code: 100,000 tasks with 200,000 dependencies, built and stored.

The floor is a bare COPY of the same rows into the same tables, indexes included, with one commit. Each measurement is a
process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import asyncpg

from bench.clients import FAN_OUT, client
from bench.dev_stack import Stack, folder
from bench.rows import Row
from dagmaster import OrchContext, compile_text, create_job, create_task
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.added_nodes import copies_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS = 100_000
ROUNDS = 3


def measure() -> Iterator[Row]:
    """Build and store the graph; compare with the floor, in alternating rounds."""
    with folder() as place, EmbeddedPostgres(place / "data") as server:
        schema_version.upgrade(server.dsn)
        _run("apply", server.dsn, 100)
        rounds = [(_run("apply", server.dsn), _run("copy", server.dsn)) for _ in range(ROUNDS)]
    applied, copied = [one for one, _ in rounds], [one for _, one in rounds]
    floor = statistics.median(one["seconds"] for one in copied)
    seconds = statistics.median(one["build"] + one["apply"] for one in applied)
    yield Row("python: 100,000 tasks and 200,000 edges, built", _median(applied, "build"), "s", at_most=1)
    yield Row("python: the same, built and applied", seconds, "s", at_most=5, floor=floor)
    yield Row("python: the same, peak memory", _median(applied, "megabytes"), "MB", at_most=500)
    yield from _growth()


def _growth() -> Iterator[Row]:
    """Run a task that adds tasks to its job, beside a fan-out of as many, in alternating rounds."""
    with folder() as place, Stack(place / "data", "--handlers", "bench.growing_tasks") as stack:
        asyncio.run(_grow_and_fan_out(stack.dsn, 1_000))
        rounds = [asyncio.run(_grow_and_fan_out(stack.dsn, TASKS)) for _ in range(ROUNDS)]
    added = statistics.median(added for added, _ in rounds)
    fanned = statistics.median(fanned for _, fanned in rounds)
    yield Row("python: 100,000 tasks added by a task, to completed", added, "s", floor=fanned)
    yield Row("python: the same, to a fan-out of 100,000", added / fanned, "x", at_most=1.2)


async def _grow_and_fan_out(dsn: str, count: int) -> tuple[float, float]:
    text = "{workflow_id: grow, inputs: {count: {type: integer}}, nodes: {g: {handler: bench.grow, queue: default,"
    graph = compile_text(text + " params: {count: '{{ inputs.count }}'}}}}", allow_missing_handlers=True).graph
    async with client(dsn) as submitter:
        added, _ = await submitter.run(graph, {"count": count})
        fanned, _ = await submitter.run(FAN_OUT, {"count": count})
    return added, fanned


def _median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


def _run(mode: str, dsn: str, count: int = TASKS) -> dict[str, float]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DAGMASTER_")}
    env |= {"DAGMASTER_DATABASE_URL": dsn}
    command = [sys.executable, "-m", "bench.python_graphs", mode, str(count)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)  # noqa: S603 - our own command
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def build(count: int) -> list[Any]:
    """Return tasks that each wait for the two before."""
    tasks = [create_task("pipeline.step", {"number": number, "text": "x"}, queue="q") for number in range(count)]
    for number in range(1, count):
        tasks[number - 1] >> tasks[number]
        if number > 1:
            tasks[number - 2] >> tasks[number]
    return tasks


async def _apply(count: int) -> dict[str, float]:
    async with OrchContext() as context:
        await create_job("warm", create_task("m.f", queue="q"))
        began = time.perf_counter()
        tasks = build(count)
        built = time.perf_counter()
        await context.create_job("large", tasks)
        applied = time.perf_counter()
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"build": built - began, "apply": applied - built, "megabytes": megabytes}


async def _copy(count: int) -> dict[str, float]:
    """Copy the rows of such a graph; they are made before."""
    copies = copies_of(int(time.time()), 1, collect(build(count)).part.to_rows(1))
    connection = await asyncpg.connect(os.environ["DAGMASTER_DATABASE_URL"])
    try:
        began = time.perf_counter()
        async with connection.transaction():
            for table, columns, records in copies:
                await connection.copy_records_to_table(table, schema_name="dagapp", columns=columns, records=records)
        return {"seconds": time.perf_counter() - began}
    finally:
        await connection.close()


if __name__ == "__main__":
    work = {"apply": _apply, "copy": _copy}[sys.argv[1]]
    print(json.dumps(asyncio.run(work(int(sys.argv[2])))))
