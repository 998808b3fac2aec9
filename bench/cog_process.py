"""Write one COG, or its source raster, in a process of its own; `bench.raster` starts it."""

from __future__ import annotations

import hashlib
import json
import resource
import sys
from pathlib import Path

import numpy as np
import rasterio
import rasterio.shutil
from affine import Affine
from rasterio.windows import Window

from dagmaster.geo.gdal import gdal_env
from dagmaster.geo.raster.cog_writer import CogOptions, check_cog, convert_to_cog
from dagmaster.geo.raster.grids import Warp
from dagmaster.ports.handler_services import Share

MEGABYTE = 1_000_000


def make(path: Path, megabytes: int) -> None:
    """Write a raster like a satellite image: three bands of 16 bits, hills and noise, tiled, not compressed."""
    side = int((megabytes * MEGABYTE / 3 / 2) ** 0.5) // 512 * 512 or 512
    noise = np.random.default_rng(1).integers(0, 64, (3, 512, 512), dtype="uint16")
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=side,
        height=side,
        count=3,
        dtype="uint16",
        crs="EPSG:32633",
        transform=Affine(10, 0, 300_000, 0, -10, 5_000_000),
        tiled=True,
        blockxsize=512,
        blockysize=512,
        bigtiff="IF_SAFER",
    ) as raster:
        for row in range(0, side, 512):
            for column in range(0, side, 512):
                y, x = np.mgrid[row : row + 512, column : column + 512]
                hills = (np.sin(x / 700) * np.cos(y / 900) * 4_000 + 5_000).astype("uint16")
                raster.write(
                    hills + np.roll(noise, row + column, axis=2), window=Window(column, row, 512, 512)
                )


def convert_with_dagmaster(source: Path, target: Path, share: Share) -> None:
    """Convert as the handler raster.create_cog does."""
    _hash(source)
    convert_to_cog(source, target, CogOptions(provenance_tag="{}"), share, warp=Warp())
    check_cog(target)
    _hash(target)


def convert_with_gdal(source: Path, target: Path, share: Share) -> None:
    """Convert with GDAL's COG driver and the same settings."""
    with rasterio.open(source) as raster:
        options = CogOptions().creation_options(raster, share)
    rasterio.shutil.copy(str(source), str(target), driver="COG", **options)


def _hash(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


def main(method: str, source: Path, target: Path, cache_mb: int) -> None:
    """Write one COG; print its CPU seconds and peak memory as JSON."""
    share = Share(threads=1, cache_mb=cache_mb)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with gdal_env(share):
        {"dagmaster": convert_with_dagmaster, "gdal": convert_with_gdal}[method](source, target, share)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu": cpu, "rss_mb": after.ru_maxrss * 1024 / MEGABYTE}))


if __name__ == "__main__":
    action, path, *rest = sys.argv[1:]
    if action == "make":
        make(Path(path), int(rest[0]))
    else:
        main(action, Path(path), Path(rest[0]), int(rest[1]))
