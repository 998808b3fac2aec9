"""The footprint of a raster: its outline and bounding box in longitude and latitude.

As GeoJSON asks, an outline across the antimeridian is cut there into two polygons, and its bbox has west greater than
east. A footprint that contains a pole reaches from -180 to 180.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import shapely
from rasterio.crs import CRS
from rasterio.warp import transform, transform_bounds
from shapely.affinity import translate

from dagmaster.errors import invalid_input
from dagmaster.geo.bounding_boxes import wrap_longitude
from dagmaster.handlers.gdal import GDAL_ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from affine import Affine

WGS84: Final = CRS.from_string("OGC:CRS84")
_POINTS_PER_SIDE: Final = 21
"""A straight side in UTM is a curve in degrees."""
_DIGITS: Final = 7
"""Decimal places: one centimetre."""
_FULL_CIRCLE: Final = 360.0
_ROUNDING: Final = 1e-6
"""Degrees, about 10 cm: the rounding error of an edge at 180."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """An outline and its bbox: west, south, east, north."""

    geometry: dict[str, Any]
    bbox: list[float]


def raster_footprint(crs: CRS, affine: Affine, width: int, height: int) -> Footprint:
    """Return the footprint of a pixel grid."""
    corners = [(0.0, 0.0), (float(width), 0.0), (float(width), float(height)), (0.0, float(height))]
    a, b, c, d, e, f = tuple(affine)[:6]
    return _ring_footprint(crs, [(a * x + b * y + c, d * x + e * y + f) for x, y in _densify(corners)])


def bounds_footprint(crs: CRS, bounds: Sequence[float]) -> Footprint:
    """Return the footprint of a rectangle: left, bottom, right, top."""
    left, bottom, right, top = bounds
    return _ring_footprint(crs, _densify([(left, top), (right, top), (right, bottom), (left, bottom)]))


def _ring_footprint(crs: CRS, ring: list[tuple[float, float]]) -> Footprint:
    box = (min(x for x, _ in ring), min(y for _, y in ring), max(x for x, _ in ring), max(y for _, y in ring))
    outer = unwrap_longitudes(_to_degrees(crs, ring))
    # The outline is partly undefined, or goes once around the Earth: use the bounds that GDAL computes.
    if not outer or abs(outer[-1][0] - outer[0][0]) > 1:
        try:
            west, south, east, north = transform_bounds(crs, WGS84, *box, densify_pts=_POINTS_PER_SIDE)
        except GDAL_ERRORS as error:
            raise unlocatable(crs) from error
        if not all(math.isfinite(side) for side in (west, south, east, north)):
            raise unlocatable(crs)
        outer = _rectangle(west, south, east + (_FULL_CIRCLE if east < west else 0), north)
    outline = shapely.Polygon([(_snap_to_antimeridian(x), min(90.0, max(-90.0, y))) for x, y in outer])
    left, bottom, right, top = outline.bounds
    if right - left >= _FULL_CIRCLE - 1e-9:
        outline = shapely.Polygon(_rectangle(-180, bottom, 180, top))
        return Footprint(geometry=_to_geojson([outline]), bbox=_round_bbox([-180, bottom, 180, top]))
    # Deviate by at most 1/10,000 of the extent: enough for a map or a search.
    outline = outline.simplify(max(right - left, top - bottom) * 1e-4)
    if not outline.is_valid or outline.is_empty:
        outline = shapely.Polygon(_rectangle(left, bottom, right, top))
    parts = [
        translate(cut, xoff=-_FULL_CIRCLE * turn)
        for turn in (-1, 0, 1)
        if (
            cut := outline.intersection(shapely.box(_FULL_CIRCLE * turn - 180, -90, _FULL_CIRCLE * turn + 180, 90))
        ).area
        > 0
    ]
    return Footprint(
        geometry=_to_geojson(parts),
        bbox=_round_bbox([wrap_longitude(left), bottom, wrap_longitude(right, is_east=True), top]),
    )


def _to_degrees(crs: CRS, ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Transform a ring to longitude and latitude; return an empty one if any point is undefined."""
    try:
        xs, ys = transform(crs, WGS84, [x for x, _ in ring], [y for _, y in ring])
    except GDAL_ERRORS:
        return []
    return list(zip(xs, ys, strict=True)) if all(math.isfinite(value) for value in (*xs, *ys)) else []


def _densify(corners: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the closed ring through these corners, with points added on its sides."""
    points = []
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        points += [
            (x0 + (x1 - x0) * step / _POINTS_PER_SIDE, y0 + (y1 - y0) * step / _POINTS_PER_SIDE)
            for step in range(_POINTS_PER_SIDE)
        ]
    return [*points, corners[0]]


def unwrap_longitudes(ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Remove jumps across the antimeridian: longitudes may then exceed 180."""
    unwrapped: list[tuple[float, float]] = []
    for x, y in ring:
        nearest = x if not unwrapped else x + _FULL_CIRCLE * round((unwrapped[-1][0] - x) / _FULL_CIRCLE)
        unwrapped.append((nearest, y))
    return unwrapped


def _snap_to_antimeridian(longitude: float) -> float:
    """Round a longitude very close to 180 to 180, so that no sliver is left beyond it."""
    edge = _FULL_CIRCLE * round((longitude - 180) / _FULL_CIRCLE) + 180
    return edge if abs(longitude - edge) < _ROUNDING else longitude


def _rectangle(west: float, south: float, east: float, north: float) -> list[tuple[float, float]]:
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def _round_bbox(bbox: list[float]) -> list[float]:
    return [round(side, _DIGITS) for side in bbox]


def _to_geojson(parts: Sequence[Any]) -> dict[str, Any]:
    polygons = [piece for part in parts for piece in getattr(part, "geoms", [part]) if piece.geom_type == "Polygon"]
    rings = [
        [[[round(x, _DIGITS), round(y, _DIGITS)] for x, y in shapely.normalize(polygon).reverse().exterior.coords]]
        for polygon in polygons
    ]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}


def unlocatable(crs: CRS) -> Exception:
    """Build the error for a CRS without a relation to the Earth, such as a local engineering CRS."""
    return invalid_input(
        f"the CRS {crs_name(crs)} cannot be transformed to longitude and latitude, so the place of the raster is"
        " unknown. Expected a CRS with an EPSG code or a full WKT; set it with gdal_edit.py -a_srs EPSG:… first"
    )


def crs_name(crs: CRS) -> str:
    """Return `EPSG:32625` if the CRS has a code, else the name in its WKT."""
    code = crs.to_epsg()
    if code is not None:
        return f"EPSG:{code}"
    text = crs.to_wkt()
    return repr(text[text.find('"') + 1 :].partition('"')[0] or text[:60])
