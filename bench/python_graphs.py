"""Graphs that are built in code: 100,000 tasks with 200,000 dependencies, built and stored; a chain with decorators.

The floor is a bare COPY of the same rows into the same tables, indexes included, with one commit. Each
measurement is a process of its own, so that its peak memory is its own.
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
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from bench import process_usage
from bench.chain_tasks import CHAIN, decorated_chain
from bench.clients import HANDLERS, client, timers_of
from bench.dev_stack import NO_LOG_FILES, Stack, folder
from bench.rows import Row
from dagmaster import OrchContext, compile_text, create_job, create_task
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.added_nodes import copies_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.engine.graph import Graph

TASKS = 100_000
ROUNDS = 3
CHAIN_ROUNDS = 21
PAUSE_TIMERS = 300
PAUSE_SECONDS = 0.05
_LONGEST_GAP = """
SELECT max(gap) FROM (SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY seq))::float8 AS gap
                      FROM dag_job_events WHERE type = 'NodeCompleted' AND job_id = $1) AS gaps
"""


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
    yield from _chains()
    yield from _growth()


def _chains() -> Iterator[Row]:
    """Run a chain of decorated functions, and one of a built-in handler in YAML, in alternating rounds."""
    with folder() as place, Stack(place / "data", "--handlers", "bench.chain_tasks") as stack:
        rounds = asyncio.run(_chain_rounds(stack.dsn))
    decorated, written = (statistics.median(seconds) * 1_000 for seconds in zip(*rounds, strict=True))
    yield Row(f"python: a decorated chain of {CHAIN}, submit to completed", decorated, "ms", floor=written)
    yield Row("python: the same, to the chain in YAML", decorated / written, "x", at_most=1.1)


async def _chain_rounds(dsn: str) -> list[tuple[float, float]]:
    nodes: dict[str, Any] = {"n0": {"handler": "echo", "params": {"x": "{{ inputs.x }}"}}}
    for number in range(1, CHAIN):
        before = f"{{{{ nodes.n{number - 1}.output.echoed_params.x }}}}"
        nodes[f"n{number}"] = {"handler": "echo", "params": {"x": before}, "depends_on": [f"n{number - 1}"]}
    text = json.dumps({"workflow_id": "written_chain", "inputs": {"x": {"type": "integer"}}, "nodes": nodes})
    graphs = decorated_chain.compile().graph, compile_text(text, handlers=HANDLERS).graph
    rounds: list[tuple[float, float]] = []
    async with client(dsn) as submitter:
        for number in range(-3, CHAIN_ROUNDS):
            seconds = {}
            # The first of a round may meet a warmer or colder machine: take turns.
            for graph in graphs if number % 2 else graphs[::-1]:
                seconds[graph.workflow_id], _ = await submitter.run(graph, {"x": 1})
            if number >= 0:
                rounds.append((seconds[graphs[0].workflow_id], seconds[graphs[1].workflow_id]))
    return rounds


class _Load(NamedTuple):
    """What a job of many tasks took: seconds, CPU of all processes, and the peak memory of orchestrator and worker."""

    seconds: float
    cpu_seconds: float
    megabytes: float


# As many tasks, and their results as a list: what the task that adds tasks asks for.
_FAN_OUT_COLLECTED = {
    "workflow_id": "fan_out_collected",
    "inputs": {"count": {"type": "integer"}},
    "nodes": {
        "plan": {
            "handler": "make_chunks", "queue": "default", "params": {"count": "{{ inputs.count }}"}, "next": "work"
        },
        "work": {
            "type": "fan_out",
            "source": "{{ nodes.plan.output.chunks }}",
            "task": {"handler": "chunk_processor", "queue": "default", "params": {"chunk": "{{ item }}"}},
            "next": "all",
        },
        "all": {"type": "fan_in", "aggregation": "collect"},
    },
}  # fmt: skip


def _growth() -> Iterator[Row]:
    """Run a task that adds tasks to its job, beside a fan-out of as many, in alternating rounds.

    Both collect the results of their tasks: before, the fan-out only added them up.
    """
    fan_out = compile_text(json.dumps(_FAN_OUT_COLLECTED), handlers=HANDLERS).graph
    text = "{workflow_id: grow, inputs: {count: {type: integer}}, nodes: {g: {handler: bench.grow, queue: default,"
    grow = compile_text(text + " params: {count: '{{ inputs.count }}'}}}}", allow_missing_handlers=True).graph
    with folder() as place, Stack(place / "data", "--handlers", "bench.growing_tasks") as stack:
        for graph in (grow, fan_out):
            asyncio.run(_load(stack, graph, 1_000))
        rounds = [
            [asyncio.run(_load(stack, graph, TASKS)) for graph in (grow, fan_out)] for _ in range(ROUNDS)
        ]
        pauses = [asyncio.run(_pause(stack.dsn, graph)) for graph in (grow, fan_out)]
    added, fanned = (
        _Load(*map(statistics.median, zip(*loads, strict=True))) for loads in zip(*rounds, strict=True)
    )
    yield Row("python: 100,000 tasks added by a task, to completed", added.seconds, "s", floor=fanned.seconds)
    yield Row("python: the same, to a fan-out of 100,000", added.seconds / fanned.seconds, "x", at_most=1.05)
    yield Row("python: the same, CPU of all processes", added.cpu_seconds, "s", floor=fanned.cpu_seconds)
    yield Row(
        "python: the same, CPU to the fan-out's", added.cpu_seconds / fanned.cpu_seconds, "x", at_most=1.05
    )
    yield Row("python: the same, peak memory of services", added.megabytes, "MB", floor=fanned.megabytes)
    yield Row("python: the same, longest pause of another job", pauses[0], "s", floor=pauses[1])


async def _load(stack: Stack, graph: Graph, count: int) -> _Load:
    services = [stack.pids["orchestrator"], stack.pids["worker"]]
    for pid in services:
        process_usage.reset_peak(pid)
    used = stack.fine_cpu()
    async with client(stack.dsn) as submitter:
        seconds, _ = await submitter.run(graph, {"count": count})
    peak = sum(process_usage.memory(pid)["VmHWM"] for pid in services)
    return _Load(seconds, stack.fine_cpu() - used, peak / 1e6)


async def _pause(dsn: str, graph: Graph) -> float:
    """Return the longest delay of the timers of another job while a large one runs."""
    async with client(dsn) as submitter, client(dsn) as other:
        timers = asyncio.create_task(other.run(timers_of(PAUSE_TIMERS, PAUSE_SECONDS)))
        await submitter.run(graph, {"count": TASKS})
        _, job_id = await timers
        longest: float = await submitter.reader.fetchval(_LONGEST_GAP, job_id)
    return longest - PAUSE_SECONDS


def _median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


def _run(mode: str, dsn: str, count: int = TASKS) -> dict[str, float]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DAGMASTER_")}
    env |= {"DAGMASTER_DATABASE_URL": dsn, **NO_LOG_FILES}
    command = [sys.executable, "-m", "bench.python_graphs", mode, str(count)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)  # noqa: S603 - our own command
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def build(count: int) -> list[Any]:
    """Return tasks that each wait for the two before."""
    tasks = [
        create_task("pipeline.step", {"number": number, "text": "x"}, queue="q") for number in range(count)
    ]
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
                await connection.copy_records_to_table(
                    table, schema_name="dagapp", columns=columns, records=records
                )
        return {"seconds": time.perf_counter() - began}
    finally:
        await connection.close()


if __name__ == "__main__":
    work = {"apply": _apply, "copy": _copy}[sys.argv[1]]
    print(json.dumps(asyncio.run(work(int(sys.argv[2])))))
