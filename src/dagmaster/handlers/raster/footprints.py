"""Where on Earth a raster lies: its outline and its bounding box, in longitude and latitude.

As GeoJSON wants it: what crosses the antimeridian is cut there into two polygons, and its box has west beyond east.
What holds a pole reaches from -180 to 180.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import shapely
from rasterio.crs import CRS
from rasterio.warp import transform, transform_bounds
from shapely.affinity import translate

from dagmaster.handlers.gdal import GDAL_ERRORS, invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from affine import Affine

WGS84: Final = CRS.from_string("OGC:CRS84")
_EDGE: Final = 21
"""Points on each side: a straight side in UTM is a curve in degrees."""
_DIGITS: Final = 7
"""One centimetre."""
_TURN: Final = 360.0
_CLOSE: Final = 1e-6
"""Degrees, ten centimetres: what rounding makes of an edge at 180."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """A place on Earth. `bbox` is west, south, east, north."""

    geometry: dict[str, Any]
    bbox: list[float]


def footprint(crs: CRS, affine: Affine, width: int, height: int) -> Footprint:
    """The footprint of a grid of pixels."""
    corners = [(0.0, 0.0), (float(width), 0.0), (float(width), float(height)), (0.0, float(height))]
    a, b, c, d, e, f = tuple(affine)[:6]
    return _footprint(crs, [(a * x + b * y + c, d * x + e * y + f) for x, y in _densified(corners)])


def footprint_of_bounds(crs: CRS, bounds: Sequence[float]) -> Footprint:
    """The footprint of a box: left, bottom, right, top."""
    left, bottom, right, top = bounds
    return _footprint(crs, _densified([(left, top), (right, top), (right, bottom), (left, bottom)]))


def _footprint(crs: CRS, ring: list[tuple[float, float]]) -> Footprint:
    box = (min(x for x, _ in ring), min(y for _, y in ring), max(x for x, _ in ring), max(y for _, y in ring))
    outer = unwrapped(_degrees(crs, ring))
    # Some of the outline is nowhere, or it goes once around the Earth: GDAL's own box says how far it reaches.
    if not outer or abs(outer[-1][0] - outer[0][0]) > 1:
        try:
            west, south, east, north = transform_bounds(crs, WGS84, *box, densify_pts=_EDGE)
        except GDAL_ERRORS as error:
            raise nowhere(crs) from error
        if not all(math.isfinite(one) for one in (west, south, east, north)):
            raise nowhere(crs)
        outer = _rectangle(west, south, east + (_TURN if east < west else 0), north)
    outline = shapely.Polygon([(_snapped(x), min(90.0, max(-90.0, y))) for x, y in outer])
    left, bottom, right, top = outline.bounds
    if right - left >= _TURN - 1e-9:
        outline = shapely.Polygon(_rectangle(-180, bottom, 180, top))
        return Footprint(geometry=_geojson([outline]), bbox=_rounded([-180, bottom, 180, top]))
    # A few metres of ten kilometres: what a picture or a search needs.
    outline = outline.simplify(max(right - left, top - bottom) * 1e-4)
    if not outline.is_valid or outline.is_empty:
        outline = shapely.Polygon(_rectangle(left, bottom, right, top))
    parts = [
        translate(cut, xoff=-_TURN * turn)
        for turn in (-1, 0, 1)
        if (cut := outline.intersection(shapely.box(_TURN * turn - 180, -90, _TURN * turn + 180, 90))).area > 0
    ]
    return Footprint(geometry=_geojson(parts), bbox=_rounded([_wrapped(left), bottom, _wrapped(right, end=True), top]))


def _degrees(crs: CRS, ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The ring in longitude and latitude; nothing where some of it is beyond what the coordinate system can hold."""
    try:
        xs, ys = transform(crs, WGS84, [x for x, _ in ring], [y for _, y in ring])
    except GDAL_ERRORS:
        return []
    return list(zip(xs, ys, strict=True)) if all(math.isfinite(one) for one in (*xs, *ys)) else []


def _densified(corners: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The ring through these corners, closed, with points on its sides."""
    points = []
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        points += [(x0 + (x1 - x0) * step / _EDGE, y0 + (y1 - y0) * step / _EDGE) for step in range(_EDGE)]
    return [*points, corners[0]]


def unwrapped(ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same ring without a jump over the antimeridian: longitudes may go beyond 180."""
    out: list[tuple[float, float]] = []
    for x, y in ring:
        near = x if not out else x + _TURN * round((out[-1][0] - x) / _TURN)
        out.append((near, y))
    return out


def _snapped(longitude: float) -> float:
    """A longitude that is 180 but for rounding is 180: a sliver beyond is nowhere."""
    edge = _TURN * round((longitude - 180) / _TURN) + 180
    return edge if abs(longitude - edge) < _CLOSE else longitude


def _rectangle(west: float, south: float, east: float, north: float) -> list[tuple[float, float]]:
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def _wrapped(longitude: float, *, end: bool = False) -> float:
    """A longitude from -180 to 180. The eastern end of a box may be 180, its western end -180."""
    inside = (longitude + 180) % _TURN - 180
    return inside + _TURN if end and inside == -_TURN / 2 else inside


def _rounded(bbox: list[float]) -> list[float]:
    return [round(one, _DIGITS) for one in bbox]


def _geojson(parts: Sequence[Any]) -> dict[str, Any]:
    polygons = [one for part in parts for one in getattr(part, "geoms", [part]) if one.geom_type == "Polygon"]
    rings = [
        [[[round(x, _DIGITS), round(y, _DIGITS)] for x, y in shapely.normalize(one).reverse().exterior.coords]]
        for one in polygons
    ]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}


def nowhere(crs: CRS) -> Exception:
    """The refusal of a coordinate system that is nowhere on Earth, as a builder's own."""
    return invalid(
        f"the coordinate system {crs_name(crs)} cannot be turned into longitude and latitude: nobody can tell where the"
        " raster lies. Expected one with an EPSG code or a full WKT; set it with gdal_edit.py -a_srs EPSG:… first"
    )


def crs_name(crs: CRS) -> str:
    """`EPSG:32625` where there is a code, else the name that stands in its WKT."""
    code = crs.to_epsg()
    if code is not None:
        return f"EPSG:{code}"
    text = crs.to_wkt()
    return repr(text[text.find('"') + 1 :].partition('"')[0] or text[:60])
