"""Pixel grids: the orientation of a raster, and warping it to north-up or to another CRS.

Later steps rely on north-up: rows from north to south, columns from west to east. A mirrored raster (such as
south-up) is flipped without changing a pixel; a rotated one is resampled. Both happen while the raster is
read.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from affine import Affine
from rasterio.warp import calculate_default_transform, transform_bounds
from rasterio.windows import Window

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import GDAL_ERRORS, parse_crs
from dagmaster.geo.raster.earth_positions import (
    WGS84,
    celestial_body,
    crs_code,
    crs_name,
    height_reference,
    is_on_earth,
)
from dagmaster.geo.raster.footprints import raster_footprint
from dagmaster.geo.raster.georeferences import Georeference, Placement, find_georeference, require_heights
from dagmaster.geo.raster.nodata import choose_nodata
from dagmaster.geo.raster.projection_bounds import normalize_longitudes, require_representable
from dagmaster.geo.raster.vrts import VrtSource, has_mask, is_alpha_last, mask_band, open_vrt
from dagmaster.geo.raster.warped_vrts import warp_to_xml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rasterio.crs import CRS
    from rasterio.io import DatasetReader

    from dagmaster.ports.handler_services import Share

EXACT_TOLERANCE: Final = 0.0
_POINTS_PER_SIDE: Final = 101
_WITHOUT_PLANE: Final = ("GEOCCS[", "VERT_CS[")
_FARTHEST_METRES: Final = 1e9
"""No map of a planet reaches so far: the equator of Jupiter has half of it."""
Orientation = Literal["north-up", "mirrored", "rotated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Pixels in a CRS."""

    crs: CRS
    affine: Affine
    width: int
    height: int

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, bottom, right, top of a north-up grid."""
        a, _, c, _, e, f = tuple(self.affine)[:6]
        return (c, f + e * self.height, c + a * self.width, f)

    def window(self, column: int, row: int, width: int, height: int) -> Grid:
        a, b, c, d, e, f = tuple(self.affine)[:6]
        shifted = Affine(a, b, c + a * column + b * row, d, e, f + d * column + e * row)
        return Grid(crs=self.crs, affine=shifted, width=width, height=height)

    def windows(self, side: int) -> Iterator[Window]:
        """Yield windows of at most `side` pixels in each direction, row by row, that cover the grid."""
        for row in range(0, self.height, side):
            for column in range(0, self.width, side):
                yield Window(column, row, min(side, self.width - column), min(side, self.height - row))


@dataclass(frozen=True, slots=True, kw_only=True)
class Warp:
    """How a raster is warped. Without a `crs` it keeps its own, and only becomes north-up."""

    crs: str | None = None
    resolution: float | None = None
    """The pixel size, in units of the target CRS."""
    resampling: str = "nearest"
    nodata: float | None = None
    """For pixels without a source pixel; by default the source's own value, or NaN for floats."""
    tolerance: float = 0.125
    """The position error in pixels, as GDAL's default; `EXACT_TOLERANCE` is slower."""
    placement: Placement | None = None


def raster_grid(raster: DatasetReader) -> Grid:
    return Grid(crs=raster.crs, affine=raster.transform, width=raster.width, height=raster.height)


def orientation(raster: DatasetReader) -> Orientation:
    a, b, _, d, e, _ = tuple(raster.transform)[:6]
    if b != 0 or d != 0:
        return "rotated"
    return "north-up" if a > 0 > e else "mirrored"


def require_north_up(raster: DatasetReader) -> None:
    """Reject a raster whose windows would not lie where their row and column suggest."""
    actual = orientation(raster)
    if actual != "north-up":
        text = "rotated" if actual == "rotated" else "south-up or mirrored"
        raise invalid_input(
            f"the raster is {text} (geotransform"
            f" {[round(number, 6) for number in tuple(raster.transform)[:6]]}): expected rows from north to"
            " south. raster.reproject and raster.create_cog make it north-up; run one first"
        )


def north_up_grid(raster: DatasetReader) -> Grid:
    """Return the grid of a raster, or the one it would have if it were north-up."""
    a, b, c, d, e, f = tuple(raster.transform)[:6]
    corners = [(a * x + b * y + c, d * x + e * y + f) for x in (0, raster.width) for y in (0, raster.height)]
    left, right = min(x for x, _ in corners), max(x for x, _ in corners)
    bottom, top = min(y for _, y in corners), max(y for _, y in corners)
    if orientation(raster) != "rotated":
        size = (raster.width, raster.height)
        return Grid(
            crs=raster.crs, affine=Affine(abs(a), 0, left, 0, -abs(e), top), width=size[0], height=size[1]
        )
    pixel_width, pixel_height = math.hypot(a, d), math.hypot(b, e)
    size = (math.ceil((right - left) / pixel_width - 1e-9), math.ceil((top - bottom) / pixel_height - 1e-9))
    affine = Affine(pixel_width, 0, left, 0, -pixel_height, top)
    return Grid(crs=raster.crs, affine=affine, width=size[0], height=size[1])


