"""Stack the depth rasters of one tile, one per return period, as the bands of one COG.

Reading goes window by window and band by band, so memory does not grow with the tile. A rarer flood is never
shallower: pixels that violate this are counted, rejected or fixed.

The file is band-interleaved: reading one return period reads an eighth of it, and so does the merge, which
works by band (52 MB of pixels: 0.18 s instead of 1.02 s). GDAL's COG driver supports that only from 3.11 on;
its GTiff driver writes such a COG in any version.
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

from dagmaster.errors import invalid_input
from dagmaster.geo.fathom.depth_codes import UNIT
from dagmaster.geo.fathom.filename_grammar import tile_bbox
from dagmaster.geo.fathom.raster_layers import (
    BLOCK_ROWS,
    MAX_OFFSET_PIXELS,
    Layer,
    encode_tags,
    open_layer,
    read_window,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rasterio.io import DatasetReader, DatasetWriter

    from dagmaster.geo.raster.cog_writer import CogOptions
    from dagmaster.ports.handler_services import Share

Monotone = Literal["report", "fail", "fix"]

MIN_OVERVIEW_PIXELS: Final = 256
"""The last overview is not larger."""


@dataclass(slots=True)
class DepthReport:
    """Findings while stacking. A violation is a pixel that is shallower than at a shorter return period."""

    violations: int = 0
    worst_cm: int = 0
    by_band: dict[str, int] = field(default_factory=dict)
    first_at: list[float] | None = None
    mask_differences: int = 0
    """Pixels with a depth at one return period, and water or nodata at another."""

    def to_json(self) -> dict[str, Any]:
        return {
            "violations": self.violations,
            "worst_cm": self.worst_cm,
            "by_band": self.by_band,
            "first_at": self.first_at,
            "mask_differences": self.mask_differences,
        }


def write_stack(
    sources: Mapping[str, Path],
    target: Path,
    *,
    tile: str,
    monotone: Monotone,
    options: CogOptions,
    share: Share,
    tags: Mapping[str, Any],
    on_block: Callable[[int, int], None],
) -> dict[str, Any]:
    """Write one COG of the sources, whose keys name its bands in order; return the depth report as JSON.

    `tags` and the report are stored in the file.
    """
    intermediate = target.with_name(f"{target.stem}-bands.tif")
    with contextlib.ExitStack() as exit_stack:
        rasters = {
            band: exit_stack.enter_context(open_layer(path, share, band)) for band, path in sources.items()
        }
        layer = _require_one_grid(rasters, tile)
        profile = {
            "driver": "GTiff", "width": layer.width, "height": layer.height, "count": len(rasters),
            "dtype": layer.dtype, "crs": layer.crs, "transform": next(iter(rasters.values())).transform,
            "nodata": layer.nodata, "tiled": True, "blockxsize": BLOCK_ROWS, "blockysize": BLOCK_ROWS,
            "interleave": "band", "bigtiff": "if_safer",
        }  # fmt: skip
        with rasterio.open(intermediate, "w", **profile) as output:
            report = _copy_bands(rasters, output, layer, monotone, on_block)
            for number, band in enumerate(rasters, 1):
                output.set_band_description(number, band)
                output.set_band_unit(number, UNIT)
            output.update_tags(**encode_tags({**tags, "depths": report.to_json()}))
    if report.violations and monotone == "fail":
        raise invalid_input(_violation_message(tile, report))
    _write_band_interleaved(intermediate, target, options, share)
    intermediate.unlink()
    return report.to_json()


def _require_one_grid(rasters: Mapping[str, DatasetReader], tile: str) -> Layer:
    first, *others = rasters
    layer = Layer.of(rasters[first], first)
    for band in rasters:
        if rasters[band].count != 1:
            raise invalid_input(
                f"{band} of {tile} has {rasters[band].count} bands: expected one file with one band per"
                " return period"
            )
    for band in others:
        other = Layer.of(rasters[band], band)
        differences = other.differences(layer)
        if (other.width, other.height) != (layer.width, layer.height):
            size = f"{other.width:,} x {other.height:,} pixels instead of {layer.width:,} x {layer.height:,}"
            differences = f"{size}; {differences}"
        offset = max(map(abs, other.offset(layer.west, layer.north)))
        if not differences and offset > MAX_OFFSET_PIXELS:
            differences = f"its corner is {offset:.3g} pixels away"
        if differences:
            raise invalid_input(
                f"{band} of {tile} does not match {first}: {differences.rstrip('; ')}. Resample or convert it"
                " first"
            )
    if layer.crs.is_geographic:
        west, south, east, north = tile_bbox(tile)
        bounds = rasters[first].bounds
        distance = max(
            abs(bounds.left - west),
            abs(bounds.bottom - south),
            abs(bounds.right - east),
            abs(bounds.top - north),
        )
        if distance > max(layer.pixel_width, layer.pixel_height):
            raise invalid_input(
                f"{tile} is the square degree {west:g}, {south:g}, {east:g}, {north:g}, but its file lies at"
                f" {', '.join(f'{side:g}' for side in bounds)}: it has the name of another tile, or another"
                " naming scheme"
            )
    return layer


def _copy_bands(
    rasters: Mapping[str, DatasetReader],
    output: DatasetWriter,
    layer: Layer,
    monotone: Monotone,
    on_block: Callable[[int, int], None],
) -> DepthReport:
    report = DepthReport()
    block_count = -(-layer.height // BLOCK_ROWS)
    for block in range(block_count):
        on_block(block, block_count)
        window = Window(
            0, block * BLOCK_ROWS, layer.width, min(BLOCK_ROWS, layer.height - block * BLOCK_ROWS)
        )
        deepest: Any = None
        first_mask: Any = None
        for number, (band, raster) in enumerate(rasters.items(), 1):
            values = read_window(raster, 1, window, band)
            is_depth = values >= 0
            mask = np.where(is_depth, 0, values)
            if deepest is None:
                first_mask = mask
            else:
                report.mask_differences += int(np.count_nonzero(mask != first_mask))
                is_shallower = is_depth & (values < deepest)
                if is_shallower.any():
                    _count_violations(
                        report, band, is_shallower, deepest - values, first_row=window.row_off, layer=layer
                    )
                    if monotone == "fix":
                        values = np.where(is_shallower, deepest, values)
            output.write(values, number, window=window)
            # Special values are below 0, so any depth is deeper.
            deepest = values if deepest is None else np.maximum(values, deepest)
    on_block(block_count, block_count)
    return report


def _count_violations(
    report: DepthReport, band: str, is_shallower: Any, differences: Any, *, first_row: int, layer: Layer
) -> None:
    count = int(np.count_nonzero(is_shallower))
    report.violations += count
    report.by_band[band] = report.by_band.get(band, 0) + count
    report.worst_cm = max(report.worst_cm, int(differences[is_shallower].max()))
    if report.first_at is None:
        row, column = (int(indices[0]) for indices in np.nonzero(is_shallower))
        x = layer.west + (column + 0.5) * layer.pixel_width
        y = layer.north - (first_row + row + 0.5) * layer.pixel_height
        report.first_at = [round(x, 9), round(y, 9)]


def _violation_message(tile: str, report: DepthReport) -> str:
    bands = ", ".join(f"{count:,} in {band}" for band, count in report.by_band.items())
    x, y = report.first_at or (0, 0)
    return (
        f"{tile}: {report.violations:,} pixels are shallower than at a shorter return period ({bands}), by"
        f" up to {report.worst_cm} cm, the first at {x:g}, {y:g}. A rarer flood is never shallower: are"
        " files exchanged? Set monotone to report to keep them, or to fix to raise them to the depth of the"
        " shorter period"
    )


def _write_band_interleaved(source: Path, target: Path, options: CogOptions, share: Share) -> None:
    """Write a band-interleaved COG. Overviews are added to `source`."""
    with rasterio.open(source, "r+") as raster:
        factors = _overview_factors(max(raster.width, raster.height))
        if factors:
            raster.build_overviews(factors, Resampling[options.resampling])
    creation: dict[str, Any] = {
        "COMPRESS": options.compression, "TILED": "YES", "BLOCKXSIZE": options.tile_size,
        "BLOCKYSIZE": options.tile_size, "INTERLEAVE": "BAND", "COPY_SRC_OVERVIEWS": "YES",
        "BIGTIFF": "IF_SAFER", "NUM_THREADS": share.threads,
    }  # fmt: skip
    if options.compression != "NONE":
        creation["PREDICTOR"] = 2
    if options.level is not None:
        creation["ZSTD_LEVEL" if options.compression == "ZSTD" else "ZLEVEL"] = options.level
    rasterio.shutil.copy(str(source), str(target), driver="GTiff", **creation)


def _overview_factors(side: int) -> Sequence[int]:
    """Return 2, 4, 8, … until an overview is small enough."""
    factors: list[int] = []
    while side > MIN_OVERVIEW_PIXELS:
        factors.append(2 ** (len(factors) + 1))
        side = -(-side // 2)
    return factors
