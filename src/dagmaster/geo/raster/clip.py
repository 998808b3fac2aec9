"""Clip a raster to areas, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import rasterio
import shapely
from rasterio.features import geometry_mask
from rasterio.windows import Window

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import explain_io_errors, open_raster
from dagmaster.geo.raster.areas_of_interest import project_area
from dagmaster.geo.raster.cog_writer import write_cog
from dagmaster.geo.raster.footprints import bounds_footprint
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.grids import Warp, has_nan, north_up_grid, open_warped
from dagmaster.geo.raster.vrts import color_table, has_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rasterio.io import DatasetWriter

    from dagmaster.geo.raster.areas_of_interest import Area
    from dagmaster.geo.raster.cog_writer import CogOptions
    from dagmaster.geo.raster.grids import Grid
    from dagmaster.geo.raster.vrts import PixelWindow
    from dagmaster.ports.handler_services import Share

BLOCK_PIXELS: Final = 2048
"""The side of the block that is in memory at once, for one band."""


def clip_raster(
    path: Path | str,
    target: Path,
    options: CogOptions,
    share: Share,
    areas: Sequence[Area],
    *,
    all_touched: bool = False,
    on_block: Callable[[int, int], None] = lambda _done, _count: None,
) -> int:
    """Write the part of a raster that lies in the areas; return the number of pixels inside.

    A pixel is inside if its centre is, or with `all_touched` if any of it is. Pixels outside are nodata; if
    the raster has no nodata value, floats get NaN and integers a mask.
    """
    with open_raster(path, share) as raster:
        require_georeferenced(raster)
        grid = north_up_grid(raster)
        geometry = shapely.union_all([project_area(area, grid.crs, grid.bounds) for area in areas])
        window = _covering_window(grid, geometry)
        intermediate = target.with_name(f"{target.stem}-clipped.tif")
        with explain_io_errors(path, target=intermediate), open_warped(raster, grid, Warp()) as source:
            inside = _write_clipped(
                source, intermediate, grid, window, geometry, all_touched=all_touched, on_block=on_block
            )
        if inside == 0:
            a, _, _, _, e, *_ = tuple(grid.affine)
            is_small = geometry.area < abs(a * e)
            reason = "it is smaller than a pixel" if is_small else "it only touches the edge of the raster"
            raise invalid_input(
                f"no pixel has its centre in the area: {reason}. Set all_touched, or use another area"
            )
        with explain_io_errors(path, target=target), rasterio.open(intermediate) as source:
            write_cog(source, target, options, share, template=raster)
    intermediate.unlink()
    return inside


def _covering_window(grid: Grid, geometry: Any) -> PixelWindow:
    overlap = geometry.intersection(shapely.box(*grid.bounds))
    if overlap.area == 0:
        footprint = bounds_footprint(grid.crs, grid.bounds)
        place = f"bounds are {list(grid.bounds)} in its own CRS (left, bottom, right, top)"
        if footprint is not None:
            place = f"bbox is {footprint.bbox} (west, south, east, north)"
        raise invalid_input(
            f"the area does not intersect the raster, whose {place}. Expected an area that overlaps it, in"
            " degrees"
        )
    left, bottom, right, top = overlap.bounds
    a, _, c, _, e, f = tuple(grid.affine)[:6]
    first = (max(0, int((left - c) / a + 1e-6)), max(0, int((top - f) / e + 1e-6)))
    last = (
        min(grid.width, int(np.ceil((right - c) / a - 1e-6))),
        min(grid.height, int(np.ceil((bottom - f) / e - 1e-6))),
    )
    return (*first, max(1, last[0] - first[0]), max(1, last[1] - first[1]))


def _write_clipped(
    source: Any,
    target: Path,
    grid: Grid,
    window: PixelWindow,
    geometry: Any,
    *,
    all_touched: bool,
    on_block: Callable[[int, int], None],
) -> int:
    part = grid.window(*window)
    nodata = source.nodata
    if nodata is None and has_nan(source.dtypes[0]):
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
    with rasterio.open(target, "w", **profile) as output:
        _copy_band_metadata(source, output)
        blocks = list(_blocks(part))
        for done, (column, row, width, height) in enumerate(blocks):
            on_block(done, len(blocks))
            block = part.window(column, row, width, height)
            outside = geometry_mask([geometry], (height, width), block.affine, all_touched=all_touched)
            inside += int((~outside).sum())
            target_window = Window(column, row, width, height)
            source_window = Window(window[0] + column, window[1] + row, width, height)
            hidden = outside
            if is_masked and nodata is not None:
                # A mask is not kept in addition to a nodata value: masked pixels become nodata.
                hidden = outside | (source.dataset_mask(window=source_window) == 0)
            for band in source.indexes:
                pixels = source.read(band, window=source_window)
                pixels[hidden] = 0 if nodata is None else nodata
                output.write(pixels, band, window=target_window)
            if nodata is None:
                mask = source.dataset_mask(window=source_window)
                output.write_mask(np.where(outside, 0, mask).astype("uint8"), window=target_window)
    return inside


def _blocks(part: Grid) -> Iterator[PixelWindow]:
    for row in range(0, part.height, BLOCK_PIXELS):
        for column in range(0, part.width, BLOCK_PIXELS):
            yield column, row, min(BLOCK_PIXELS, part.width - column), min(BLOCK_PIXELS, part.height - row)


def _copy_band_metadata(source: Any, output: DatasetWriter) -> None:
    """Copy tags, descriptions, units, scales, offsets and colours."""
    for band in (0, *source.indexes):
        tags = {key: value for key, value in source.tags(band).items() if not key.startswith("STATISTICS_")}
        output.update_tags(band, **tags)
    output.descriptions, output.units = source.descriptions, source.units
    output.scales, output.offsets = source.scales, source.offsets
    table = color_table(source, 1)
    if table is not None:
        output.write_colormap(1, table)
    else:
        output.colorinterp = source.colorinterp