def target_grid(raster: DatasetReader, warp: Warp, share: Share, *, whole: bool = True) -> Grid:
    """Return the grid that a raster is warped to: GDAL's choice, or with the requested resolution.

    `whole`: all its pixels will be written, so their number is limited.
    """
    georeference = find_georeference(raster, warp.placement)
    try:
        source = located_grid(raster, georeference)
        if warp.crs is None and warp.resolution is None:
            return source
        crs = source.crs if warp.crs is None else _parse_target(warp.crs)
        if crs == source.crs and warp.resolution is None:
            return source
        if crs != source.crs:
            _require_same_body(source.crs, crs)
            _require_same_heights(source.crs, crs)
            require_representable(source, crs)
        affine, width, height = _suggest_grid(raster, georeference, source, crs, warp)
    except (*GDAL_ERRORS, ValueError) as error:
        raise invalid_input(
            f"the raster cannot be reprojected from {crs_name(georeference.crs)} to"
            f" {warp.crs or crs_name(georeference.crs)}: expected a CRS that covers its whole extent"
        ) from error
    grid = Grid(crs=crs, affine=affine, width=width, height=height)
    if crs.is_projected and max(map(abs, grid.bounds)) > _FARTHEST_METRES:
        raise invalid_input(
            f"in {crs_name(crs)} a part of the raster would be infinitely far away, as one pole is in maps of"
            " the"
            " other: clip it first with raster.clip to where that CRS is used, or choose another target_crs"
        )
    if not width or not height:
        raise invalid_input(
            f"in {crs_name(crs)} the raster would be {width:,} x {height:,} pixels, less than one high or"
            " wide: choose a finer resolution, or another target_crs"
        )
    if whole and width * height * raster.count > share.max_pixels:
        raise invalid_input(
            f"in {crs_name(crs)} the raster would have {width:,} x {height:,} pixels: at most"
            f" {share.max_pixels:,} are allowed (DAGMASTER_RASTER_MAX_PIXELS). Choose a coarser resolution,"
            " or tile it"
        )
    return grid


def _parse_target(text: str) -> CRS:
    crs = parse_crs(text)
    if crs.to_wkt().startswith(_WITHOUT_PLANE):
        raise invalid_input(
            f"{text[:100]} has no plane or longitudes and latitudes on which pixels could lie: expected a"
            " projected or geographic CRS, such as EPSG:4326"
        )
    return crs


def _require_same_body(source: CRS, target: CRS) -> None:
    bodies = [(is_on_earth(crs), celestial_body(crs)) for crs in (source, target)]
    if bodies[0] != bodies[1]:
        names = ["the Earth" if on_earth else body or "another body" for on_earth, body in bodies]
        raise invalid_input(
            f"{crs_name(source)}, the CRS of the raster, is of {names[0]}, and {crs_name(target)} is of"
            f" {names[1]}: choose a target_crs of {names[0]}"
        )


def _require_same_heights(source: CRS, target: CRS) -> None:
    """Reject a warp to other heights: the values of the pixels would stay as they are."""
    heights = height_reference(source), height_reference(target)
    if None not in heights and heights[0] != heights[1]:
        raise invalid_input(
            f"the heights of the raster refer to {heights[0]}, and {crs_name(target)} to {heights[1]}:"
            " heights are not"
            " transformed. Choose a target_crs without heights, or transform them first, as with gdalwarp"
        )


def located_grid(raster: DatasetReader, georeference: Georeference) -> Grid:
    """Return the north-up grid that a raster covers in the CRS of its georeference."""
    if georeference.kind == "grid":
        return north_up_grid(raster)
    try:
        affine, width, height = georeference.suggest_grid(georeference.crs, raster.width, raster.height, None)
    except (*GDAL_ERRORS, ValueError) as error:
        advice = "" if georeference.dem is None else ", and a dem that covers it with some margin"
        raise invalid_input(
            f"the {georeference.name} of the raster lead to no place: expected ones that describe its whole"
            f" extent{advice}"
        ) from error
    grid = Grid(crs=georeference.crs, affine=affine, width=width, height=height)
    if georeference.dem is not None:
        require_heights(georeference.dem, grid.bounds)
    return grid


def _suggest_grid(
    raster: DatasetReader, georeference: Georeference, source: Grid, crs: CRS, warp: Warp
) -> tuple[Affine, int, int]:
    if georeference.kind != "grid":
        return georeference.suggest_grid(crs, raster.width, raster.height, warp.resolution)
    across = _grid_across_antimeridian(source, crs, warp)
    if across is not None:
        return across
    # Longitudes beyond 180 may continue in another geographic CRS, but no projection represents them.
    normalized = source if crs.is_geographic else normalize_longitudes(source)
    affine, width, height = calculate_default_transform(
        normalized.crs,
        crs,
        normalized.width,
        normalized.height,
        *normalized.bounds,
        resolution=warp.resolution,
    )
    grid = Grid(crs=crs, affine=affine, width=int(width or 0), height=int(height or 0))
    if grid.width and grid.height:
        grid = _fit_to_rim(source, grid, warp)
    return grid.affine, grid.width, grid.height


