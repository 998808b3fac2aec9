"""FATHOM rehearsed: synthetic flood maps through the whole workflow, and through the same functions in a plain pool.

Both have as many processes, one GDAL thread each, and begin without any: their imports are in the figure. What the
workflow does beyond the pool (checksums, names by fingerprint, conditional publishing, checkpoints, a database) is its
overhead. `python -m bench.fathom --help` tells the sizes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import processes
from bench.burning import burn_one
from bench.clients import client
from bench.rows import Row
from bench.stack import ROOT, Stack, folder
from dagmaster.adapters.parquet_catalog import ParquetCatalog
from dagmaster.authoring.compiler import compile_file, compile_text
from dagmaster.bootstrap import find_handlers
from dagmaster.handlers.fathom import merging
from dagmaster.handlers.fathom.inventories import find_cells
from dagmaster.handlers.fathom.stacking import stack
from dagmaster.handlers.fathom.synthetic import Grid, make_tile
from dagmaster.handlers.fathom.values import RETURN_PERIODS, band_name
from dagmaster.handlers.gdal import gdal
from dagmaster.handlers.raster.cogs import CogOptions, check_cog
from dagmaster.handlers.stac.items import Made, Told, raster_collection, raster_item
from dagmaster.ports.services import Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.engine.graph import Graph

MB = 1_000_000
ALL_OF_FATHOM_MB = 8_000_000
BURNING = str(Path(__file__).with_name("burning.py"))
HOUR = 3600


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is made and run. 1,800 pixels are a quarter of a real tile."""

    columns: int = 4
    rows: int = 3
    pixels: int = 1800
    cell_degrees: int = 2
    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    rounds: int = 3
    tasks: int = 2_000
    task_seconds: float = 0.2
    sleep: bool = False
    cores: int = 16
    machines: tuple[int, ...] = (1, 10, 50)

    @property
    def tiles(self) -> int:
        """How many."""
        return self.columns * self.rows

    @property
    def pixel_mb(self) -> float:
        """Of all pixels, two bytes each."""
        return self.tiles * self.pixels**2 * len(RETURN_PERIODS) * 2 / MB


def measure(sizes: Sizes | None = None) -> Iterator[Row]:
    """Measure the flood workflow and a fan-out of tiles."""
    sizes = sizes or Sizes()
    if sizes.rounds:
        with folder() as place:
            yield from _maps(place, sizes)
    if sizes.tasks:
        with folder() as place:
            yield from _fan_out(place, sizes)


# ── The whole workflow ──


def _maps(place: Path, sizes: Sizes) -> Iterator[Row]:
    maps = place / "data-blobs" / "bronze" / "maps"
    stored = _make(maps, sizes)
    ours: list[_Taken] = []
    plain: list[_Taken] = []
    for number in range(sizes.rounds):
        plain.append(_in_a_pool(maps, place / "plain", sizes))
        shutil.rmtree(place / "plain")
        # A new stack each time: its processes start anew, as those of the pool.
        with Stack(place / "data", "--concurrency", str(sizes.processes)) as running:
            ours.append(_in_the_stack(running, sizes))
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
    yield Row("flood workflow, over the same functions in a process pool", 100 * (taken / by_hand - 1), "%", at_most=5)
    yield Row("flood workflow, CPU time of everything", cpu, "s", floor=cpu_by_hand)
    yield Row("flood workflow, CPU time over that of the pool", 100 * (cpu / cpu_by_hand - 1), "%", at_most=5)
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


@dataclass(frozen=True, slots=True)
class _Taken:
    """By the clock, by CPU time of all processes together, and the most memory of one."""

    seconds: float
    cpu: float
    peak: int


def _in_the_stack(running: Stack, sizes: Sizes) -> _Taken:
    before = sum(running.cpu().values())
    graph = compile_file(ROOT / "workflows" / "fathom_flood.yaml", handlers=find_handlers()).graph
    inputs = {"prefix": "maps", "cell_degrees": sizes.cell_degrees}
    seconds = asyncio.run(_run(running.dsn, graph, inputs))
    children = processes.children(running.pids["worker"])
    peak = max((processes.memory(pid).get("VmHWM", 0) for pid in children), default=0)
    return _Taken(seconds, sum(running.cpu().values()) - before, peak)


def _agree(blobs: Path, sizes: Sizes) -> None:
    """A run that was quick because it left tiles out is no figure."""
    stacks = list((blobs / "silver" / "fathom" / "stacks").rglob("*.tif"))
    assert len(stacks) == sizes.tiles, f"{len(stacks)} stacks of {sizes.tiles} tiles"


# ── The same functions in a plain pool ──


