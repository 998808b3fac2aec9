"""Look at a raster before work begins: is it one, where on Earth is it, what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rasterio.warp import transform_bounds

from dagmaster.handlers.gdal import invalid, opened

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.ports.services import Share


def describe(path: Path, share: Share) -> dict[str, Any]:
    """Everything that later steps ask of a raster, as JSON. What cannot be worked with is `invalid_input`."""
    with opened(path, share, whole=False) as raster:
        if raster.crs is None:
            raise invalid(
                "the raster has no coordinate system (CRS): nobody can tell where it lies. Expected a GeoTIFF with an"
                " EPSG code or WKT; set it with gdal_edit.py -a_srs EPSG:… first"
            )
        if raster.count == 0:
            raise invalid("the raster has no bands")
        return {
            "crs": crs_text(raster),
            "bounds": [float(one) for one in raster.bounds],
            "bbox": [
                round(one, 9) for one in transform_bounds(raster.crs, "OGC:CRS84", *raster.bounds, densify_pts=21)
            ],
            "width": raster.width,
            "height": raster.height,
            "count": raster.count,
            "dtypes": list(raster.dtypes),
            "nodata": _number(raster.nodata),
            "resolution": [float(one) for one in raster.res],
            "driver": raster.driver,
            "block_shapes": [list(one) for one in raster.block_shapes],
            "transform": [float(one) for one in raster.transform][:6],
        }


def crs_text(raster: DatasetReader) -> str:
    """`EPSG:32625` where there is a code, else WKT."""
    code = raster.crs.to_epsg()
    return str(raster.crs.to_wkt()) if code is None else f"EPSG:{code}"


def _number(value: float | None) -> float | str | None:
    """JSON has no NaN."""
    return None if value is None else ("nan" if np.isnan(value) else float(value))
