"""One round of a comparison, run by the Python of the checkout that is measured: JSON lines on standard output.

`bench.compare` starts this file by its path, with the measured checkout as the working directory, so that `bench` and
`dagmaster` are those of that checkout.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMON_PARTS = ("http", "python")
"""Parts that `bench.service_rounds` measures, with the same code in both checkouts."""

# As in `bench.runtime`, which is another one where the measured checkout is imported.
CHAINS, WARM_UP_CHAINS, SETTLE_SECONDS = 40, 15, 8.0


def main(parts: list[str]) -> None:
    """Measure the parts; print a row as soon as it is known."""
    # Not the folder of this file, which is the checkout that compares.
    sys.path[0] = str(Path.cwd())
    for row in _measure(parts):
        print(json.dumps([row.workload, row.value, row.unit]), flush=True)
    # A client's thread that still waits must not hold up the next round.
    os._exit(0)


def _measure(parts: list[str]) -> Iterator[Any]:
    runtime: Any = importlib.import_module("bench.runtime")
    stack_parts = [part for part in parts if part not in COMMON_PARTS]
    if stack_parts:
        measure_round = getattr(runtime, "measure_round", None)
        yield from (
            measure_round(stack_parts) if measure_round else _measure_first_release(runtime, stack_parts)
        )
    if len(stack_parts) < len(parts):
        # The file of the checkout that compares: the measured one may not have it.
        path = Path(__file__).with_name("service_rounds.py")
        spec = importlib.util.spec_from_file_location("service_rounds", path)
        assert spec is not None
        assert spec.loader is not None
        rounds: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(rounds)
        for part in COMMON_PARTS:
            if part in parts:
                yield from rounds.ROUND_PARTS[part]()


def _measure_first_release(runtime: Any, parts: list[str]) -> Iterator[Any]:
    """Measure a checkout from before `measure_round` existed (November 2026) by the functions that it has."""
    stack_module: Any = importlib.import_module("bench.stack")
    rows: Any = importlib.import_module("bench.rows")
    with stack_module.folder() as place, stack_module.Stack(place / "data") as stack:
        if "memory" in parts:
            yield from runtime._at_rest(stack)
        if "idle" in parts:
            yield from _idle(runtime, stack)
        if "chain" in parts:
            runtime.CHAINS = CHAINS
            chain = asyncio.run(runtime._chain(stack.dsn, stack.floor_dsn(), warm_up=WARM_UP_CHAINS))
            name = f"chain of {runtime.CHAIN}, submit to completed, median of {runtime.CHAINS}"
            yield rows.Row(name, chain.seconds * 1_000, "ms")
            yield rows.Row("chain, from dispatch to dispatch, p50", chain.hop, "ms")
            yield rows.Row("chain, from dispatch to dispatch, p90", chain.hop_90, "ms")
        if "memory" in parts:
            asyncio.run(runtime._wait(stack.dsn, 5))
            before = runtime.processes.memory(stack.pids["orchestrator"])["Rss"]
            asyncio.run(runtime._wait(stack.dsn, 60))
            growth = runtime.processes.memory(stack.pids["orchestrator"])["Rss"] - before
            yield rows.Row("memory of a live node, of 60,000, by RSS", growth / 60_000, "B")
        if "fan_outs" in parts:
            asyncio.run(runtime._fan_out(stack.dsn, 1_000))
            runtime.floor.fan_out = lambda _dsn, count: runtime.floor.Measured(count, 1.0, 0, {})
            for count, repeats in ((1_000, 5), (10_000, 2), (100_000, 1)):
                runs = runtime._FanOuts(stack, "", count, times=repeats)
                yield rows.Row(f"fan-out of {count:,} with a join", runs.rate, "tasks/s")
                if count > 1_000:
                    micros = sum(runs._cpu.values()) * 1_000_000 / count
                    yield rows.Row(f"fan-out of {count:,}, CPU of a task: all", micros, "µs")
        if "jobs" in parts:
            yield from runtime._jobs(stack)


def _idle(runtime: Any, stack: Any) -> Iterator[Any]:
    """Measure an idle stack after its start, as `measure_round` does."""
    time.sleep(SETTLE_SECONDS)
    for row in runtime._idle(stack):
        yield row
        if "whole dev stack" in row.workload:
            # It had no HTTP server.
            yield dataclasses.replace(row, workload="idle, CPU of it without the HTTP server")


if __name__ == "__main__":
    main(sys.argv[1:])
