"""The engine alone: TaskSucceeded events of fan-out children, and a chain beside 50,000 waiting nodes."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from typing import TYPE_CHECKING

from bench.rows import Row
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.advance import advance
from dagmaster.engine.events import JobStarted, TaskSucceeded, TimerFired, ValuesLoaded
from dagmaster.engine.model import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

FAN_OUT = """
name: fan_out
nodes:
  plan: {handler: echo, queue: q, next: work}
  work:
    type: fan_out
    source: "{{ nodes.plan.output.items }}"
    task: {handler: echo, queue: q, params: {x: "{{ item }}"}}
    next: total
  total: {type: fan_in, aggregation: sum}
"""


def measure() -> Iterator[Row]:
    """Measure the engine."""
    rates: dict[int, list[float]] = {1_000: [], 10_000: [], 100_000: []}
    for _ in range(5):
        for children, measured in rates.items():
            # Small fan-outs are repeated, so that every size is measured over about the same time.
            repeats = max(1, 20_000 // children)
            measured.append(statistics.median(_event_rate(children) for _ in range(repeats)))
    median = {children: statistics.median(measured) for children, measured in rates.items()}
    yield Row("engine, events at 10,000 children", median[10_000], "/s", at_least=200_000)
    yield Row("engine, events at 100,000 children", median[100_000], "/s", at_least=200_000)
    ratio = statistics.median(a / b for a, b in zip(rates[1_000], rates[100_000], strict=True))
    yield Row("engine, cost of a child at 100,000 to one at 1,000", ratio, "x", at_most=1.3)
    alone, loaded = _chain_rate(0), _chain_rate(50_000)
    yield Row(
        "engine, a chain beside 50,000 waiting nodes, relative to alone", alone / loaded, "x", at_most=1.3
    )
    yield Row("engine, memory of a live node", _bytes_per_node(100_000), "B", at_most=1024)


def _job(children: int) -> Job:
    job = Job("1", compile_text(FAN_OUT).graph)
    advance(job, JobStarted(), 0.0)
    advance(job, TaskSucceeded("plan", 1), 0.0)
    scope = {"nodes": {"plan": {"output": {"items": list(range(children))}}}}
    advance(job, ValuesLoaded("work", scope), 0.0)
    while job.nodes["work"].wake_at is not None:
        advance(job, TimerFired("work"), 0.0)
    job.drain_changed()
    return job


def _event_rate(children: int) -> float:
    job = _job(children)
    events = [TaskSucceeded(f"work__{index}", 1) for index in range(children)]
    started = time.perf_counter()
    for event in events:
        advance(job, event, 0.0)
    return children / (time.perf_counter() - started)


def _chain_rate(waiting: int) -> float:
    length = 2_000
    lines = ["name: chain", "nodes:", "  gate: {handler: echo, queue: q}"]
    lines += [f"  w{n}: {{handler: echo, queue: q, depends_on: gate}}" for n in range(waiting)]
    lines += ["  c0: {handler: echo, queue: q}"]
    lines += [f"  c{n}: {{handler: echo, queue: q, depends_on: c{n - 1}}}" for n in range(1, length)]
    graph = compile_text("\n".join(lines)).graph
    rates = []
    for _ in range(5):
        job = Job("1", graph)
        advance(job, JobStarted(), 0.0)
        started = time.perf_counter()
        for n in range(length):
            advance(job, TaskSucceeded(f"c{n}", 1), 0.0)
        rates.append(length / (time.perf_counter() - started))
    return statistics.median(rates)


def _bytes_per_node(children: int) -> float:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    job = _job(children)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(job.nodes)
