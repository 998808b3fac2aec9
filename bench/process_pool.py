"""The functions of the FATHOM handlers in a plain process pool: what the workflow is measured against."""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.handlers.fathom import merge
from dagmaster.handlers.fathom.depth_codes import RETURN_PERIODS, band_name
from dagmaster.handlers.fathom.planning import find_cells
from dagmaster.handlers.fathom.stack import stack
from dagmaster.handlers.fathom.synthetic_data import Grid, make_tile
from dagmaster.handlers.gdal import gdal
from dagmaster.handlers.raster.cog_writer import CogOptions, check_cog
from dagmaster.ports.handler_services import Share

if TYPE_CHECKING:
    from bench.fathom import Sizes

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """By the clock, by CPU time of all processes together, and the most memory of one."""

    seconds: float
    cpu: float
    peak: int


def a_pool(count: int) -> ProcessPoolExecutor:
    """Spawned: GDAL does not bear a fork."""
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def make(maps: Path, sizes: Sizes) -> float:
    """Write the synthetic maps; how many megabytes they are as stored."""
    tiles = _grid(sizes).tiles
    with a_pool(sizes.processes) as pool:
        list(pool.map(_make_one, [(maps, sizes, tile) for tile in tiles]))
    return sum(path.stat().st_size for path in maps.rglob("*.tif")) / MB


def _make_one(given: tuple[Path, Sizes, str]) -> None:
    maps, sizes, tile = given
    make_tile(maps, _grid(sizes), tile)


def _grid(sizes: Sizes) -> Grid:
    return Grid(columns=sizes.columns, rows=sizes.rows, pixels=sizes.pixels, west=8, south=48)


def in_a_pool(maps: Path, to: Path, sizes: Sizes) -> Taken:
    """Stack, merge and register all of it."""
    to.mkdir()
    grid = _grid(sizes)
    before = _cpu_of_children()
    begun = time.perf_counter()
    with a_pool(sizes.processes) as pool:
        sources = [
            {band_name(period): maps / grid.name(tile, period) for period in RETURN_PERIODS} for tile in grid.tiles
        ]
        peaks = list(pool.map(_stack_one, zip(grid.tiles, sources, [to] * sizes.tiles, strict=True)))
        stacks = [{"tile": tile, "group": "all", "href": str(to / f"{tile}.tif")} for tile in grid.tiles]
        cells = find_cells(stacks, (), sizes.cell_degrees)
        peaks += pool.map(_merge_one, [(cell.cell, cell.stacks, to) for cell in cells])
        pool.submit(_register, [to / f"{cell.cell}.tif" for cell in cells], to / "catalog").result()
    return Taken(time.perf_counter() - begun, _cpu_of_children() - before, max(peaks))


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
        canvas = merge.lay_out({tile: Path(path) for tile, path in stacks.items()}, share)
        parts = [to / f"{cell}-{band}.part.tif" for band in range(1, len(canvas.bands) + 1)]
        for band, part in enumerate(parts, 1):
            merge.merge_band(canvas, band, part, share, lambda *_: None)
        merge.put_together(canvas, parts, made, options=CogOptions(resampling="nearest"), share=share, tags={})
        check_cog(made)
        for part in parts:
            part.unlink()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _register(paths: list[Path], place: Path) -> None:
    # As the handler does: the processes of the others need none of it.
    from dagmaster.adapters.catalog.parquet_catalog import ParquetCatalog  # noqa: PLC0415 - see above
    from dagmaster.handlers.provenance import Made  # noqa: PLC0415 - likewise
    from dagmaster.handlers.stac.item_builder import new_collection  # noqa: PLC0415 - likewise
    from dagmaster.handlers.stac.raster_item import Told, raster_item  # noqa: PLC0415 - likewise

    catalog, share = ParquetCatalog(place), Share()
    catalog.ensure_collection(new_collection("fathom-flood"))
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
