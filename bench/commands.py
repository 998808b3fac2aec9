"""CLI commands as a user starts them: whole processes, alone and on a database."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.clients import chain_of, client, copy_job
from bench.dev_stack import DAGMASTER, ROOT, Stack, environment, folder
from bench.rows import Row, median_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOBS = 20_000
"""How many finished jobs of three nodes the database of the commands has."""

READS = (("jobs", "list"), ("jobs", "show", "last"), ("jobs", "why", "last"), ("fleet",))


def measure() -> Iterator[Row]:
    """Measure whole CLI commands."""
    bare = median_seconds(lambda: _run(sys.executable, "-c", "pass"), repeat=9)
    yield Row("python, to start and stop", bare * 1_000, "ms")
    for code, at_most in (("import dagmaster", 150), ("from dagmaster import Future, task, workflow", None)):
        seconds = median_seconds(lambda code=code: _run(sys.executable, "-c", code), repeat=9)  # type: ignore[misc]
        yield Row(
            f"python -c '{code}', beyond python itself", (seconds - bare) * 1_000, "ms", at_most=at_most
        )
    for option in ("--help", "--version"):
        seconds = median_seconds(lambda option=option: _run(DAGMASTER, option), repeat=9)  # type: ignore[misc]
        yield Row(f"dagmaster {option}", seconds * 1_000, "ms", at_most=150)
    with folder() as place:
        yield from _on_database(place / "data")
    hello = median_seconds(lambda: _run(DAGMASTER, "run", "workflows/hello_world.yaml", "--quiet"), repeat=5)
    yield Row("dagmaster run hello_world", hello, "s", at_most=1)
    seconds_per_task = {}
    for count in (1_000, 10_000, 100_000):
        runs = [_fan_out(count) for _ in range(3)]
        whole = statistics.median(whole for whole, _ in runs)
        inside = statistics.median(inside for _, inside in runs)
        seconds_per_task[count] = inside / count
        yield Row(f"run, fan-out of {count:,} in one process", count / inside, "tasks/s", at_least=5_000)
        if count == 100_000:
            yield Row("run, fan-out of 100,000, the whole command", whole, "s")
    yield Row(
        "run, a task at 100,000 to one at 1,000",
        seconds_per_task[100_000] / seconds_per_task[1_000],
        "x",
        at_most=1.3,
    )


def _on_database(data_dir: Path) -> Iterator[Row]:
    """Measure commands that read a database of many jobs, reached in three ways."""
    option = ("--data-dir", str(data_dir))
    with Stack(data_dir) as stack:
        job_id = asyncio.run(_fill(stack.dsn))
        yield from _reads("an embedded database that runs", *option, at_most=0.5)
        yield from _reads("DAGMASTER_DATABASE_URL", at_most=0.5, DAGMASTER_DATABASE_URL=stack.dsn)
        for name, arguments, seconds in (
            (f"of {JOBS:,} finished jobs", (), 60 * JOBS / 200_000),
            (f"of one job of {JOBS:,}", (job_id,), 1.0),
        ):
            audit = (DAGMASTER, "jobs", "audit", *arguments, *option)
            duration = median_seconds(lambda audit=audit: _run(*audit), repeat=3)  # type: ignore[misc]
            yield Row(f"dagmaster jobs audit {name}", duration, "s", at_most=seconds)
    yield from _reads("an embedded database that has to be started", *option, at_most=1.0)


def _reads(place: str, *option: str, at_most: float, **variables: str) -> Iterator[Row]:
    for words in READS:
        command = (DAGMASTER, *words, *option)
        seconds = median_seconds(lambda command=command: _run(*command, **variables), repeat=7)  # type: ignore[misc]
        yield Row(f"dagmaster {' '.join(words)}, {place}", seconds, "s", at_most=at_most)


async def _fill(dsn: str) -> str:
    """Run some jobs, and copy one of them many times; return its id."""
    async with client(dsn) as submitter:
        for _ in range(3):
            _, job_id = await submitter.run(chain_of(3))
        await copy_job(submitter.reader, job_id, JOBS)
    return str(job_id)


def _fan_out(count: int) -> tuple[float, float]:
    """Return the seconds of the whole command, and of the job in it."""
    started = time.perf_counter()
    output = _run(DAGMASTER, "run", "workflows/fan_out.yaml", "-i", f"count={count}", "--json")
    return time.perf_counter() - started, json.loads(output)["duration_seconds"]


def _run(*command: str, **variables: str) -> str:
    completed = subprocess.run(  # noqa: S603 - our own commands
        command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment() | variables
    )
    return completed.stdout