def _fit_to_rim(source: Grid, grid: Grid, warp: Warp) -> Grid:
    """Return a grid for all of a raster that is partly outside of its projection, and for nothing else.

    GDAL looks at 21 points per side: of a geostationary full disk it leaves out a fifth of the latitudes, and
    a corner of a sinusoidal tile that is not on the Earth takes it around the whole of it.
    """
    footprint = raster_footprint(source.crs, source.affine, source.width, source.height)
    if footprint is None or not footprint.is_partial or footprint.bbox[0] > footprint.bbox[2]:
        return grid
    try:
        left, bottom, right, top = transform_bounds(
            WGS84, grid.crs, *footprint.bbox, densify_pts=_POINTS_PER_SIDE
        )
    except GDAL_ERRORS:
        return grid
    width, height = right - left, top - bottom
    suggested = (grid.affine.a * grid.width, -grid.affine.e * grid.height)
    if not math.isfinite(width + height) or width > 2 * suggested[0] or height > 2 * suggested[1]:
        # The target CRS does not describe such a part of the Earth.
        return grid
    pixel = min(grid.affine.a, math.hypot(width, height) / math.hypot(source.width, source.height))
    pixel = warp.resolution or pixel
    size = (max(1, math.ceil(width / pixel)), max(1, math.ceil(height / pixel)))
    return Grid(crs=grid.crs, affine=Affine(pixel, 0, left, 0, -pixel, top), width=size[0], height=size[1])


def _grid_across_antimeridian(source: Grid, crs: CRS, warp: Warp) -> tuple[Affine, int, int] | None:
    """Return a grid in degrees beyond 180 for a raster that continues there: GDAL's would span the Earth."""
    if not crs.is_geographic or source.crs.is_geographic:
        return None
    footprint = raster_footprint(source.crs, source.affine, source.width, source.height)
    if footprint is None or footprint.bbox[0] <= footprint.bbox[2]:
        return None
    west, south, east, north = footprint.bbox
    width, height = east + 360 - west, north - south
    # As GDAL chooses it: as many pixels along the diagonal as the source has.
    pixel = warp.resolution or math.hypot(width, height) / math.hypot(source.width, source.height)
    size = (max(1, math.ceil(width / pixel)), max(1, math.ceil(height / pixel)))
    return (Affine(pixel, 0, west, 0, -pixel, north), *size)


@contextlib.contextmanager
def open_warped(raster: DatasetReader, grid: Grid, warp: Warp) -> Iterator[Any]:
    """Open the raster on this grid, warped block by block; unchanged if it already has that grid.

    Names, units and colours of its bands are kept. Pixels without a source pixel are nodata; where an integer
    type has no nodata value, they are masked. Pixels that the source masks stay masked.
    """
    georeference = find_georeference(raster, warp.placement)
    is_grid = georeference.kind == "grid"
    size = (grid.width, grid.height)
    if is_grid and grid == raster_grid(raster):
        if warp.nodata in (None, raster.nodata):
            yield raster
            return
        # Another nodata value changes no pixel.
        vrt_source = VrtSource(path=raster.name, size=size, window=(0, 0, *size), mask=mask_band(raster))
        nodata = choose_nodata(raster.nodata, warp.nodata, raster.dtypes)
        with open_vrt(raster, grid, [vrt_source], nodata=nodata) as result:
            yield result
        return
    is_flip = is_grid and orientation(raster) == "mirrored" and grid == north_up_grid(raster)
    nodata = _warp_nodata(raster, warp, is_flip=is_flip)
    add_mask = nodata is None and not is_alpha_last(raster) and (has_mask(raster) or not is_flip)
    if is_grid and grid.crs != raster.crs:
        normalized = normalize_longitudes(raster_grid(raster))
        georeference = replace(georeference, crs=normalized.crs, affine=normalized.affine)
    xml = warp_to_xml(
        raster,
        georeference,
        grid,
        resampling="nearest" if is_flip else warp.resampling,
        tolerance=EXACT_TOLERANCE if is_flip else warp.tolerance,
        nodata=nodata,
        add_mask=add_mask,
    )
    mask = str(raster.count + 1) if add_mask else None
    vrt_source = VrtSource(path=xml, size=size, window=(0, 0, *size), mask=mask)
    with open_vrt(raster, grid, [vrt_source], nodata=nodata) as result:
        yield result


def crs_text(crs: CRS) -> str:
    """Return `EPSG:32625` if the CRS has a code, else WKT."""
    return crs_code(crs) or str(crs.to_wkt())


def _warp_nodata(raster: DatasetReader, warp: Warp, *, is_flip: bool) -> float | None:
    """Return the value of pixels without a source pixel. Zeros would look like measurements."""
    nodata = choose_nodata(raster.nodata, warp.nodata, raster.dtypes)
    if nodata is None and not is_flip and not is_alpha_last(raster) and has_nan(raster.dtypes[0]):
        nodata = math.nan
    return nodata


def has_nan(dtype: str) -> bool:
    """Return whether a GDAL data type can represent NaN."""
    return dtype != "complex_int16" and np.dtype(dtype).kind == "f"
