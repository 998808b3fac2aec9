"""The maps of one tile at all return periods, as the bands of one COG.

Read window by window, band after band: memory does not grow with the tile. A rarer flood is never shallower: where it
is, that is counted, refused or mended.

Bands lie one after the other in the file, not pixel by pixel: who wants one return period reads an eighth, and so does
the merge, which works band by band (52 MB of pixels: 0.18 s instead of 1.02 s). GDAL's COG driver learned that in 3.11;
its GTiff driver lays a COG out with any version.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.enums import Resampling
from rasterio.windows import Window

from dagmaster.handlers.fathom.depth_codes import UNIT
from dagmaster.handlers.fathom.filename_grammar import bbox_of
from dagmaster.handlers.fathom.raster_layers import CLOSE, WINDOW, Layer, layer_opened, read, written_tags
from dagmaster.handlers.gdal import invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rasterio.io import DatasetReader, DatasetWriter

    from dagmaster.handlers.raster.cog_writer import CogOptions
    from dagmaster.ports.handler_services import Share

Monotone = Literal["report", "fail", "fix"]

SMALLEST: Final = 256
"""Overviews are made until one is no larger."""


@dataclass(slots=True)
class Depths:
    """What was found while stacking. A violation is a pixel that is shallower than at a shorter return period."""

    violations: int = 0
    worst: int = 0
    by_band: dict[str, int] = field(default_factory=dict)
    first_at: list[float] | None = None
    mask_differences: int = 0
    """Pixels that hold a depth at one return period, and water or no data at another."""

    def to_json(self) -> dict[str, Any]:
        """As it is kept in the file."""
        return {
            "violations": self.violations,
            "worst_cm": self.worst,
            "by_band": self.by_band,
            "first_at": self.first_at,
            "mask_differences": self.mask_differences,
        }


def stack(
    sources: Mapping[str, Path],
    to: Path,
    *,
    tile: str,
    monotone: Monotone,
    options: CogOptions,
    share: Share,
    tags: Mapping[str, Any],
    watch: Callable[[int, int], None],
) -> dict[str, Any]:
    """Write one COG of the sources, whose keys are the names of its bands in order; tell what its depths are like.

    `tags` are kept in the file as JSON, with the latter.
    """
    beside = to.with_name(f"{to.stem}-bands.tif")
    with contextlib.ExitStack() as opening:
        rasters = {band: opening.enter_context(layer_opened(path, share, band)) for band, path in sources.items()}
        layer = _one_grid(rasters, tile)
        profile = {
            "driver": "GTiff", "width": layer.width, "height": layer.height, "count": len(rasters),
            "dtype": layer.dtype, "crs": layer.crs, "transform": next(iter(rasters.values())).transform,
            "nodata": layer.nodata, "tiled": True, "blockxsize": WINDOW, "blockysize": WINDOW, "interleave": "band",
            "bigtiff": "if_safer",
        }  # fmt: skip
        with rasterio.open(beside, "w", **profile) as stacked:
            found = _copy(rasters, stacked, layer, monotone, watch)
            for place, band in enumerate(rasters, 1):
                stacked.set_band_description(place, band)
                stacked.set_band_unit(place, UNIT)
            stacked.update_tags(**written_tags({**tags, "depths": found.to_json()}))
    if found.violations and monotone == "fail":
        raise invalid(_shallower(tile, found))
    _write_by_band(beside, to, options, share)
    beside.unlink()
    return found.to_json()


def _one_grid(rasters: Mapping[str, DatasetReader], tile: str) -> Layer:
    """Check that all have one grid, and that it is the tile's."""
    first, *others = rasters
    layer = Layer.of(rasters[first], first)
    for band in rasters:
        if rasters[band].count != 1:
            raise invalid(f"{band} of {tile} has {rasters[band].count} bands: expected one file for a return period")
    for band in others:
        other = Layer.of(rasters[band], band)
        unlike = other.unlike(layer)
        if (other.width, other.height) != (layer.width, layer.height):
            unlike = (
                f"{other.width:,} x {other.height:,} pixels instead of {layer.width:,} x {layer.height:,}; {unlike}"
            )
        shift = max(map(abs, other.offset(layer.west, layer.north)))
        if not unlike and shift > CLOSE:
            unlike = f"its corner is {shift:.3g} pixels away"
        if unlike:
            raise invalid(f"{band} of {tile} does not lie on {first}: {unlike.rstrip('; ')}")
    if layer.crs.is_geographic:
        west, south, east, north = bbox_of(tile)
        bounds = rasters[first].bounds
        away = max(
            abs(bounds.left - west), abs(bounds.bottom - south), abs(bounds.right - east), abs(bounds.top - north)
        )
        if away > max(layer.x_size, layer.y_size):
            raise invalid(
                f"{tile} is the square degree {west:g}, {south:g}, {east:g}, {north:g}, but its file lies at"
                f" {', '.join(f'{one:g}' for one in bounds)}: it has another tile's name, or another grammar's"
            )
    return layer


