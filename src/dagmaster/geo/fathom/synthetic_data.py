"""Synthetic flood maps with rivers, a sea and noise, for tests and benchmarks. Rarer floods are deeper.

Depths depend on the place alone, so neighbours match at their edges and the same call gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import rasterio
from affine import Affine

from dagmaster.geo.fathom.depth_codes import DTYPE, NODATA, PERMANENT_WATER, RETURN_PERIODS, band_name
from dagmaster.geo.fathom.filename_grammar import FOLDERS, tile_corner, tile_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FACETS: Final = {"flood_type": "fluvial", "defence": "defended", "year": "2020", "scenario": "present"}
BLOCK_ROWS: Final = 256
"""How many rows are computed at a time, so that memory does not grow with the tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticGrid:
    """Which tiles are written. `pixels` is the side of a tile: a real one has 3,600."""

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
        return [
            tile_name(self.west + x, self.south + y) for y in range(self.rows) for x in range(self.columns)
        ]

    def file_name(self, tile: str, return_period: int) -> str:
        return self.template.format(**self.facets, tile=tile, return_period=band_name(return_period))


def write_grid(folder: Path, grid: SyntheticGrid) -> list[Path]:
    return [path for tile in grid.tiles for path in write_tile(folder, grid, tile)]


def write_tile(folder: Path, grid: SyntheticGrid, tile: str) -> list[Path]:
    west, south = tile_corner(tile)
    paths = [folder / grid.file_name(tile, period) for period in grid.return_periods]
    profile: dict[str, Any] = {
        "driver": "GTiff", "width": grid.pixels, "height": grid.pixels, "count": 1, "dtype": DTYPE,
        "crs": "EPSG:4326", "transform": Affine(1 / grid.pixels, 0, west, 0, -1 / grid.pixels, south + 1),
        "nodata": NODATA, "compress": "DEFLATE", "predictor": 2, "zlevel": 1, "blockysize": BLOCK_ROWS,
        "tiled": False,
    }  # fmt: skip
    for path, period in zip(paths, grid.return_periods, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        with rasterio.open(path, "w", **profile) as raster:
            for row, block in _blocks(west, south, grid.pixels, period):
                raster.write(block, 1, window=((row, row + len(block)), (0, grid.pixels)))
    return paths


def _blocks(west: int, south: int, pixels: int, period: int) -> Iterator[tuple[int, Any]]:
    for row in range(0, pixels, BLOCK_ROWS):
        rows = np.arange(row, min(row + BLOCK_ROWS, pixels))
        y = (south + 1 - (rows + 0.5) / pixels)[:, None]
        x = (west + (np.arange(pixels) + 0.5) / pixels)[None, :]
        yield row, depths(x, y, period)


def depths(x: Any, y: Any, period: int) -> Any:
    """Return depths in cm at coordinates in degrees."""
    # Two rivers wind through; a rarer flood is wider and deeper.
    rivers = np.minimum(np.abs(y % 1 - 0.5 - 0.3 * np.sin(3 * x)), np.abs(x % 1 - 0.4 - 0.2 * np.cos(5 * y)))
    level = 100 * np.log2(1 + period)
    depth = np.clip(level - 6_000 * rivers + 40 * _noise(x, y), 0, 3_000)
    depth[rivers < 0.004] = PERMANENT_WATER  # noqa: PLR2004 - the width of the river, in degrees
    # A coast in the west of every fourth degree: the sea is not modelled.
    depth[np.broadcast_to((x % 4 < 0.15 + 0.05 * np.sin(9 * y)), depth.shape)] = NODATA
    return depth.astype(DTYPE)


def _noise(x: Any, y: Any) -> Any:
    """Return 0 to 1 by place, equal for all return periods, so that files compress like real ones."""
    wave = np.sin(x * 12_989.8 + y * 78_233.1) * 43_758.5
    return wave - np.floor(wave)
