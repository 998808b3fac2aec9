"""The functions of the FATHOM handlers in a plain process pool: the floor of the flood workflow."""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.geo.fathom import merge
from dagmaster.geo.fathom.depth_codes import RETURN_PERIODS, band_name
from dagmaster.geo.fathom.planning import find_cells
from dagmaster.geo.fathom.stack import write_stack
from dagmaster.geo.fathom.synthetic_data import SyntheticGrid, write_tile
from dagmaster.geo.gdal import gdal_env
from dagmaster.geo.raster.cog_writer import CogOptions, check_cog
from dagmaster.ports.handler_services import Share

if TYPE_CHECKING:
    from bench.fathom import Sizes

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Wall-clock seconds, CPU seconds of all processes together, and the peak memory of one in bytes."""

    seconds: float
    cpu: float
    peak: int


def create_pool(count: int) -> ProcessPoolExecutor:
    """Create a pool of spawned processes: GDAL does not survive a fork."""
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def write_maps(maps: Path, sizes: Sizes) -> float:
    """Write the synthetic maps; return their megabytes as stored."""
    tiles = _grid(sizes).tiles
    with create_pool(sizes.processes) as pool:
        list(pool.map(_write_tile, [(maps, sizes, tile) for tile in tiles]))
    return sum(path.stat().st_size for path in maps.rglob("*.tif")) / MB


def _write_tile(arguments: tuple[Path, Sizes, str]) -> None:
    maps, sizes, tile = arguments
    write_tile(maps, _grid(sizes), tile)


def _grid(sizes: Sizes) -> SyntheticGrid:
    return SyntheticGrid(columns=sizes.columns, rows=sizes.rows, pixels=sizes.pixels, west=8, south=48)


def run_in_pool(maps: Path, target: Path, sizes: Sizes) -> Usage:
    """Stack, merge and register all maps; return what it used."""
    target.mkdir()
    grid = _grid(sizes)
    before = _cpu_of_children()
    started = time.perf_counter()
    with create_pool(sizes.processes) as pool:
        sources = [
            {band_name(period): maps / grid.file_name(tile, period) for period in RETURN_PERIODS}
            for tile in grid.tiles
        ]
        peaks = list(pool.map(_stack_tile, zip(grid.tiles, sources, [target] * sizes.tiles, strict=True)))
        stacks = [{"tile": tile, "group": "all", "href": str(target / f"{tile}.tif")} for tile in grid.tiles]
        cells = find_cells(stacks, (), sizes.cell_degrees)
        peaks += pool.map(_merge_cell, [(cell.cell, cell.stacks, target) for cell in cells])
        pool.submit(_register, [target / f"{cell.cell}.tif" for cell in cells], target / "catalog").result()
    return Usage(time.perf_counter() - started, _cpu_of_children() - before, max(peaks))


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _stack_tile(arguments: tuple[str, dict[str, Path], Path]) -> int:
    tile, sources, folder = arguments
    share = Share()
    cog = folder / f"{tile}.tif"
    with gdal_env(share):
        write_stack(
            sources, cog, tile=tile, monotone="report", options=CogOptions(resampling="nearest"), share=share, tags={},
            on_block=lambda *_: None,
        )  # fmt: skip
        check_cog(cog)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _merge_cell(arguments: tuple[str, dict[str, str], Path]) -> int:
    cell, stacks, folder = arguments
    share = Share()
    cog = folder / f"{cell}.tif"
    with gdal_env(share):
        canvas = merge.lay_out({tile: Path(path) for tile, path in stacks.items()}, share)
        parts = [folder / f"{cell}-{band}.part.tif" for band in range(1, len(canvas.bands) + 1)]
        for band, part in enumerate(parts, 1):
            merge.merge_band(canvas, band, part, share, lambda *_: None)
        merge.combine_bands(
            canvas, parts, cog, options=CogOptions(resampling="nearest"), share=share, tags={}
        )
        check_cog(cog)
        for part in parts:
            part.unlink()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _register(paths: list[Path], folder: Path) -> None:
    # Imported here, as the handler does: the other processes of the pool need none of it.
    from dagmaster.geo.catalog.parquet_catalog import ParquetCatalog  # noqa: PLC0415 - see above
    from dagmaster.geo.provenance import Provenance  # noqa: PLC0415 - likewise
    from dagmaster.geo.stac.item_builder import new_collection  # noqa: PLC0415 - likewise
    from dagmaster.geo.stac.raster_item import ItemMetadata, raster_item  # noqa: PLC0415 - likewise

    catalog, share = ParquetCatalog(folder), Share()
    catalog.ensure_collection(new_collection("fathom-flood"))
    with gdal_env(share):
        items = [
            raster_item(
                path,
                share,
                ItemMetadata(
                    item_id=path.stem, href=str(path), sha256="0" * 64, size=path.stat().st_size,
                    collection="fathom-flood", datetime="2020-01-01",
                ),
                Provenance(),
            )
            for path in paths
        ]  # fmt: skip
    catalog.register(items)
