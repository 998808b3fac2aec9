"""Inspect a raster before processing: format, georeference, bands and extent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dagmaster.handlers.gdal import explain_io_errors, open_raster
from dagmaster.handlers.raster.footprints import raster_footprint
from dagmaster.handlers.raster.grids import crs_text, orientation, require_georeferenced
from dagmaster.handlers.raster.vrts import has_mask

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.ports.handler_services import Share


def describe_raster(path: Path | str, share: Share, *, sample: bool = True, size: int | None = None) -> dict[str, Any]:
    """Return the facts that later steps need, as JSON. A raster that cannot be processed is `invalid_input`.

    `sample`: also read its first, middle and last block, which reveals a truncated file.
    """
    with open_raster(path, share, whole=False, size=size) as raster:
        require_georeferenced(raster)
        footprint = raster_footprint(raster.crs, raster.transform, raster.width, raster.height)
        if sample:
            with explain_io_errors(path):
                _read_sample_blocks(raster)
        return {
            "crs": crs_text(raster.crs),
            "bounds": [float(side) for side in raster.bounds],
            "bbox": footprint.bbox,
            "footprint": footprint.geometry,
            "width": raster.width,
            "height": raster.height,
            "count": raster.count,
            "dtypes": list(raster.dtypes),
            "nodata": json_number(raster.nodata),
            "mask": has_mask(raster),
            "palette": any(color.name == "palette" for color in raster.colorinterp),
            "resolution": [float(side) for side in raster.res],
            "standing": orientation(raster),
            "driver": raster.driver,
            "block_shapes": [list(block) for block in raster.block_shapes],
            "transform": [float(number) for number in raster.transform][:6],
        }


def json_number(value: float | None) -> float | str | None:
    """Return a number for JSON, which has no NaN and no infinity: those become text."""
    return None if value is None else (float(value) if np.isfinite(value) else str(float(value)))


def _read_sample_blocks(raster: DatasetReader) -> None:
    rows, columns = raster.block_shapes[0]
    last = ((raster.height - 1) // rows, (raster.width - 1) // columns)
    for row, column in {(0, 0), (last[0] // 2, last[1] // 2), last}:
        for band in {1, raster.count}:
            raster.read(band, window=raster.block_window(band, row, column))
