"""CLI commands as a user starts them: whole processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.rows import Row, median_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

DAGMASTER = str(Path(sys.executable).with_name("dagmaster"))


def measure() -> Iterator[Row]:
    """Measure whole CLI commands."""
    bare = median_seconds(lambda: _run(sys.executable, "-c", "pass"), repeat=9)
    yield Row("python, to start and stop", bare * 1_000, "ms")
    yield Row(
        "dagmaster --help", median_seconds(lambda: _run(DAGMASTER, "--help"), repeat=9) * 1_000, "ms", at_most=150
    )
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
        "run, a task at 100,000 to one at 1,000", seconds_per_task[100_000] / seconds_per_task[1_000], "x", at_most=1.3
    )


def _fan_out(count: int) -> tuple[float, float]:
    """Return the seconds of the whole command, and of the job in it."""
    started = time.perf_counter()
    output = _run(DAGMASTER, "run", "workflows/fan_out.yaml", "-i", f"count={count}", "--json")
    return time.perf_counter() - started, json.loads(output)["duration_seconds"]


def _run(*command: str) -> str:
    completed = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own commands
    return completed.stdout
