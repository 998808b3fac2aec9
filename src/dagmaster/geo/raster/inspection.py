"""Inspect a raster before processing: format, georeference, bands and extent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import explain_io_errors, open_raster
from dagmaster.geo.raster.footprints import describe_footprint, raster_footprint
from dagmaster.geo.raster.georeferences import find_georeference
from dagmaster.geo.raster.grids import crs_text, located_grid, orientation, raster_grid
from dagmaster.geo.raster.vrts import has_mask

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.ports.handler_services import Share


def describe_raster(
    path: Path | str, share: Share, *, sample: bool = True, size: int | None = None
) -> dict[str, Any]:
    """Return the facts that later steps need, as JSON. A raster that cannot be processed is `invalid_input`.

    `sample`: also read its first, middle and last block, which reveals a truncated file.
    """
    with open_raster(path, share, whole=False, size=size) as raster:
        georeference = find_georeference(raster)
        is_grid = georeference.kind == "grid"
        if is_grid:
            grid, bounds, resolution = raster_grid(raster), raster.bounds, raster.res
        else:
            # Control points and RPCs lead to a grid only when they are warped: this is where it would be.
            grid = located_grid(raster, georeference)
            bounds, resolution = grid.bounds, (grid.affine.a, -grid.affine.e)
        if raster.count == 0:
            raise invalid_input("the raster has no bands, so it contains no pixels: name another file")
        footprint = raster_footprint(grid.crs, grid.affine, grid.width, grid.height)
        if sample:
            with explain_io_errors(path):
                _read_sample_blocks(raster)
        return {
            "crs": crs_text(grid.crs),
            "georeference": georeference.kind,
            "bounds": [float(side) for side in bounds],
            **describe_footprint(footprint),
            "width": raster.width,
            "height": raster.height,
            "count": raster.count,
            "dtypes": list(raster.dtypes),
            "nodata": json_number(raster.nodata),
            "mask": has_mask(raster),
            "palette": any(color.name == "palette" for color in raster.colorinterp),
            "resolution": [float(side) for side in resolution],
            "standing": orientation(raster) if is_grid else None,
            "driver": raster.driver,
            "block_shapes": [list(block) for block in raster.block_shapes],
            "transform": [float(number) for number in raster.transform][:6] if is_grid else None,
        }


def json_number(value: float | None) -> float | str | None:
    """Return a number for JSON, which has no NaN and no infinity: those become text."""
    if value is None:
        return None
    return float(value) if np.isfinite(value) else str(float(value))


def _read_sample_blocks(raster: DatasetReader) -> None:
    rows, columns = raster.block_shapes[0]
    last = ((raster.height - 1) // rows, (raster.width - 1) // columns)
    for row, column in {(0, 0), (last[0] // 2, last[1] // 2), last}:
        for band in {1, raster.count}:
            raster.read(band, window=raster.block_window(band, row, column))
