"""The flood workflow and a fan-out of tiles, on a running stack and in a pool, by turns."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import processes
from bench.burning import burn_one
from bench.clients import client
from bench.fathom import BANDS
from bench.pooled import MB, Taken, a_pool, in_a_pool, make
from bench.rows import Row
from bench.stack import ROOT, Stack, folder
from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.bootstrap import find_handlers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.fathom import Sizes
    from dagmaster.engine.graph import Graph

ALL_OF_FATHOM_MB = 8_000_000
BURNING = str(Path(__file__).with_name("burning.py"))
HOUR = 3600


def rehearse(sizes: Sizes) -> Iterator[Row]:
    """All of it."""
    if sizes.rounds:
        with folder() as place:
            yield from _maps(place, sizes)
    if sizes.tasks:
        with folder() as place:
            yield from _fan_out(place, sizes)


# ── The whole workflow ──


def _maps(place: Path, sizes: Sizes) -> Iterator[Row]:
    maps = place / "data-blobs" / "bronze" / "maps"
    _tell(f"flood workflow: making {sizes.tiles * BANDS} maps of {sizes.pixels:,} x {sizes.pixels:,} pixels")
    stored = make(maps, sizes)
    ours: list[Taken] = []
    plain: list[Taken] = []
    for number in range(sizes.rounds):
        _tell(f"flood workflow, round {number + 1} of {sizes.rounds}")
        plain.append(in_a_pool(maps, place / "plain", sizes))
        shutil.rmtree(place / "plain")
        # A new stack each time: its processes start anew, as those of the pool.
        with Stack(place / "data", "--concurrency", str(sizes.processes)) as running:
            ours.append(_in_the_stack(running, sizes))
        one, other = ours[-1], plain[-1]
        _tell(f"{one.seconds:.1f} s, {one.cpu:.1f} of CPU; the pool {other.seconds:.1f} s, {other.cpu:.1f} of CPU")
        _agree(place / "data-blobs", sizes)
        if number < sizes.rounds - 1:
            shutil.rmtree(place / "data-blobs" / "silver")
            shutil.rmtree(place / "data-blobs" / "catalog")
    taken, by_hand = (statistics.median(one.seconds for one in each) for each in (ours, plain))
    cpu, cpu_by_hand = (statistics.median(one.cpu for one in each) for each in (ours, plain))
    what = f"{sizes.tiles} tiles of {sizes.pixels:,}², {sizes.pixel_mb:,.0f} MB of pixels, {stored:,.0f} MB stored"
    yield Row(
        f"flood workflow, {what}, {sizes.processes} processes, median of {sizes.rounds}", taken, "s", floor=by_hand
    )
    yield Row("flood workflow, pixels", sizes.pixel_mb / taken, "MB/s", floor=sizes.pixel_mb / by_hand)
    yield Row("flood workflow, files as stored", stored / taken, "MB/s", floor=stored / by_hand)
    # Round by round: a machine is not the same after ten minutes.
    over = statistics.median(one.seconds / other.seconds for one, other in zip(ours, plain, strict=True))
    yield Row("flood workflow, over the same functions in a process pool", 100 * (over - 1), "%", at_most=5)
    yield Row("flood workflow, CPU time of everything", cpu, "s", floor=cpu_by_hand)
    over = statistics.median(one.cpu / other.cpu for one, other in zip(ours, plain, strict=True))
    yield Row("flood workflow, CPU time over that of the pool", 100 * (over - 1), "%", at_most=5)
    peak, plain_peak = (max(one.peak for one in each) / MB for each in (ours, plain))
    yield Row(
        "flood workflow, most memory of a task's process", peak, "MB", floor=plain_peak,
        at_most=128 * 1.048576 + 400, wanted="≤ 128 MiB of cache + 400 MB",
    )  # fmt: skip
    yield from _all_of_it(sizes, taken, stored)


def _all_of_it(sizes: Sizes, taken: float, stored: float) -> Iterator[Row]:
    """Arithmetic, shown: as if all machines did what one process did here, and storage kept up."""
    for what, mb in (("if they are as well packed as these", stored), ("if they are plain pixels", sizes.pixel_mb)):
        rate = mb / taken / sizes.processes
        for machines in sizes.machines:
            workers = machines * sizes.cores
            hours = ALL_OF_FATHOM_MB / (rate * workers) / HOUR
            print(
                f"8 TB {what}: {ALL_OF_FATHOM_MB:,} MB / ({rate:.2f} MB/s a process x {workers:,} processes on"
                f" {machines} machines) = {hours:,.1f} h, reading {rate * workers:,.0f} MB/s"
            )
            yield Row(f"8 TB {what}, on {machines} machines of {sizes.cores} cores", hours, "h")


def _in_the_stack(running: Stack, sizes: Sizes) -> Taken:
    before = sum(running.cpu().values())
    graph = compile_file(ROOT / "workflows" / "fathom_flood.yaml", handlers=find_handlers()).graph
    inputs = {"prefix": "maps", "cell_degrees": sizes.cell_degrees}
    seconds = asyncio.run(_run(running.dsn, graph, inputs))
    children = processes.children(running.pids["worker"])
    peak = max((processes.memory(pid).get("VmHWM", 0) for pid in children), default=0)
    return Taken(seconds, sum(running.cpu().values()) - before, peak)


def _agree(blobs: Path, sizes: Sizes) -> None:
    """A run that was quick because it left tiles out is no figure."""
    stacks = list((blobs / "silver" / "fathom" / "stacks").rglob("*.tif"))
    assert len(stacks) == sizes.tiles, f"{len(stacks)} stacks of {sizes.tiles} tiles"


# ── A fan-out of tiles that only take time ──


def _fan_out(place: Path, sizes: Sizes) -> Iterator[Row]:
    """CPU time is burnt: what dagmaster itself computes has to come from somewhere.

    On a machine that others use, `--sleep` tells at least how long a process is without a tile.
    """
    task = {"handler": "burn", "params": {"seconds": sizes.task_seconds, "tile": "{{ item }}", "asleep": sizes.sleep}}
    sources, handlers = list(range(sizes.tasks)), find_handlers((BURNING,))
    nodes = {"tiles": {"type": "fan_out", "source": sources, "task": task}}
    text = json.dumps({"workflow_id": "tiles", "version": 1, "nodes": nodes})
    graph = compile_text(text, handlers=handlers).graph
    minutes = 2 * sizes.tasks * sizes.task_seconds / sizes.processes / 60
    _tell(f"a fan-out of {sizes.tasks:,} tiles, in a pool and in dagmaster: {minutes:.0f} minutes")
    with a_pool(sizes.processes) as pool:
        list(pool.map(burn_one, [(0.1, sizes.sleep)] * 4 * sizes.processes))
        begun = time.perf_counter()
        list(pool.map(burn_one, [(sizes.task_seconds, sizes.sleep)] * sizes.tasks))
        plain = time.perf_counter() - begun
    with Stack(place / "data", "--concurrency", str(sizes.processes), "--handlers", BURNING) as running:
        warm = compile_text(text.replace(str(sources), str(sources[: 4 * sizes.processes])), handlers=handlers).graph
        asyncio.run(_run(running.dsn, warm))
        before = _cpu_beside_tasks(running)
        taken = asyncio.run(_run(running.dsn, graph))
        beside = _cpu_beside_tasks(running) - before
    own = sizes.tasks * sizes.task_seconds
    what = f"{sizes.tasks:,} tiles of {sizes.task_seconds * 1000:.0f} ms {'asleep' if sizes.sleep else 'of CPU'}"
    yield Row(f"fan-out of {what}, {sizes.processes} processes", taken, "s", floor=plain)
    yield Row("fan-out of tiles, over a process pool", 100 * (taken / plain - 1), "%", at_most=5)
    yield Row("fan-out of tiles, over the tiles' own time", 100 * (taken * sizes.processes / own - 1), "%", at_most=5)
    yield Row("a process pool, over the tiles' own time", 100 * (plain * sizes.processes / own - 1), "%")
    yield Row("fan-out of tiles, CPU time of all but the tiles", 100 * beside / own, "% of theirs", at_most=5)


def _tell(what: str) -> None:
    """Somebody waits, and for minutes."""
    print(f"  … {what}", file=sys.stderr, flush=True)


def _cpu_beside_tasks(running: Stack) -> float:
    tasks = set(processes.children(running.pids["worker"]))
    return sum(used for pid, used in running.cpu().items() if pid not in tasks)


async def _run(dsn: str, graph: Graph, inputs: Mapping[str, Any] | None = None) -> float:
    async with client(dsn) as one:
        taken, _ = await one.run(graph, inputs, limit_seconds=HOUR)
        return taken
