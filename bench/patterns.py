"""Hostile patterns and inputs: the longest match, the longest check, and what a check process costs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import re2

from bench.rows import Row, median_seconds
from dagmaster.application.commands.validation import check_text
from dagmaster.authoring.check_budget import MAX_STEPS, QUICK_STEPS, CheckBudget, CheckStopped
from dagmaster.authoring.inputs import accept_values
from dagmaster.errors import InputsInvalid
from dagmaster.host.check_processes import CheckProcesses
from dagmaster.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

# The shapes of published attacks, and the largest programs that are accepted.
PATTERNS = [
    "^(a+)+$", "^(a|aa)+$", r"^(\w+\s?)*$", "^(?:a?){999}a{999}$", "(.*.*.*.*.*)*=", r"(?i)^(?:\u017f+s)+c",
    "(?i)^(?:\u00e5|\u00c5|\u212b)*x", "(?:aa|a){500}b", r"^(?:\w.{90}){5}x", "((((a{1,10}){1,10}){1,10}))b",
    r"(\p{L}|\p{Ll}|\w)+!", "(?:a?){1000}", r"(.{1,20}){1,20}!", "(?i)(?:[a-z\u00e9]?){250}x",
]  # fmt: skip
PUMPS = ["a", "s", "aA", "ab ", "\u00e9", "\u017f", "\U0001f600", "a\u00e9", ".", "x"]
WORKFLOW = (
    "workflow_id: w\nversion: 1\ninputs: {count: {type: integer}}\nnodes: {a: {handler: h, queue: q}}\n"
)
HOSTILE: list[tuple[str, dict[str, Any], Any]] = [
    ("empty schemas", {"items": {"allOf": [{} for _ in range(3_000)]}}, [1] * 30_000),
    ("alternatives", {"items": {"anyOf": [{"const": n} for n in range(3_000)]}}, [-1] * 30_000),
    ("patterns", {"items": {"pattern": "^(?:a?){999}a{999}$"}}, ["a" * 4_000] * 240),
    ("unique objects", {"constraints": {"uniqueItems": True}}, [{"a": n} for n in range(80_000)]),
]


def measure() -> Iterator[Row]:
    """Measure matches and checks."""
    slowest = max((_match_seconds(source, pump), source) for source in PATTERNS for pump in PUMPS)
    yield Row(f"longest match of {len(PATTERNS)} hostile patterns", slowest[0] * 1_000, "ms", at_most=50)
    yield Row(
        "longest compilation of a hostile pattern",
        max(map(_compile_seconds, PATTERNS)) * 1_000,
        "ms",
        at_most=50,
    )
    for name, schema, value in HOSTILE:
        for limit, unit, factor in ((QUICK_STEPS, "ms", 1_000), (MAX_STEPS, "s", 1)):
            seconds = _check_seconds({"type": "array", **schema}, value, limit)
            yield Row(
                f"check of {name}, {limit:,} steps",
                seconds * factor,
                unit,
                at_most=50 if unit == "ms" else 20,
            )
    yield from asyncio.run(_measure_processes())


async def _measure_processes() -> list[Row]:
    processes = CheckProcesses()
    arguments: Any = {"text": WORKFLOW, "name": "w", "documents": [], "default_queue": None}

    async def call() -> float:
        started = time.perf_counter()
        await processes.run(check_text, **arguments, allow_missing_handlers=True)
        return time.perf_counter() - started

    try:
        first = await call()
        later = sorted([await call() for _ in range(200)])[100]
    finally:
        processes.close()
    here = median_seconds(lambda: check_text(**arguments, allow_missing_handlers=True), repeat=200)
    return [
        Row("validate in a process, with its start", first * 1_000, "ms", at_most=2_000),
        Row("validate in a process", later * 1_000, "ms", at_most=20),
        Row("… the same in this process", here * 1_000, "ms", at_most=20),
    ]


# CPU time: nothing here waits.


def _match_seconds(source: str, pump: str) -> float:
    pattern = compile_pattern(source)
    text = pump * ((pattern.longest_text - 1) // len(pump.encode())) + "!"
    started = time.process_time()
    pattern.search(text)
    return time.process_time() - started


def _compile_seconds(source: str) -> float:
    compile_pattern.cache_clear()
    re2.purge()
    started = time.process_time()
    compile_pattern(source)
    return time.process_time() - started


def _check_seconds(definition: dict[str, Any], value: Any, limit: int) -> float:
    started = time.process_time()
    with contextlib.suppress(CheckStopped, InputsInvalid):
        accept_values({"x": definition}, {"x": value}, CheckBudget(limit))
    return time.process_time() - started
