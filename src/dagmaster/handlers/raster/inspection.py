"""Look at a raster before work begins: is it one, where on Earth is it, what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dagmaster.handlers.gdal import opened, working
from dagmaster.handlers.raster.footprints import footprint
from dagmaster.handlers.raster.grids import crs_text, require_place, standing
from dagmaster.handlers.raster.vrts import has_mask

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.ports.handler_services import Share


def describe(path: Path | str, share: Share, *, sample: bool = True, size: int | None = None) -> dict[str, Any]:
    """Everything that later steps ask of a raster, as JSON. What cannot be worked with is `invalid_input`.

    `sample`: read its first, middle and last block too: a file that was cut off tells it there.
    """
    with opened(path, share, whole=False, size=size) as raster:
        require_place(raster)
        place = footprint(raster.crs, raster.transform, raster.width, raster.height)
        if sample:
            with working(path):
                _touch(raster)
        return {
            "crs": crs_text(raster.crs),
            "bounds": [float(one) for one in raster.bounds],
            "bbox": place.bbox,
            "footprint": place.geometry,
            "width": raster.width,
            "height": raster.height,
            "count": raster.count,
            "dtypes": list(raster.dtypes),
            "nodata": number(raster.nodata),
            "mask": has_mask(raster),
            "palette": any(one.name == "palette" for one in raster.colorinterp),
            "resolution": [float(one) for one in raster.res],
            "standing": standing(raster),
            "driver": raster.driver,
            "block_shapes": [list(one) for one in raster.block_shapes],
            "transform": [float(one) for one in raster.transform][:6],
        }


def number(value: float | None) -> float | str | None:
    """JSON has no NaN."""
    return None if value is None else (float(value) if np.isfinite(value) else str(float(value)))


def _touch(raster: DatasetReader) -> None:
    rows, columns = raster.block_shapes[0]
    last = ((raster.height - 1) // rows, (raster.width - 1) // columns)
    for row, column in {(0, 0), (last[0] // 2, last[1] // 2), last}:
        for band in {1, raster.count}:
            raster.read(band, window=raster.block_window(band, row, column))