def _pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _make(maps: Path, sizes: Sizes) -> float:
    """Write the synthetic maps; how many megabytes they are as stored."""
    tiles = _grid(sizes).tiles
    with _pool(sizes.processes) as pool:
        list(pool.map(_make_one, [(maps, sizes, tile) for tile in tiles]))
    return sum(path.stat().st_size for path in maps.rglob("*.tif")) / MB


def _make_one(given: tuple[Path, Sizes, str]) -> None:
    maps, sizes, tile = given
    make_tile(maps, _grid(sizes), tile)


def _grid(sizes: Sizes) -> Grid:
    return Grid(columns=sizes.columns, rows=sizes.rows, pixels=sizes.pixels, west=8, south=48)


def _in_a_pool(maps: Path, to: Path, sizes: Sizes) -> _Taken:
    to.mkdir()
    grid = _grid(sizes)
    before = _cpu_of_children()
    begun = time.perf_counter()
    with _pool(sizes.processes) as pool:
        sources = [
            {band_name(period): maps / grid.name(tile, period) for period in RETURN_PERIODS} for tile in grid.tiles
        ]
        peaks = list(pool.map(_stack_one, zip(grid.tiles, sources, [to] * sizes.tiles, strict=True)))
        stacks = [{"tile": tile, "group": "all", "href": str(to / f"{tile}.tif")} for tile in grid.tiles]
        cells = find_cells(stacks, (), sizes.cell_degrees)
        peaks += pool.map(_merge_one, [(cell.cell, cell.stacks, to) for cell in cells])
        pool.submit(_register, [to / f"{cell.cell}.tif" for cell in cells], to / "catalog").result()
    return _Taken(time.perf_counter() - begun, _cpu_of_children() - before, max(peaks))


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _stack_one(given: tuple[str, dict[str, Path], Path]) -> int:
    tile, sources, to = given
    share = Share()
    made = to / f"{tile}.tif"
    with gdal(share):
        stack(
            sources, made, tile=tile, monotone="report", options=CogOptions(resampling="nearest"), share=share, tags={},
            watch=lambda *_: None,
        )  # fmt: skip
        check_cog(made)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _merge_one(given: tuple[str, dict[str, str], Path]) -> int:
    cell, stacks, to = given
    share = Share()
    made = to / f"{cell}.tif"
    with gdal(share):
        canvas = merging.lay_out({tile: Path(path) for tile, path in stacks.items()}, share)
        parts = [to / f"{cell}-{band}.part.tif" for band in range(1, len(canvas.bands) + 1)]
        for band, part in enumerate(parts, 1):
            merging.merge_band(canvas, band, part, share, lambda *_: None)
        merging.put_together(canvas, parts, made, options=CogOptions(resampling="nearest"), share=share, tags={})
        check_cog(made)
        for part in parts:
            part.unlink()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _register(paths: list[Path], place: Path) -> None:
    catalog, share = ParquetCatalog(place), Share()
    catalog.ensure_collection(raster_collection("fathom-flood"))
    with gdal(share):
        items = [
            raster_item(
                path,
                share,
                Told(
                    item_id=path.stem, href=str(path), sha256="0" * 64, size=path.stat().st_size,
                    collection="fathom-flood", when="2020-01-01",
                ),
                Made(),
            )
            for path in paths
        ]  # fmt: skip
    catalog.register(items)


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
    with _pool(sizes.processes) as pool:
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


def _cpu_beside_tasks(running: Stack) -> float:
    tasks = set(processes.children(running.pids["worker"]))
    return sum(used for pid, used in running.cpu().items() if pid not in tasks)


async def _run(dsn: str, graph: Graph, inputs: Mapping[str, Any] | None = None) -> float:
    async with client(dsn) as one:
        taken, _ = await one.run(graph, inputs, limit_seconds=HOUR)
        return taken


def main() -> None:
    """Measure with sizes from the command line."""
    default = Sizes()
    parser = argparse.ArgumentParser(prog="python -m bench.fathom", description="Rehearse FATHOM.")
    for name in ("columns", "rows", "pixels", "cell_degrees", "processes", "rounds", "tasks", "cores"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(default, name))
    parser.add_argument("--task-seconds", type=float, default=default.task_seconds)
    parser.add_argument("--sleep", action="store_true", help="the tiles of the fan-out sleep: for a busy machine")
    parser.add_argument("--machines", type=lambda text: tuple(map(int, text.split(","))), default=default.machines)
    print("load:", os.getloadavg())
    for row in measure(Sizes(**vars(parser.parse_args()))):
        against = "" if row.floor is None else f"  (pool: {row.floor:.4g})"
        print(f"{row.workload}: {row.value:.4g} {row.unit}{against}  {row.verdict}", flush=True)
    print("load:", os.getloadavg())


if __name__ == "__main__":
    main()
