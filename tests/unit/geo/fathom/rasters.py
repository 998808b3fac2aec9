"""Small rasters for the tests of the FATHOM handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
from affine import Affine

from dagmaster.geo.fathom.filename_grammar import tile_corner
from dagmaster.ports.handler_services import Share

if TYPE_CHECKING:
    from pathlib import Path

SHARE = Share(cache_mb=16)


def write(path: Path, values: Any, tile: str = "n10e020", **other: Any) -> Path:
    """Return a raster with these values, on its tile."""
    west, south = tile_corner(tile)
    bands = np.asarray(values, dtype=other.pop("dtype", "int16"))
    bands = bands[None] if bands.ndim == 2 else bands
    size = bands.shape[2]
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "count": len(bands),
        "height": bands.shape[1],
        "width": size,
        "dtype": bands.dtype,
        "crs": "EPSG:4326",
        "nodata": -9999,
        "transform": Affine(1 / size, 0, west, 0, -1 / size, south + 1),
    } | other
    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(path, "w", **profile) as raster:
        raster.write(bands)
        for place in range(1, len(bands) + 1):
            raster.set_band_description(place, f"1in{5 * place}")
    return path


def pixels(path: Path | str) -> Any:
    with rasterio.open(path) as raster:
        return raster.read()
