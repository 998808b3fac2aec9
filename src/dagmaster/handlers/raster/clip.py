"""Cut a raster along the outline of an area, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import rasterio
import shapely
from rasterio.features import geometry_mask
from rasterio.windows import Window

from dagmaster.handlers.gdal import invalid, opened, working
from dagmaster.handlers.raster.areas_of_interest import placed
from dagmaster.handlers.raster.cog_writer import write_cog
from dagmaster.handlers.raster.footprints import footprint_of_bounds
from dagmaster.handlers.raster.grids import Warp, is_float, north_up, require_place, warped
from dagmaster.handlers.raster.vrts import has_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rasterio.io import DatasetWriter

    from dagmaster.handlers.raster.areas_of_interest import Area
    from dagmaster.handlers.raster.cog_writer import CogOptions
    from dagmaster.handlers.raster.grids import Grid
    from dagmaster.handlers.raster.vrts import Rectangle
    from dagmaster.ports.handler_services import Share

CHUNK: Final = 2048
"""Pixels on each side of what is in memory at once, of one band."""


def clip(
    path: Path,
    to: Path,
    options: CogOptions,
    share: Share,
    wanted: Sequence[Area],
    *,
    all_touched: bool = False,
    on_round: Callable[[int, int], None] = lambda _done, _all: None,
) -> int:
    """Write the part of a raster that lies in these areas; how many pixels that are.

    A pixel is inside if its centre is, or with `all_touched` if any of it is. Pixels outside are nodata; where the
    raster has no such value, NaN in floats, and a mask for whole numbers.
    """
    with opened(path, share) as raster:
        require_place(raster)
        grid = north_up(raster)
        shape = shapely.union_all([placed(area, grid.crs, grid.bounds) for area in wanted])
        window = _window(grid, shape)
        between = to.with_name(f"{to.stem}-clipped.tif")
        with working(path, to=between), warped(raster, grid, Warp()) as source:
            inside = _cut(source, between, grid, window, shape, all_touched=all_touched, on_round=on_round)
        if inside == 0:
            a, _, _, _, e, *_ = tuple(grid.affine)
            why = "it is smaller than a pixel" if shape.area < abs(a * e) else "it hardly touches the raster's edge"
            raise invalid(f"no pixel has its centre in the area: {why}. Give all_touched, or another area")
    with working(path, to=to), rasterio.open(between) as source:
        write_cog(source, to, options, share)
    between.unlink()
    return inside


def _window(grid: Grid, shape: Any) -> Rectangle:
    """The pixels around the area."""
    touching = shape.intersection(shapely.box(*grid.bounds))
    if touching.area == 0:
        there = footprint_of_bounds(grid.crs, grid.bounds).bbox
        raise invalid(
            f"the area does not touch the raster: the raster lies at {there} (west, south, east, north). Expected an"
            " area that overlaps it, in degrees"
        )
    left, bottom, right, top = touching.bounds
    a, _, c, _, e, f = tuple(grid.affine)[:6]
    first = (max(0, int((left - c) / a + 1e-6)), max(0, int((top - f) / e + 1e-6)))
    last = (
        min(grid.width, int(np.ceil((right - c) / a - 1e-6))),
        min(grid.height, int(np.ceil((bottom - f) / e - 1e-6))),
    )
    return (*first, max(1, last[0] - first[0]), max(1, last[1] - first[1]))


def _cut(
    source: Any,
    to: Path,
    grid: Grid,
    window: Rectangle,
    shape: Any,
    *,
    all_touched: bool,
    on_round: Callable[[int, int], None],
) -> int:
    part = grid.window(*window)
    nodata = source.nodata
    if nodata is None and is_float(source.dtypes[0]):
        nodata = np.nan
    is_masked = has_mask(source)
    profile = {
        "driver": "GTiff",
        "dtype": source.dtypes[0],
        "count": source.count,
        "width": part.width,
        "height": part.height,
        "crs": part.crs,
        "transform": part.affine,
        "nodata": nodata,
        "tiled": True,
        "blockxsize": 512,
        "blockysize": 512,
        "compress": "ZSTD",
        "zstd_level": 1,
        "bigtiff": "IF_SAFER",
        "interleave": "band",
    }
    inside = 0
    with rasterio.open(to, "w", **profile) as out:
        _copy_words(source, out)
        chunks = list(_chunks(part))
        for done, (column, row, width, height) in enumerate(chunks):
            on_round(done, len(chunks))
            there = part.window(column, row, width, height)
            outside = geometry_mask([shape], (height, width), there.affine, all_touched=all_touched)
            inside += int((~outside).sum())
            at = Window(column, row, width, height)
            from_ = Window(window[0] + column, window[1] + row, width, height)
            # A mask is not kept beside a nodata value: what it hides is nodata then.
            unseen = outside | (source.dataset_mask(window=from_) == 0) if is_masked and nodata is not None else outside
            for band in source.indexes:
                pixels = source.read(band, window=from_)
                pixels[unseen] = 0 if nodata is None else nodata
                out.write(pixels, band, window=at)
            if nodata is None:
                known = source.dataset_mask(window=from_)
                out.write_mask(np.where(outside, 0, known).astype("uint8"), window=at)
    return inside


def _chunks(part: Grid) -> Iterator[Rectangle]:
    for row in range(0, part.height, CHUNK):
        for column in range(0, part.width, CHUNK):
            yield column, row, min(CHUNK, part.width - column), min(CHUNK, part.height - row)


def _copy_words(source: Any, out: DatasetWriter) -> None:
    """What the bands are called, and how their numbers are meant."""
    out.update_tags(**{key: value for key, value in source.tags().items() if not key.startswith("STATISTICS_")})
    out.descriptions, out.units = source.descriptions, source.units
    out.scales, out.offsets = source.scales, source.offsets
    if source.colorinterp[0].name == "palette":
        out.write_colormap(1, source.colormap(1))
    else:
        out.colorinterp = source.colorinterp
