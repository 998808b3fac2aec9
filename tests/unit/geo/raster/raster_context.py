"""What the tests of raster handlers share: rasters made on the spot, and a context with real services in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine

from dagmaster.geo.gdal import ignore_missing_georeference
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import discover
from dagmaster.testing import local_services

REGISTRY = discover(["dagmaster.geo.raster.handlers"], entry_points=False)
LANDSAT = Path(__file__).parents[4] / "examples" / "data" / "landsat7_olinda.tif"
UTM_25S = "EPSG:32725"
UTM = Affine(30, 0, 300_000, 0, -30, 9_100_000)


class HandlerHarness:
    """Zones, catalog, tables and scratch below one folder."""

    def __init__(self, folder: Path, **share: Any) -> None:
        self.folder = folder
        roots = [str(folder), str(LANDSAT.parent)]
        self.services = local_services(
            folder, **{"roots": roots, "cache_mb": 32, "max_file_mb": 1_000} | share
        )

    def context(self, name: str, **params: Any) -> HandlerContext:
        spec = REGISTRY.get(name)
        return HandlerContext(
            params=params,
            services=self.services,
            handler=spec.name,
            handler_version=spec.version,
            workflow="a_test v1",
        )

    def run(self, name: str, **params: Any) -> Any:
        """Run a handler as the worker does: params checked, scratch taken away at the end."""
        return self.call(self.context(name, **params), name)

    def call(self, ctx: HandlerContext, name: str) -> Any:
        try:
            return REGISTRY.get(name).call(ctx)
        finally:
            ctx.close()

    def bronze(self, name: str, data: Any, **profile: Any) -> str:
        """Write a raster into bronze; its name."""
        write(self.folder / "bronze" / name, data, **profile)
        return name

    def silver(self) -> list[str]:
        """Return the blobs, and leftovers of others."""
        home = self.folder / "silver"
        return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())

    def path(self, uri: str) -> Path:
        return Path(uri.removeprefix("file://"))

    def read(self, uri: str) -> Any:
        with rasterio.open(self.path(uri)) as raster:
            return raster.read()


def write(
    path: Path, data: Any, *, crs: str | None = UTM_25S, transform: Affine | None = UTM, **profile: Any
) -> Path:
    """Write an array of bands as a GeoTIFF."""
    bands = np.asarray(data)
    if bands.ndim == 2:
        bands = bands[None]
    path.parent.mkdir(parents=True, exist_ok=True)
    count, height, width = bands.shape
    colormap, mask = profile.pop("colormap", None), profile.pop("mask", None)
    with (
        ignore_missing_georeference(),
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES", GDAL_PAM_ENABLED="NO"),
        rasterio.open(
            path,
            "w",
            **{"driver": "GTiff", "dtype": profile.pop("dtype", bands.dtype), **profile},
            count=count,
            height=height,
            width=width,
            crs=crs,
            transform=transform,
        ) as raster,
    ):
        raster.write(bands)
        if colormap is not None:
            raster.write_colormap(1, colormap)
        if mask is not None:
            raster.write_mask(mask)
    return path


def numbers(
    height: int = 200, width: int = 300, *, bands: int = 1, dtype: str = "uint16", seed: int = 1
) -> Any:
    """Pixels, no two rows alike."""
    random = np.random.default_rng(seed)
    return random.integers(1, 200, (bands, height, width)).astype(dtype)
