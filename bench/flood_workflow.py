"""The flood workflow and a fan-out of tiles, on a running stack and in a process pool, in alternation."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import process_usage
from bench.clients import client
from bench.cpu_tiles import burn_in_pool
from bench.dev_stack import ROOT, Stack, folder
from bench.fathom import BANDS
from bench.process_pool import MB, Usage, create_pool, run_in_pool, write_maps
from bench.rows import Row
from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.bootstrap import find_handlers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.fathom import Sizes
    from dagmaster.engine.graph import Graph

FATHOM_MB = 8_000_000
CPU_TILES = str(Path(__file__).with_name("cpu_tiles.py"))
HOUR_SECONDS = 3600


def measure(sizes: Sizes) -> Iterator[Row]:
    """Measure the flood workflow, then the fan-out of tiles."""
    if sizes.rounds:
        with folder() as place:
            yield from _flood_maps(place, sizes)
    if sizes.tasks:
        with folder() as place:
            yield from _fan_out(place, sizes)


# ── The whole workflow ──


def _flood_maps(place: Path, sizes: Sizes) -> Iterator[Row]:
    maps = place / "data-blobs" / "bronze" / "maps"
    _print_progress(
        f"flood workflow: making {sizes.tiles * BANDS} maps of {sizes.pixels:,} x {sizes.pixels:,} pixels"
    )
    stored = write_maps(maps, sizes)
    workflow: list[Usage] = []
    pool: list[Usage] = []
    for number in range(sizes.rounds):
        _print_progress(f"flood workflow, round {number + 1} of {sizes.rounds}")
        pool.append(run_in_pool(maps, place / "pool", sizes))
        shutil.rmtree(place / "pool")
        # A new stack for every round: its processes start cold, as those of the pool do.
        with Stack(place / "data", "--concurrency", str(sizes.processes)) as running:
            workflow.append(_run_workflow(running, sizes))
        times = [f"{usage.seconds:.1f} s, {usage.cpu:.1f} s of CPU" for usage in (workflow[-1], pool[-1])]
        _print_progress(f"workflow {times[0]}; pool {times[1]}")
        _check_stacks(place / "data-blobs", sizes)
        if number < sizes.rounds - 1:
            shutil.rmtree(place / "data-blobs" / "silver")
            shutil.rmtree(place / "data-blobs" / "catalog")
    seconds, floor = (statistics.median(usage.seconds for usage in side) for side in (workflow, pool))
    cpu, cpu_floor = (statistics.median(usage.cpu for usage in side) for side in (workflow, pool))
    workload = f"{sizes.tiles} tiles of {sizes.pixels:,}², {sizes.pixel_mb:,.0f} MB of pixels, {stored:,.0f} MB stored"
    yield Row(
        f"flood workflow, {workload}, {sizes.processes} processes, median of {sizes.rounds}",
        seconds,
        "s",
        floor=floor,
    )
    yield Row("flood workflow, pixels", sizes.pixel_mb / seconds, "MB/s", floor=sizes.pixel_mb / floor)
    yield Row("flood workflow, files as stored", stored / seconds, "MB/s", floor=stored / floor)
    # Per round: the speed of a shared machine changes within ten minutes.
    ratio = statistics.median(one.seconds / other.seconds for one, other in zip(workflow, pool, strict=True))
    yield Row("flood workflow, over the same functions in a process pool", 100 * (ratio - 1), "%", at_most=5)
    yield Row("flood workflow, CPU time of everything", cpu, "s", floor=cpu_floor)
    ratio = statistics.median(one.cpu / other.cpu for one, other in zip(workflow, pool, strict=True))
    yield Row("flood workflow, CPU time over that of the pool", 100 * (ratio - 1), "%", at_most=5)
    peak, pool_peak = (max(usage.peak for usage in side) / MB for side in (workflow, pool))
    yield Row(
        "flood workflow, peak memory of a task's process", peak, "MB", floor=pool_peak,
        at_most=128 * 1.048576 + 400, target="≤ 128 MiB of cache + 400 MB",
    )  # fmt: skip
    yield from _extrapolate(sizes, seconds, stored)


def _extrapolate(sizes: Sizes, seconds: float, stored: float) -> Iterator[Row]:
    """Compute the hours for 8 TB, if every process is as fast as here and storage keeps up; print the arithmetic."""
    for assumption, mb in (("if compressed as these are", stored), ("if uncompressed", sizes.pixel_mb)):
        rate = mb / seconds / sizes.processes
        for machines in sizes.machines:
            workers = machines * sizes.cores
            hours = FATHOM_MB / (rate * workers) / HOUR_SECONDS
            print(
                f"8 TB {assumption}: {FATHOM_MB:,} MB / ({rate:.2f} MB/s a process x {workers:,} processes on"
                f" {machines} machines) = {hours:,.1f} h, reading {rate * workers:,.0f} MB/s"
            )
            yield Row(f"8 TB {assumption}, on {machines} machines of {sizes.cores} cores", hours, "h")


def _run_workflow(running: Stack, sizes: Sizes) -> Usage:
    before = sum(running.cpu().values())
    graph = compile_file(ROOT / "workflows" / "fathom_flood.yaml", handlers=find_handlers()).graph
    inputs = {"prefix": "maps", "cell_degrees": sizes.cell_degrees}
    seconds = asyncio.run(_run(running.dsn, graph, inputs))
    children = process_usage.children(running.pids["worker"])
    peak = max((process_usage.memory(pid).get("VmHWM", 0) for pid in children), default=0)
    return Usage(seconds, sum(running.cpu().values()) - before, peak)


def _check_stacks(blobs: Path, sizes: Sizes) -> None:
    """Check that the run left no tile out."""
    stacks = list((blobs / "silver" / "fathom" / "stacks").rglob("*.tif"))
    assert len(stacks) == sizes.tiles, f"{len(stacks)} stacks of {sizes.tiles} tiles"


# ── A fan-out of tiles that only use time ──


def _fan_out(place: Path, sizes: Sizes) -> Iterator[Row]:
    """Measure tiles that use CPU time, so that dagmaster's own CPU time shows as a longer run.

    On a shared machine, `--sleep` at least shows how long a process is without a tile.
    """
    task = {
        "handler": "burn",
        "params": {"seconds": sizes.task_seconds, "tile": "{{ item }}", "asleep": sizes.sleep},
    }
    sources, handlers = list(range(sizes.tasks)), find_handlers((CPU_TILES,))
    nodes = {"tiles": {"type": "fan_out", "source": sources, "task": task}}
    text = json.dumps({"workflow_id": "tiles", "version": 1, "nodes": nodes})
    graph = compile_text(text, handlers=handlers).graph
    minutes = 2 * sizes.tasks * sizes.task_seconds / sizes.processes / 60
    _print_progress(f"a fan-out of {sizes.tasks:,} tiles, in a pool and in dagmaster: {minutes:.0f} minutes")
    with create_pool(sizes.processes) as pool:
        list(pool.map(burn_in_pool, [(0.1, sizes.sleep)] * 4 * sizes.processes))
        started = time.perf_counter()
        list(pool.map(burn_in_pool, [(sizes.task_seconds, sizes.sleep)] * sizes.tasks))
        floor = time.perf_counter() - started
    with Stack(place / "data", "--concurrency", str(sizes.processes), "--handlers", CPU_TILES) as running:
        warm_up = compile_text(
            text.replace(str(sources), str(sources[: 4 * sizes.processes])), handlers=handlers
        ).graph
        asyncio.run(_run(running.dsn, warm_up))
        before = _cpu_beside_tasks(running)
        seconds = asyncio.run(_run(running.dsn, graph))
        overhead = _cpu_beside_tasks(running) - before
    tile_seconds = sizes.tasks * sizes.task_seconds
    workload = (
        f"{sizes.tasks:,} tiles of {sizes.task_seconds * 1000:.0f} ms {'asleep' if sizes.sleep else 'of CPU'}"
    )
    yield Row(f"fan-out of {workload}, {sizes.processes} processes", seconds, "s", floor=floor)
    yield Row("fan-out of tiles, over a process pool", 100 * (seconds / floor - 1), "%", at_most=5)
    ratio = seconds * sizes.processes / tile_seconds
    yield Row("fan-out of tiles, over the tiles' own time", 100 * (ratio - 1), "%", at_most=5)
    yield Row(
        "a process pool, over the tiles' own time", 100 * (floor * sizes.processes / tile_seconds - 1), "%"
    )
    yield Row(
        "fan-out of tiles, CPU time of all but the tiles",
        100 * overhead / tile_seconds,
        "% of theirs",
        at_most=5,
    )


def _print_progress(text: str) -> None:
    """Print what is running: a part takes minutes."""
    print(f"  … {text}", file=sys.stderr, flush=True)


def _cpu_beside_tasks(running: Stack) -> float:
    tasks = set(process_usage.children(running.pids["worker"]))
    return sum(cpu for pid, cpu in running.cpu().items() if pid not in tasks)


async def _run(dsn: str, graph: Graph, inputs: Mapping[str, Any] | None = None) -> float:
    async with client(dsn) as submitter:
        seconds, _ = await submitter.run(graph, inputs, limit_seconds=HOUR_SECONDS)
        return seconds
