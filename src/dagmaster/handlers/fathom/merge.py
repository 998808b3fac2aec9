"""The stacks of one cell of the grid, side by side in one COG.

Band by band: each becomes a raster of its own, some lines at a time, which is kept; in the end they are put together.
Where there is no tile there is no data. Tiles that overlap, or that do not lie on one grid of pixels, are refused.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import numpy as np
import rasterio
from affine import Affine
from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.io import DatasetReader
from rasterio.windows import Window

from dagmaster.handlers.fathom.depth_codes import UNIT
from dagmaster.handlers.fathom.raster_layers import CLOSE, WINDOW, Layer, layer_opened, read, written_tags
from dagmaster.handlers.gdal import invalid
from dagmaster.handlers.raster.cog_writer import write_cog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dagmaster.handlers.raster.cog_writer import CogOptions
    from dagmaster.ports.handler_services import Share


@dataclass(frozen=True, slots=True)
class Placed:
    """A stack, and where its corner is on the canvas, in pixels."""

    tile: str
    path: Path
    layer: Layer
    column: int
    line: int


@dataclass(frozen=True, slots=True)
class Canvas:
    """What all stacks together cover."""

    width: int
    height: int
    like: Layer
    west: float
    north: float
    stacks: tuple[Placed, ...]

    @property
    def bands(self) -> tuple[str, ...]:
        """Their names."""
        return self.like.bands

    @property
    def transform(self) -> Any:
        """From pixels to coordinates."""
        return Affine(self.like.x_size, 0, self.west, 0, -self.like.y_size, self.north)


def lay_out(stacks: Mapping[str, Path], share: Share) -> Canvas:
    """Place the stacks. What does not fit together is `invalid_input`."""
    layers: dict[str, Layer] = {}
    for tile, path in stacks.items():
        with layer_opened(path, share, tile) as raster:
            layers[tile] = Layer.of(raster, tile)
    first, like = next(iter(layers.items()))
    for tile, layer in layers.items():
        unlike = layer.unlike(like)
        if layer.bands != like.bands:
            unlike = f"bands {', '.join(layer.bands)} instead of {', '.join(like.bands)}; {unlike}".rstrip("; ")
        if unlike:
            raise invalid(f"{tile} does not go with {first}: {unlike}")
    west, north = min(one.west for one in layers.values()), max(one.north for one in layers.values())
    placed = tuple(_placed(tile, stacks[tile], layer, west, north) for tile, layer in layers.items())
    _refuse_overlaps(placed)
    width = max(one.column + one.layer.width for one in placed)
    height = max(one.line + one.layer.height for one in placed)
    pixels = width * height * len(like.bands)
    if pixels > share.max_pixels:
        raise invalid(
            f"the cell has {width:,} x {height:,} pixels in {len(like.bands)} bands, which are {pixels:,}: at most"
            f" {share.max_pixels:,} are worked through at once (DAGMASTER_RASTER_MAX_PIXELS); choose a smaller cell"
        )
    return Canvas(width, height, like, west, north, placed)


def _placed(tile: str, path: Path, layer: Layer, west: float, north: float) -> Placed:
    column, line = layer.offset(west, north)
    off = max(abs(column - round(column)), abs(line - round(line)))
    if off > CLOSE:
        raise invalid(
            f"{tile} is misaligned: its pixels are {off:.3g} of a pixel beside those of its neighbours. Expected one"
            " grid for all tiles of a cell; resample it first"
        )
    return Placed(tile, path, layer, round(column), round(line))


def _refuse_overlaps(placed: Sequence[Placed]) -> None:
    # A cell has a few hundred tiles at most.
    for place, one in enumerate(placed):
        for other in placed[:place]:
            across = min(one.column + one.layer.width, other.column + other.layer.width) - max(one.column, other.column)
            down = min(one.line + one.layer.height, other.line + other.layer.height) - max(one.line, other.line)
            if across > 0 and down > 0:
                raise invalid(
                    f"{other.tile} and {one.tile} overlap in {across:,} x {down:,} pixels: which of them is right is"
                    " not known here. Expected tiles that touch at their edges"
                )


def merge_band(canvas: Canvas, band: int, to: Path, share: Share, watch: Callable[[int, int], None]) -> None:
    """Write one band of the canvas, counted from 1, as a raster of its own."""
    like = canvas.like
    profile = {
        "driver": "GTiff", "width": canvas.width, "height": canvas.height, "count": 1, "dtype": like.dtype,
        "crs": like.crs, "transform": canvas.transform, "nodata": like.nodata, "tiled": True, "blockxsize": WINDOW,
        "blockysize": WINDOW, "compress": "ZSTD", "zstd_level": 1, "predictor": 2, "bigtiff": "if_safer",
    }  # fmt: skip
    total = -(-canvas.height // WINDOW)
    with contextlib.ExitStack() as opening:
        part = opening.enter_context(rasterio.open(to, "w", **profile))
        rasters = {one: opening.enter_context(layer_opened(one.path, share, one.tile)) for one in canvas.stacks}
        for row in range(total):
            watch(row, total)
            first, last = row * WINDOW, min((row + 1) * WINDOW, canvas.height)
            lines = np.full((last - first, canvas.width), like.nodata, dtype=like.dtype)
            for one, raster in rasters.items():
                top, bottom = max(first, one.line), min(last, one.line + one.layer.height)
                if top < bottom:
                    inside = Window(0, top - one.line, one.layer.width, bottom - top)
                    across = slice(one.column, one.column + one.layer.width)
                    lines[top - first : bottom - first, across] = read(raster, band, inside, one.tile)
            part.write(lines, 1, window=Window(0, first, canvas.width, last - first))
    watch(total, total)


def put_together(
    canvas: Canvas, parts: Sequence[Path], to: Path, *, options: CogOptions, share: Share, tags: Mapping[str, Any]
) -> None:
    """Write the COG of all bands. `tags` are kept in it as JSON."""
    virtual = _virtual(canvas, parts, written_tags(tags))
    with DatasetReader(UnparsedPath(virtual), driver=["VRT"], sharing=False) as raster:
        write_cog(raster, to, options, share)


def _virtual(canvas: Canvas, parts: Sequence[Path], tags: Mapping[str, str]) -> str:
    """The parts as the bands of a virtual raster: ours alone, of files that we wrote."""
    size = f'xSize="{canvas.width}" ySize="{canvas.height}"'
    bands = "".join(
        f'<VRTRasterBand dataType="{canvas.like.dtype.capitalize()}" band="{place}">'
        f"<Description>{escape(name)}</Description><UnitType>{UNIT}</UnitType>"
        f"<NoDataValue>{canvas.like.nodata:.17g}</NoDataValue><SimpleSource>"
        f'<SourceFilename relativeToVRT="0">{escape(str(part))}</SourceFilename><SourceBand>1</SourceBand>'
        f'<SrcRect xOff="0" yOff="0" {size}/><DstRect xOff="0" yOff="0" {size}/></SimpleSource></VRTRasterBand>'
        for place, (name, part) in enumerate(zip(canvas.bands, parts, strict=True), 1)
    )
    transform = ", ".join(f"{one:.17g}" for one in canvas.transform.to_gdal())
    crs = escape(canvas.like.crs.to_wkt())
    told = "".join(f'<MDI key="{name}">{escape(value)}</MDI>' for name, value in tags.items())
    return (
        f'<VRTDataset rasterXSize="{canvas.width}" rasterYSize="{canvas.height}"><SRS>{crs}</SRS>'
        f"<GeoTransform>{transform}</GeoTransform><Metadata>{told}</Metadata>{bands}</VRTDataset>"
    )