def _copy(
    rasters: Mapping[str, DatasetReader],
    stacked: DatasetWriter,
    layer: Layer,
    monotone: Monotone,
    watch: Callable[[int, int], None],
) -> Depths:
    found = Depths()
    total = -(-layer.height // WINDOW)
    for row in range(total):
        watch(row, total)
        window = Window(0, row * WINDOW, layer.width, min(WINDOW, layer.height - row * WINDOW))
        deepest: Any = None
        special: Any = None
        for place, (band, raster) in enumerate(rasters.items(), 1):
            values = read(raster, 1, window, band)
            is_depth = values >= 0
            masked = np.where(is_depth, 0, values)
            if deepest is None:
                special = masked
            else:
                found.mask_differences += int(np.count_nonzero(masked != special))
                shallower = is_depth & (values < deepest)
                if shallower.any():
                    _count(found, band, shallower, deepest - values, first_line=window.row_off, layer=layer)
                    if monotone == "fix":
                        values = np.where(shallower, deepest, values)
            stacked.write(values, place, window=window)
            # What is no depth is below 0: it is deeper than nothing.
            deepest = values if deepest is None else np.maximum(values, deepest)
    watch(total, total)
    return found


def _count(found: Depths, band: str, shallower: Any, by: Any, *, first_line: int, layer: Layer) -> None:
    count = int(np.count_nonzero(shallower))
    found.violations += count
    found.by_band[band] = found.by_band.get(band, 0) + count
    found.worst = max(found.worst, int(by[shallower].max()))
    if found.first_at is None:
        line, column = (int(one[0]) for one in np.nonzero(shallower))
        x = layer.west + (column + 0.5) * layer.x_size
        y = layer.north - (first_line + line + 0.5) * layer.y_size
        found.first_at = [round(x, 9), round(y, 9)]


def _shallower(tile: str, found: Depths) -> str:
    bands = ", ".join(f"{count:,} in {band}" for band, count in found.by_band.items())
    x, y = found.first_at or (0, 0)
    return (
        f"{tile}: {found.violations:,} pixels are shallower than at a shorter return period ({bands}), by up to"
        f" {found.worst} cm, the first at {x:g}, {y:g}. A rarer flood is never shallower: are files exchanged? With"
        " monotone: report they are kept, with monotone: fix raised to the shorter period's depth"
    )


def _write_by_band(source: Path, to: Path, options: CogOptions, share: Share) -> None:
    """A COG with its bands one after the other, of a raster that may be written to."""
    with rasterio.open(source, "r+") as raster:
        levels = _levels(max(raster.width, raster.height))
        if levels:
            raster.build_overviews(levels, Resampling[options.resampling])
    creation: dict[str, Any] = {
        "COMPRESS": options.compression, "TILED": "YES", "BLOCKXSIZE": options.tile_size,
        "BLOCKYSIZE": options.tile_size, "INTERLEAVE": "BAND", "COPY_SRC_OVERVIEWS": "YES", "BIGTIFF": "IF_SAFER",
        "NUM_THREADS": share.threads,
    }  # fmt: skip
    if options.compression != "NONE":
        creation["PREDICTOR"] = 2
    if options.level is not None:
        creation["ZSTD_LEVEL" if options.compression == "ZSTD" else "ZLEVEL"] = options.level
    rasterio.shutil.copy(str(source), str(to), driver="GTiff", **creation)


def _levels(side: int) -> Sequence[int]:
    """2, 4, 8 and so on, until it is small."""
    levels: list[int] = []
    while side > SMALLEST:
        levels.append(2 ** (len(levels) + 1))
        side = -(-side // 2)
    return levels
