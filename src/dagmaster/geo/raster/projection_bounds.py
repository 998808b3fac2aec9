"""Where projections end: at a meridian, usually 180 degrees, and Mercator before the poles.

A raster that a projection cannot represent is rejected before any pixel is written: GDAL would stretch it
around the whole Earth, or beyond.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from affine import Affine
from rasterio.crs import CRS
from rasterio.warp import transform

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import GDAL_ERRORS
from dagmaster.geo.raster.earth_positions import WGS84, crs_name
from dagmaster.geo.raster.footprints import raster_footprint
from dagmaster.geo.rules.bounding_boxes import wrap_longitude

if TYPE_CHECKING:
    from dagmaster.geo.raster.grids import Grid

_FULL_CIRCLE: Final = 360.0
_HALF_CIRCLE: Final = 180.0
_ROUNDING: Final = 1e-6
"""Degrees: about 10 cm."""
_MERCATOR: Final = ("merc", "webmerc")
_MERCATOR_LIMIT: Final = 85.06
"""Degrees of latitude: where the map is square. The poles are infinitely far away."""
_TORN_METRES: Final = 1_000_000
"""The distance between two neighbours above which the map is discontinuous between them."""
_GREENWICH: Final = re.compile(r'PRIMEM\["Greenwich",0(?:,AUTHORITY\["[^"]*","[^"]*"\])?\]')
_OWN_CODE: Final = re.compile(r',AUTHORITY\["[^"]*","[^"]*"\]\]$')


def require_representable(source: Grid, crs: CRS) -> None:
    """Reject what a projection cannot represent: poles in Mercator, rasters on both sides of its boundary."""
    footprint = raster_footprint(source.crs, source.affine, source.width, source.height)
    if footprint is None:
        # The limits below are limits of maps of the Earth.
        return
    west, south, east, north = footprint.bbox
    proj = crs.to_dict()
    # Clipping keeps whole pixels: one may reach slightly beyond.
    slack = min((north - south) / source.height, 1.0)
    if proj.get("proj") in _MERCATOR and max(north, -south) > _MERCATOR_LIMIT + slack:
        raise invalid_input(
            f"the raster reaches from latitude {south:g} to {north:g}, beyond what {crs_name(crs)} can"
            f" represent: Mercator ends at {_MERCATOR_LIMIT} degrees, the poles are infinitely far away."
            f" {_clip_advice(source, [west, south, east, north])}, or choose another target_crs"
        )
    edge = wrap_longitude(float(proj.get("lon_0", 0)) + _HALF_CIRCLE)
    span = (east - west) % _FULL_CIRCLE or _FULL_CIRCLE
    is_across = _ROUNDING < (edge - west) % _FULL_CIRCLE < span - _ROUNDING
    if is_across and span < _HALF_CIRCLE and _is_torn(crs, edge, (south + north) / 2):
        raise invalid_input(
            f"the raster lies on both sides of {abs(edge):g} degrees{_side(edge)}, where the projection of"
            f" {crs_name(crs)} ends: its halves would be at opposite ends of the map. Choose a target_crs"
            " that is continuous there, such as"
            f" {_split_advice(source) if abs(edge) == _HALF_CIRCLE else 'a UTM zone'}"
        )


def normalize_longitudes(source: Grid) -> Grid:
    """Return a grid in degrees beyond 180 with all longitudes from -180 to 180, as PROJ expects.

    A grid entirely beyond 180 is shifted by 360 degrees; one on both sides gets a prime meridian in its
    middle.
    """
    a, b, c, *_ = tuple(source.affine)
    corners = [c + a * x + b * y for x in (0, source.width) for y in (0, source.height)]
    left, right = min(corners), max(corners)
    if not source.crs.is_geographic or (
        left >= -_HALF_CIRCLE - _ROUNDING and right <= _HALF_CIRCLE + _ROUNDING
    ):
        return source
    middle = (left + right) / 2
    turns = _FULL_CIRCLE * math.floor((middle + _HALF_CIRCLE) / _FULL_CIRCLE)
    if left - turns >= -_HALF_CIRCLE - _ROUNDING and right - turns <= _HALF_CIRCLE + _ROUNDING:
        return replace(source, affine=_shift(source.affine, -turns))
    meridian = wrap_longitude(middle)
    text, count = _GREENWICH.subn(f'PRIMEM["its own",{meridian!r}]', source.crs.to_wkt())
    if count != 1 or not text.startswith("GEOGCS["):
        return source
    return replace(source, crs=CRS.from_wkt(_OWN_CODE.sub("]", text)), affine=_shift(source.affine, -middle))


def _shift(affine: Affine, by: float) -> Affine:
    a, b, c, d, e, f = tuple(affine)[:6]
    return Affine(a, b, c + by, d, e, f)


def _side(longitude: float) -> str:
    if abs(longitude) == _HALF_CIRCLE:
        return ""
    return " east" if longitude > 0 else " west"


def _is_torn(crs: CRS, edge: float, latitude: float) -> bool:
    """Return whether two close points on both sides of a meridian are far apart in a projection."""
    try:
        xs, ys = transform(WGS84, crs, [edge - 1e-4, edge + 1e-4], [latitude, latitude])
    except GDAL_ERRORS:
        return False
    return math.hypot(xs[1] - xs[0], ys[1] - ys[0]) > _TORN_METRES


def _clip_advice(source: Grid, bbox: list[float]) -> str:
    """Suggest a bbox of whole pixels, none of them beyond the limit."""
    if not source.crs.is_geographic:
        return f"Reproject it to EPSG:4326 and clip it to {_MERCATOR_LIMIT} degrees with raster.clip first"
    west, _, east, _ = bbox
    _, bottom, _, top = source.bounds
    pixel = abs(source.affine.e)
    north = top - pixel * max(0, math.ceil((top - _MERCATOR_LIMIT) / pixel - _ROUNDING))
    south = bottom + pixel * max(0, math.ceil((-_MERCATOR_LIMIT - bottom) / pixel - _ROUNDING))
    return f"Clip it first with raster.clip, bbox={_format_bbox([west, south, east, north])}"


def _split_advice(source: Grid) -> str:
    """Suggest two bboxes of whole pixels, one on each side of 180.

    A pixel column across 180 is in neither.
    """
    if not source.crs.is_geographic:
        return (
            "EPSG:3832 or a UTM zone; or reproject it to EPSG:4326 first,"
            " and split that at 180 with raster.clip"
        )
    left, south, right, north = source.bounds
    pixel = abs(source.affine.a)
    column = ((_HALF_CIRCLE - left) % _FULL_CIRCLE) / pixel
    end = left + math.floor(column + _ROUNDING) * pixel
    start = left + math.ceil(column - _ROUNDING) * pixel
    first = _format_bbox([wrap_longitude(left), south, wrap_longitude(end, is_east=True), north])
    second = _format_bbox([wrap_longitude(start), south, wrap_longitude(right, is_east=True), north])
    return f"EPSG:3832 or a UTM zone; or split it with raster.clip, bbox={first} and bbox={second}"


def _format_bbox(bbox: list[float]) -> str:
    return f"[{', '.join(f'{round(side, 11):.14g}' for side in bbox)}]"
