"""Flood maps that nobody modelled: rivers, a sea and noise, for tests and benchmarks. Deeper the rarer the flood.

Depths are a function of the place alone, so that neighbours fit at their edges, and the same call gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import rasterio
from affine import Affine

from dagmaster.handlers.fathom.depth_codes import DTYPE, NODATA, PERMANENT_WATER, RETURN_PERIODS, band_name
from dagmaster.handlers.fathom.filename_grammar import FOLDERS, corner, tile_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FACETS: Final = {"flood_type": "fluvial", "defence": "defended", "year": "2020", "scenario": "present"}
ROWS: Final = 256
"""How many lines are made at a time: memory does not grow with the tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Which tiles are made. `pixels` is the side of a tile: a real one has 3,600."""

    columns: int = 2
    rows: int = 2
    west: int = 9
    south: int = 49
    pixels: int = 64
    return_periods: Sequence[int] = RETURN_PERIODS
    facets: Mapping[str, str] = field(default_factory=lambda: FACETS)
    template: str = FOLDERS

    @property
    def tiles(self) -> list[str]:
        """The tiles, from the south-west on."""
        return [tile_name(self.west + x, self.south + y) for y in range(self.rows) for x in range(self.columns)]

    def name(self, tile: str, return_period: int) -> str:
        """Where the file of a tile lies."""
        return self.template.format(**self.facets, tile=tile, return_period=band_name(return_period))


def make_grid(folder: Path, grid: Grid) -> list[Path]:
    """Write all files of a grid below a folder."""
    return [path for tile in grid.tiles for path in make_tile(folder, grid, tile)]


def make_tile(folder: Path, grid: Grid, tile: str) -> list[Path]:
    """Write the files of one tile, one for each return period."""
    west, south = corner(tile)
    paths = [folder / grid.name(tile, period) for period in grid.return_periods]
    profile: dict[str, Any] = {
        "driver": "GTiff", "width": grid.pixels, "height": grid.pixels, "count": 1, "dtype": DTYPE, "crs": "EPSG:4326",
        "transform": Affine(1 / grid.pixels, 0, west, 0, -1 / grid.pixels, south + 1), "nodata": NODATA,
        "compress": "DEFLATE", "predictor": 2, "zlevel": 1, "blockysize": ROWS, "tiled": False,
    }  # fmt: skip
    for path, period in zip(paths, grid.return_periods, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        with rasterio.open(path, "w", **profile) as raster:
            for line, block in _blocks(west, south, grid.pixels, period):
                raster.write(block, 1, window=((line, line + len(block)), (0, grid.pixels)))
    return paths


def _blocks(west: int, south: int, pixels: int, period: int) -> Iterator[tuple[int, Any]]:
    for line in range(0, pixels, ROWS):
        lines = np.arange(line, min(line + ROWS, pixels))
        y = (south + 1 - (lines + 0.5) / pixels)[:, None]
        x = (west + (np.arange(pixels) + 0.5) / pixels)[None, :]
        yield line, depths(x, y, period)


def depths(x: Any, y: Any, period: int) -> Any:
    """Depths in cm at places in degrees."""
    # Two rivers wind through; the flood is as wide and deep as the year is rare.
    rivers = np.minimum(np.abs(y % 1 - 0.5 - 0.3 * np.sin(3 * x)), np.abs(x % 1 - 0.4 - 0.2 * np.cos(5 * y)))
    level = 100 * np.log2(1 + period)
    rough = _noise(x, y)
    depth = np.clip(level - 6_000 * rivers + 40 * rough, 0, 3_000)
    depth[rivers < 0.004] = PERMANENT_WATER  # noqa: PLR2004 - the river's bed, in degrees
    # A coast in the west of each fourth degree: the sea was not modelled.
    depth[np.broadcast_to((x % 4 < 0.15 + 0.05 * np.sin(9 * y)), depth.shape)] = NODATA
    return depth.astype(DTYPE)


def _noise(x: Any, y: Any) -> Any:
    """From 0 to 1 by place, the same for all return periods: so that a file is not smaller than a real one."""
    wide = np.sin(x * 12_989.8 + y * 78_233.1) * 43_758.5
    return wide - np.floor(wide)
