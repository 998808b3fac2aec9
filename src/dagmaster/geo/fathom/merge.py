"""Merge the stacks of one grid cell into one COG.

Each band first becomes a separate raster, which a later attempt reuses; then they are combined. Pixels
without a tile are nodata. Tiles that overlap, or do not lie on one pixel grid, are rejected.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
from affine import Affine
from rasterio.windows import Window

from dagmaster.errors import invalid_input
from dagmaster.geo.fathom.depth_codes import UNIT
from dagmaster.geo.fathom.raster_layers import (
    BLOCK_ROWS,
    MAX_OFFSET_PIXELS,
    Layer,
    encode_tags,
    open_layer,
    read_window,
)
from dagmaster.geo.raster.cog_writer import write_cog
from dagmaster.geo.raster.grids import Grid
from dagmaster.geo.raster.vrts import open_band_stack
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dagmaster.geo.raster.cog_writer import CogOptions
    from dagmaster.ports.handler_services import Share


@dataclass(frozen=True, slots=True)
class PlacedStack:
    """A stack, and the pixel of the canvas where its upper left corner lies."""

    tile: str
    path: Path
    layer: Layer
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class Canvas:
    """The extent that all stacks of a cell cover together."""

    width: int
    height: int
    template: Layer
    west: float
    north: float
    stacks: tuple[PlacedStack, ...]

    @property
    def bands(self) -> tuple[str, ...]:
        return self.template.bands

    @property
    def grid(self) -> Grid:
        affine = Affine(self.template.pixel_width, 0, self.west, 0, -self.template.pixel_height, self.north)
        return Grid(crs=self.template.crs, affine=affine, width=self.width, height=self.height)


def lay_out(stacks: Mapping[str, Path], share: Share) -> Canvas:
    """Place the stacks on a canvas. Stacks that do not fit together are `invalid_input`."""
    layers: dict[str, Layer] = {}
    for tile, path in stacks.items():
        with open_layer(path, share, tile) as raster:
            layers[tile] = Layer.of(raster, tile)
    first, template = next(iter(layers.items()))
    for tile, layer in layers.items():
        differences = layer.differences(template)
        if layer.bands != template.bands:
            bands = f"bands {', '.join(layer.bands)} instead of {', '.join(template.bands)}"
            differences = f"{bands}; {differences}".rstrip("; ")
        if differences:
            raise invalid_input(f"{tile} does not match {first}: {differences}. Resample or convert it first")
    west, north = min(layer.west for layer in layers.values()), max(layer.north for layer in layers.values())
    placed = tuple(_place(tile, stacks[tile], layer, west, north) for tile, layer in layers.items())
    _reject_overlaps(placed)
    width = max(stack.column + stack.layer.width for stack in placed)
    height = max(stack.row + stack.layer.height for stack in placed)
    pixels = width * height * len(template.bands)
    if pixels > share.max_pixels:
        raise invalid_input(
            f"the cell has {width:,} x {height:,} pixels in"
            f" {format_count(len(template.bands), 'band')}, {pixels:,} in all:"
            f" at most {share.max_pixels:,} are processed at once (DAGMASTER_RASTER_MAX_PIXELS); choose a"
            " smaller cell"
        )
    return Canvas(width, height, template, west, north, placed)


def _place(tile: str, path: Path, layer: Layer, west: float, north: float) -> PlacedStack:
    column, row = layer.offset(west, north)
    offset = max(abs(column - round(column)), abs(row - round(row)))
    if offset > MAX_OFFSET_PIXELS:
        raise invalid_input(
            f"{tile} is misaligned: its pixels are {offset:.3g} of a pixel off its neighbours' pixels."
            " Expected one grid for all tiles of a cell; resample it first"
        )
    return PlacedStack(tile, path, layer, round(column), round(row))


def _reject_overlaps(placed: Sequence[PlacedStack]) -> None:
    # A cell has a few hundred tiles at most.
    for index, stack in enumerate(placed):
        for other in placed[:index]:
            right = min(stack.column + stack.layer.width, other.column + other.layer.width)
            bottom = min(stack.row + stack.layer.height, other.row + other.layer.height)
            width, height = right - max(stack.column, other.column), bottom - max(stack.row, other.row)
            if width > 0 and height > 0:
                raise invalid_input(
                    f"{other.tile} and {stack.tile} overlap in {width:,} x {height:,} pixels, and neither"
                    " takes precedence. Expected tiles that touch at their edges"
                )


def merge_band(
    canvas: Canvas, band: int, target: Path, share: Share, on_block: Callable[[int, int], None]
) -> None:
    """Write one band of the canvas (counted from 1) as a separate raster."""
    template = canvas.template
    profile = {
        "driver": "GTiff", "width": canvas.width, "height": canvas.height, "count": 1,
        "dtype": template.dtype, "crs": template.crs, "transform": canvas.grid.affine,
        "nodata": template.nodata, "tiled": True, "blockxsize": BLOCK_ROWS, "blockysize": BLOCK_ROWS,
        "compress": "ZSTD", "zstd_level": 1, "predictor": 2, "bigtiff": "if_safer",
    }  # fmt: skip
    block_count = -(-canvas.height // BLOCK_ROWS)
    with contextlib.ExitStack() as exit_stack:
        output = exit_stack.enter_context(rasterio.open(target, "w", **profile))
        rasters = {
            stack: exit_stack.enter_context(open_layer(stack.path, share, stack.tile))
            for stack in canvas.stacks
        }
        for block in range(block_count):
            on_block(block, block_count)
            first, last = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, canvas.height)
            pixels = np.full((last - first, canvas.width), template.nodata, dtype=template.dtype)
            for stack, raster in rasters.items():
                top, bottom = max(first, stack.row), min(last, stack.row + stack.layer.height)
                if top < bottom:
                    window = Window(0, top - stack.row, stack.layer.width, bottom - top)
                    columns = slice(stack.column, stack.column + stack.layer.width)
                    pixels[top - first : bottom - first, columns] = read_window(
                        raster, band, window, stack.tile
                    )
            output.write(pixels, 1, window=Window(0, first, canvas.width, last - first))
    on_block(block_count, block_count)


def combine_bands(
    canvas: Canvas,
    paths: Sequence[Path],
    target: Path,
    *,
    options: CogOptions,
    share: Share,
    tags: Mapping[str, Any],
) -> None:
    """Write the COG of all bands, with `tags` as JSON."""
    bands = dict(zip(canvas.bands, paths, strict=True))
    template = canvas.template
    with open_band_stack(
        canvas.grid, bands, dtype=template.dtype, nodata=template.nodata, unit=UNIT, tags=encode_tags(tags)
    ) as raster:
        write_cog(raster, target, options, share)
