"""Grids of pixels: how a raster stands, and how it is warped to stand north-up or in another coordinate system.

North-up is what later steps count on: rows from north to south, columns from west to east. A mirrored raster (as
south-up) is turned without a change to any pixel; a rotated one is resampled. Both are warped on the way, not before.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from affine import Affine
from rasterio.enums import Resampling
from rasterio.vrt import WarpedVRT
from rasterio.warp import calculate_default_transform

from dagmaster.handlers.gdal import GDAL_ERRORS, crs_of, invalid
from dagmaster.handlers.raster.footprints import crs_name, footprint
from dagmaster.handlers.raster.nodata import agreed
from dagmaster.handlers.raster.projection_bounds import require_shown, within_a_turn
from dagmaster.handlers.raster.vrts import Part, composed, has_alpha, has_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rasterio.crs import CRS
    from rasterio.io import DatasetReader

    from dagmaster.ports.handler_services import Share

EXACT: Final = 1e-6
"""With 0 rasterio gives GDAL no transformer, and the warp fails."""
Standing = Literal["north-up", "mirrored", "rotated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Pixels on the Earth."""

    crs: CRS
    affine: Affine
    width: int
    height: int

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, bottom, right, top of a grid that stands north-up."""
        a, _, c, _, e, f = tuple(self.affine)[:6]
        return (c, f + e * self.height, c + a * self.width, f)

    def window(self, column: int, row: int, width: int, height: int) -> Grid:
        """A part of it."""
        a, b, c, d, e, f = tuple(self.affine)[:6]
        moved = Affine(a, b, c + a * column + b * row, d, e, f + d * column + e * row)
        return Grid(crs=self.crs, affine=moved, width=width, height=height)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warp:
    """How a raster is warped. Without a `crs` it keeps its own, and is only put north-up."""

    crs: str | None = None
    resolution: float | None = None
    """Of a pixel, in units of the target."""
    resampling: str = "nearest"
    nodata: float | None = None
    """For pixels that no source pixel reaches; else the source's own, or NaN where there is a NaN."""
    tolerance: float = 0.125
    """In pixels, of the place that a pixel is read from. As GDAL has it; `EXACT` is slower."""


def grid_of(raster: DatasetReader) -> Grid:
    """The grid that a raster has."""
    return Grid(crs=raster.crs, affine=raster.transform, width=raster.width, height=raster.height)


def require_place(raster: DatasetReader) -> None:
    """Refuse what has no place on Earth."""
    points, crs = raster.gcps
    if raster.crs is None and points:
        raise invalid(
            f"the raster is placed by {len(points)} ground control points ({crs}) and not by a grid: warp it first, as"
            " with gdalwarp -t_srs EPSG:…"
        )
    if raster.crs is None:
        raise invalid(
            "the raster has no coordinate system (CRS): nobody can tell where it lies. Expected a GeoTIFF with an EPSG"
            " code or WKT; set it with gdal_edit.py -a_srs EPSG:… first"
        )
    if raster.transform == Affine.identity():
        raise invalid(
            f"the raster has a coordinate system ({crs_text(raster.crs)[:60]}) and no geotransform: its pixels have no"
            " place. Set it with gdal_edit.py -a_ullr … first"
        )
    if raster.transform.determinant == 0:
        raise invalid("the raster's geotransform gives its pixels no area: set it with gdal_edit.py -a_ullr … first")
    if raster.count == 0:
        raise invalid("the raster has no bands")


def standing(raster: DatasetReader) -> Standing:
    """How its rows and columns lie."""
    a, b, _, d, e, _ = tuple(raster.transform)[:6]
    if b != 0 or d != 0:
        return "rotated"
    return "north-up" if a > 0 > e else "mirrored"


def require_north_up(raster: DatasetReader) -> None:
    """Refuse a raster whose windows would lie elsewhere than they seem."""
    how = standing(raster)
    if how != "north-up":
        said = "rotated" if how == "rotated" else "south-up or mirrored"
        raise invalid(
            f"the raster is {said} (geotransform {[round(one, 6) for one in tuple(raster.transform)[:6]]}): expected"
            " rows from north to south. raster.reproject and raster.create_cog put it north-up; do that first"
        )


def north_up(raster: DatasetReader) -> Grid:
    """The grid that the raster has, or would have if it stood north-up."""
    a, b, c, d, e, f = tuple(raster.transform)[:6]
    corners = [(a * x + b * y + c, d * x + e * y + f) for x in (0, raster.width) for y in (0, raster.height)]
    left, right = min(x for x, _ in corners), max(x for x, _ in corners)
    bottom, top = min(y for _, y in corners), max(y for _, y in corners)
    if standing(raster) != "rotated":
        size = (raster.width, raster.height)
        return Grid(crs=raster.crs, affine=Affine(abs(a), 0, left, 0, -abs(e), top), width=size[0], height=size[1])
    across, down = math.hypot(a, d), math.hypot(b, e)
    size = (math.ceil((right - left) / across - 1e-9), math.ceil((top - bottom) / down - 1e-9))
    return Grid(crs=raster.crs, affine=Affine(across, 0, left, 0, -down, top), width=size[0], height=size[1])


