"""Where maps end: at a meridian, mostly 180 degrees, and those of Mercator before the poles.

What a map cannot show is refused before a pixel is made: GDAL would stretch it over the whole Earth, or beyond.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from affine import Affine
from rasterio.crs import CRS
from rasterio.warp import transform

from dagmaster.handlers.gdal import GDAL_ERRORS, invalid
from dagmaster.handlers.raster.footprints import WGS84, crs_name, footprint

if TYPE_CHECKING:
    from dagmaster.handlers.raster.grids import Grid

_TURN: Final = 360.0
_HALF: Final = 180.0
_CLOSE: Final = 1e-6
"""Degrees, ten centimetres."""
_MERCATOR: Final = ("merc", "webmerc")
_MERCATOR_END: Final = 85.06
"""Degrees: where the map is a square. The pole is infinitely far away."""
_TORN: Final = 1_000_000
"""Metres between two neighbours, on a map that ends between them."""
_GREENWICH: Final = re.compile(r'PRIMEM\["Greenwich",0(?:,AUTHORITY\["[^"]*","[^"]*"\])?\]')
_OWN_CODE: Final = re.compile(r',AUTHORITY\["[^"]*","[^"]*"\]\]$')


def require_shown(source: Grid, crs: CRS) -> None:
    """Refuse what a map cannot show: poles on one of Mercator, and what lies on both sides of its edge."""
    west, south, east, north = footprint(source.crs, source.affine, source.width, source.height).bbox
    known = crs.to_dict()
    # Whole pixels are cut: one may reach a little beyond.
    slack = min((north - south) / source.height, 1.0)
    if known.get("proj") in _MERCATOR and max(north, -south) > _MERCATOR_END + slack:
        raise invalid(
            f"the raster reaches from {south:g} to {north:g} degrees north, beyond what {crs_name(crs)} can show:"
            f" Mercator's map ends at {_MERCATOR_END} degrees, the poles are infinitely far away."
            f" {_clip_advice(source, [west, south, east, north])}, or choose another target_crs"
        )
    edge = _within(float(known.get("lon_0", 0)) + _HALF)
    span = (east - west) % _TURN or _TURN
    is_across = _CLOSE < (edge - west) % _TURN < span - _CLOSE
    if is_across and span < _HALF and _is_torn(crs, edge, (south + north) / 2):
        raise invalid(
            f"the raster lies on both sides of {abs(edge):g} degrees{_side(edge)}, where the map of {crs_name(crs)}"
            " ends: its halves would be at the map's two ends. Choose a target_crs that goes on there, as"
            f" {_split_advice(source) if abs(edge) == _HALF else 'a UTM zone'}"
        )


def within_a_turn(source: Grid) -> Grid:
    """A grid in degrees that goes on beyond 180, as PROJ has its coordinates: all from -180 to 180.

    One that lies beyond is moved by a turn. One that lies on both sides is counted from a meridian in its middle.
    """
    a, b, c, *_ = tuple(source.affine)
    corners = [c + a * x + b * y for x in (0, source.width) for y in (0, source.height)]
    left, right = min(corners), max(corners)
    if not source.crs.is_geographic or (left >= -_HALF - _CLOSE and right <= _HALF + _CLOSE):
        return source
    middle = (left + right) / 2
    turns = _TURN * math.floor((middle + _HALF) / _TURN)
    if left - turns >= -_HALF - _CLOSE and right - turns <= _HALF + _CLOSE:
        return replace(source, affine=_moved(source.affine, -turns))
    meridian = _within(middle)
    text, count = _GREENWICH.subn(f'PRIMEM["its own",{meridian!r}]', source.crs.to_wkt())
    if count != 1 or not text.startswith("GEOGCS["):
        return source
    return replace(source, crs=CRS.from_wkt(_OWN_CODE.sub("]", text)), affine=_moved(source.affine, -middle))


def _moved(affine: Affine, by: float) -> Affine:
    a, b, c, d, e, f = tuple(affine)[:6]
    return Affine(a, b, c + by, d, e, f)


def _within(longitude: float, *, end: bool = False) -> float:
    """A longitude from -180 to 180. The eastern end of a box may be 180, its western end -180."""
    inside = (longitude + _HALF) % _TURN - _HALF
    if min(inside + _HALF, _HALF - inside) < _CLOSE:
        return _HALF if end else -_HALF
    return inside


def _side(longitude: float) -> str:
    if abs(longitude) == _HALF:
        return ""
    return " east" if longitude > 0 else " west"


def _is_torn(crs: CRS, edge: float, latitude: float) -> bool:
    """Whether two places close to each other, on both sides of a meridian, are far apart on a map."""
    try:
        xs, ys = transform(WGS84, crs, [edge - 1e-4, edge + 1e-4], [latitude, latitude])
    except GDAL_ERRORS:
        return False
    return math.hypot(xs[1] - xs[0], ys[1] - ys[0]) > _TORN


def _clip_advice(source: Grid, bbox: list[float]) -> str:
    """A box of whole pixels, none of them beyond the end."""
    if not source.crs.is_geographic:
        return f"Bring it to EPSG:4326 and clip it to {_MERCATOR_END} degrees with raster.clip first"
    west, _, east, _ = bbox
    _, bottom, _, top = source.bounds
    pixel = abs(source.affine.e)
    north = top - pixel * max(0, math.ceil((top - _MERCATOR_END) / pixel - _CLOSE))
    south = bottom + pixel * max(0, math.ceil((-_MERCATOR_END - bottom) / pixel - _CLOSE))
    return f"Clip it first with raster.clip, bbox={_box([west, south, east, north])}"


def _split_advice(source: Grid) -> str:
    """Two boxes of whole pixels, one on each side of 180. A column of pixels that lies on both is in none."""
    if not source.crs.is_geographic:
        return "EPSG:3832 or a UTM zone; or bring it to EPSG:4326 first, and split that at 180 with raster.clip"
    left, south, right, north = source.bounds
    pixel = abs(source.affine.a)
    column = ((_HALF - left) % _TURN) / pixel
    ends, begins = left + math.floor(column + _CLOSE) * pixel, left + math.ceil(column - _CLOSE) * pixel
    first = [_within(left), south, _within(ends, end=True), north]
    second = [_within(begins), south, _within(right, end=True), north]
    return f"EPSG:3832 or a UTM zone; or split it with raster.clip, bbox={_box(first)} and bbox={_box(second)}"


def _box(bbox: list[float]) -> str:
    return f"[{', '.join(f'{round(one, 11):.14g}' for one in bbox)}]"