def target_grid(raster: DatasetReader, warp: Warp, share: Share, *, whole: bool = True) -> Grid:
    """The grid that a raster is warped to: as GDAL chooses it, or with the resolution that is asked for.

    `whole`: all of its pixels will be made, so their number is limited.
    """
    source = north_up(raster)
    if warp.crs is None and warp.resolution is None:
        return source
    crs = source.crs if warp.crs is None else crs_of(warp.crs)
    if crs == source.crs and warp.resolution is None:
        return source
    if crs != source.crs:
        require_shown(source, crs)
    # Degrees beyond 180 may go on in other degrees. No map has a place for them.
    counted = source if crs.is_geographic else within_a_turn(source)
    try:
        affine, width, height = _across(source, crs, warp) or calculate_default_transform(
            counted.crs, crs, counted.width, counted.height, *counted.bounds, resolution=warp.resolution
        )
    except (*GDAL_ERRORS, ValueError) as error:
        raise invalid(
            f"the raster cannot be brought from {crs_name(source.crs)} to {crs_name(crs)}: expected a coordinate"
            " system that holds its whole extent"
        ) from error
    if not width or not height:
        raise invalid(
            f"in {crs_name(crs)} the raster would be {width:,} x {height:,} pixels, less than one high or wide: give a"
            " finer resolution, or another target_crs"
        )
    if whole and width * height * raster.count > share.max_pixels:
        raise invalid(
            f"in {crs_name(crs)} the raster would have {width:,} x {height:,} pixels: at most"
            f" {share.max_pixels:,} are made (DAGMASTER_RASTER_MAX_PIXELS). Give a coarser resolution, or tile it"
        )
    return Grid(crs=crs, affine=affine, width=width, height=height)


def _across(source: Grid, crs: CRS, warp: Warp) -> tuple[Affine, int, int] | None:
    """A grid in degrees that goes on beyond 180, for a raster that does: GDAL's own would reach around the Earth."""
    if not crs.is_geographic or source.crs.is_geographic:
        return None
    west, south, east, north = footprint(source.crs, source.affine, source.width, source.height).bbox
    if west <= east:
        return None
    across, down = east + 360 - west, north - south
    # As GDAL chooses it: as many pixels along the diagonal as there were.
    pixel = warp.resolution or math.hypot(across, down) / math.hypot(source.width, source.height)
    size = (max(1, math.ceil(across / pixel)), max(1, math.ceil(down / pixel)))
    return (Affine(pixel, 0, west, 0, -pixel, north), *size)


@contextlib.contextmanager
def warped(raster: DatasetReader, grid: Grid, warp: Warp) -> Iterator[Any]:
    """The raster on this grid, warped block by block as it is read; as it is, where it has that grid already.

    Names, units and colours of its bands are kept. Pixels that no pixel of the source reaches are nodata; where whole
    numbers have no such value, they are masked. So are those that the source had masked.
    """
    if grid == grid_of(raster) and warp.nodata in (None, raster.nodata):
        yield raster
        return
    exact = standing(raster) == "mirrored" and grid == north_up(raster)
    nodata = _nodata(raster, warp, exact=exact)
    is_masked = nodata is None and not has_alpha(raster) and (has_mask(raster) or not exact)
    known = {} if nodata is None else {"nodata": nodata}
    there = grid_of(raster) if grid.crs == raster.crs else within_a_turn(grid_of(raster))
    with WarpedVRT(
        raster,
        src_crs=there.crs,
        src_transform=there.affine,
        crs=grid.crs,
        transform=grid.affine,
        width=grid.width,
        height=grid.height,
        resampling=Resampling.nearest if exact else Resampling[warp.resampling],
        tolerance=EXACT if exact else warp.tolerance,
        add_alpha=is_masked,
        **known,
        **({} if raster.nodata is None else {"src_nodata": raster.nodata}),
    ) as there:
        text = there.tags(ns="xml:VRT")["xml:VRT"]
        size = (grid.width, grid.height)
        part = Part(path=text, size=size, window=(0, 0, *size), mask=str(raster.count + 1) if is_masked else None)
        with composed(raster, grid, [part], nodata=nodata) as kept:
            yield kept


def crs_text(crs: CRS) -> str:
    """`EPSG:32625` where there is a code, else WKT."""
    code = crs.to_epsg()
    return str(crs.to_wkt()) if code is None else f"EPSG:{code}"


def _nodata(raster: DatasetReader, warp: Warp, *, exact: bool) -> float | None:
    """What stands where no pixel of the source is. Zeros would look like measurements."""
    wanted = agreed(raster.nodata, warp.nodata, raster.dtypes)
    if wanted is None and not exact and is_float(raster.dtypes[0]):
        wanted = math.nan
    return wanted


def is_float(kind: str) -> bool:
    """Whether a data type, in GDAL's names, has a NaN of its own."""
    return kind != "complex_int16" and np.dtype(kind).kind == "f"
