"""The footprint of a raster: its outline and bounding box in longitude and latitude.

As GeoJSON asks, an outline across the antimeridian is cut there into two polygons, and its bbox has west
greater than east. A footprint that contains a pole reaches from -180 to 180. A raster of another celestial
body has none.
"""

from __future__ import annotations

import itertools
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely
from shapely.affinity import translate

from dagmaster.errors import invalid_input
from dagmaster.geo.raster.earth_positions import crs_name, earth_transform, is_on_earth
from dagmaster.geo.rules.bounding_boxes import wrap_longitude

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from affine import Affine
    from rasterio.crs import CRS

    from dagmaster.geo.raster.earth_positions import EarthTransform, Positions

    Place = Callable[[Any, Any], tuple[Any, Any]]
    """Maps fractions of width and height, each from 0 to 1, to coordinates of the CRS."""

_POINTS_PER_SIDE: Final = 64
"""A straight side in UTM is a curve in degrees."""
_POINTS_INSIDE: Final = 65
"""Columns and rows of the points at which a raster is examined whose outline is not all on the Earth."""
_RAYS: Final = 720
_BISECTIONS: Final = 30
_MARGIN: Final = 1e-3
"""The part of the extent by which an outline found by sampling is widened, so that it contains the raster."""
_LARGEST_GAP: Final = 10.0
"""Degrees: positions that leave no larger gap between their longitudes reach around the Earth."""
_DIGITS: Final = 7
"""Decimal places: one centimetre."""
_FULL_CIRCLE: Final = 360.0
_MIN_RING_POINTS: Final = 3
_ROUNDING: Final = 1e-6
"""Degrees, about 10 cm: the rounding error of an edge at 180."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """An outline and its bbox: west, south, east, north."""

    geometry: dict[str, Any]
    bbox: list[float]
    is_partial: bool = False
    """Whether a part of the raster is not on the Earth: it is outside of the projection."""


def raster_footprint(crs: CRS, affine: Affine, width: int, height: int) -> Footprint | None:
    """Return the footprint of a pixel grid; None off the Earth."""
    return deepcopy(_cached_footprint(crs, affine, width, height))


def describe_footprint(footprint: Footprint | None) -> dict[str, Any]:
    """Return bbox and footprint as fields of an output; None off the Earth."""
    if footprint is None:
        return {"bbox": None, "footprint": None}
    return {"bbox": footprint.bbox, "footprint": footprint.geometry}


@lru_cache(maxsize=16)
def _cached_footprint(crs: CRS, affine: Affine, width: int, height: int) -> Footprint | None:
    """Return the footprint of a pixel grid; cached, since a COG is described three times."""
    a, b, c, d, e, f = tuple(affine)[:6]
    return _footprint(
        crs, lambda u, v: (a * u * width + b * v * height + c, d * u * width + e * v * height + f)
    )


def bounds_footprint(crs: CRS, bounds: Sequence[float]) -> Footprint | None:
    """Return the footprint of a rectangle: left, bottom, right, top; None off the Earth."""
    left, bottom, right, top = bounds
    return _footprint(crs, lambda u, v: (left + u * (right - left), top + v * (bottom - top)))


def _footprint(crs: CRS, place: Place) -> Footprint | None:
    if not is_on_earth(crs):
        return None
    earth = earth_transform(crs)
    longitudes, latitudes, is_valid = earth.locate(*place(*_ring()))
    if is_valid.all():
        outer = _unwrap(longitudes)
        if abs(outer[-1] - outer[0]) < 1 and _surrounds_interior(earth, place, outer, latitudes):
            return _outline_footprint(outer, latitudes)
    # The outline is partly outside of the projection, or goes around a pole, or the inside reaches beyond it.
    return replace(_sampled_footprint(crs, earth, place), is_partial=not is_valid.all())


def _ring() -> tuple[Any, Any]:
    """Return a closed ring around the unit square, with points on its sides."""
    up = np.arange(_POINTS_PER_SIDE) / _POINTS_PER_SIDE
    zeros, ones = np.zeros_like(up), np.ones_like(up)
    return np.concatenate([up, ones, 1 - up, zeros, [0]]), np.concatenate([zeros, up, ones, 1 - up, [0]])


def _surrounds_interior(earth: EarthTransform, place: Place, outer: Any, latitudes: Any) -> bool:
    """Return whether positions inside the raster are inside the bounds of its outline, as on most maps."""
    u, v = (points.ravel() for points in np.meshgrid(np.linspace(0.1, 0.9, 9), np.linspace(0.1, 0.9, 9)))
    inner_longitudes, inner_latitudes, is_valid = earth.locate(*place(u, v))
    west, east = outer.min(), outer.max()
    slack = 1e-6 + 1e-3 * max(east - west, np.ptp(latitudes))
    middle = (west + east) / 2
    nearest = inner_longitudes + _FULL_CIRCLE * np.round((middle - inner_longitudes) / _FULL_CIRCLE)
    return bool(
        is_valid.all()
        and ((nearest >= west - slack) & (nearest <= east + slack)).all()
        and (
            (inner_latitudes >= latitudes.min() - slack) & (inner_latitudes <= latitudes.max() + slack)
        ).all()
    )


def _outline_footprint(longitudes: Any, latitudes: Any) -> Footprint:
    longitudes = np.array([_snap_to_antimeridian(longitude) for longitude in longitudes])
    ring = np.column_stack([longitudes, np.clip(latitudes, -90, 90)])
    corners = {0, len(ring) - 1}
    for axis in (0, 1):
        low, high = _reach(ring[:, axis])
        lowest, highest = int(ring[:, axis].argmin()), int(ring[:, axis].argmax())
        ring[lowest, axis], ring[highest, axis] = low, high
        corners |= {lowest, highest}
    ring = np.clip(ring, (-np.inf, -90), (np.inf, 90))
    # Deviate by at most 1/10,000 of the extent: enough for a map or a search. The extremes, and so the bbox,
    # stay.
    tolerance = float(np.ptp(ring, axis=0).max()) * 1e-4
    pieces = [
        shapely.LineString(ring[first : last + 1]).simplify(tolerance).coords[:-1]
        for first, last in itertools.pairwise(sorted(corners))
    ]
    points = list(itertools.chain(*pieces))
    # Pixels that are much smaller than the digits of their coordinates make no ring.
    outline = shapely.Polygon(points) if len(points) >= _MIN_RING_POINTS else shapely.Polygon()
    if not outline.is_valid or outline.is_empty:
        outline = shapely.box(*ring.min(axis=0), *ring.max(axis=0))
    return _cut_footprint(outline)


def _reach(values: Any) -> tuple[float, float]:
    """Return the minimum and maximum of a ring between its points, by parabolas through three points."""
    sides = np.lib.stride_tricks.sliding_window_view(values, _POINTS_PER_SIDE + 1)[::_POINTS_PER_SIDE]
    first, middle, last = sides[:, :-2], sides[:, 1:-1], sides[:, 2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = (first - last) / (2 * (first - 2 * middle + last))
        extremes = (middle - (first - last) * vertex / 4)[np.abs(vertex) <= 1]
    every = np.concatenate([values, extremes])
    return float(every.min()), float(every.max())


def _sampled_footprint(crs: CRS, earth: EarthTransform, place: Place) -> Footprint:
    steps = np.linspace(0, 1, _POINTS_INSIDE)
    u, v = (points.ravel() for points in np.meshgrid(steps, steps))
    longitudes, latitudes, is_valid = earth.locate(*place(u, v))
    if not is_valid.any():
        raise invalid_input(
            f"no pixel of the raster lies on the Earth: its geotransform leads beyond the projection of"
            f" {crs_name(crs)}. Correct the geotransform or the CRS, as with gdal_edit.py"
        )
    start = _nearest_to_middle(u[is_valid], v[is_valid])
    rim_longitudes, rim_latitudes, _ = _find_rim(earth, place, start)
    all_longitudes = np.concatenate([longitudes[is_valid], rim_longitudes])
    all_latitudes = np.concatenate([latitudes[is_valid], rim_latitudes])
    south, north = float(all_latitudes.min()), float(all_latitudes.max())
    poles = [pole for pole in (-90.0, 90.0) if _contains_pole(earth, place, pole)]
    west, east = _longitude_range(all_longitudes)
    if poles or east - west >= _FULL_CIRCLE:
        margin = _MARGIN * (north - south)
        south, north = min([south - margin, *poles]), max([north + margin, *poles])
        return _cut_footprint(shapely.box(-180, max(-90.0, south), 180, min(90.0, north)))
    margin = _MARGIN * max(east - west, north - south)
    box = shapely.box(west - margin, south - margin, east + margin, north + margin)
    outline = _rim_outline(rim_longitudes, rim_latitudes, box, margin) or box
    # The margin leads neither beyond a pole nor across the antimeridian.
    limits = shapely.box(_antimeridian_before(west), -90, -_antimeridian_before(-east), 90)
    return _cut_footprint(outline.simplify(margin / 4).intersection(limits))


def _rim_outline(longitudes: Any, latitudes: Any, box: Any, margin: float) -> Any:
    """Return the rim as a polygon with a margin; None if it does not fill the box.

    A region that is not seen from its middle, such as the lobes of an interrupted map, is described by its
    box.
    """
    rim = shapely.Polygon(np.column_stack([_unwrap(longitudes), latitudes]))
    if not rim.is_valid or rim.is_empty:
        return None
    rim = translate(rim, xoff=_FULL_CIRCLE * round((box.centroid.x - rim.centroid.x) / _FULL_CIRCLE))
    outline = rim.buffer(margin, join_style="mitre")
    return outline if np.abs(np.subtract(outline.bounds, box.bounds)).max() <= 2 * margin else None


def _nearest_to_middle(u: Any, v: Any) -> tuple[float, float]:
    index = int(np.argmin(np.hypot(u - u.mean(), v - v.mean())))
    return float(u[index]), float(v[index])


def _find_rim(earth: EarthTransform, place: Place, start: tuple[float, float]) -> Positions:
    """Return the last valid positions on rays from a valid point to the edges of the raster."""
    corners_u, corners_v = _corners(earth, place)
    to_corners = np.arctan2(corners_v - start[1], corners_u - start[0]) % (2 * np.pi)
    angles = np.sort(np.concatenate([np.linspace(0, 2 * np.pi, _RAYS, endpoint=False), to_corners]))
    directions = np.cos(angles), np.sin(angles)
    lengths = np.full(angles.shape, np.inf)
    for origin, direction in zip(start, directions, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            to_edge = np.where(direction > 0, (1 - origin) / direction, -origin / direction)
        lengths = np.minimum(lengths, np.where(direction == 0, np.inf, to_edge))
    from_u, from_v = np.full(angles.shape, start[0]), np.full(angles.shape, start[1])
    ends = (from_u + directions[0] * lengths, from_v + directions[1] * lengths)
    return earth.locate(*place(*_last_valid(earth, place, (from_u, from_v), ends)))


def _corners(earth: EarthTransform, place: Place) -> tuple[Any, Any]:
    """Return the corners of the raster, and where the rim crosses its edges: extremes are mostly there."""
    u, v = _ring()
    is_valid = earth.locate(*place(u, v))[2]
    crossings = np.flatnonzero(is_valid[1:] != is_valid[:-1])
    inner = np.where(is_valid[crossings], crossings, crossings + 1)
    outer = np.where(is_valid[crossings], crossings + 1, crossings)
    rim = _last_valid(earth, place, (u[inner], v[inner]), (u[outer], v[outer]))
    return np.append([0, 0, 1, 1], rim[0]), np.append([0, 1, 0, 1], rim[1])


def _last_valid(
    earth: EarthTransform, place: Place, starts: tuple[Any, Any], ends: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Return the last valid points between valid starts and ends: an end itself if that is valid."""

    def between(parts: Any) -> tuple[Any, Any]:
        u, v = (start + (end - start) * parts for start, end in zip(starts, ends, strict=True))
        return u, v

    outer = np.ones(np.shape(starts[0]))
    inner = np.where(earth.locate(*place(*between(outer)))[2], 1.0, 0.0)
    for _ in range(_BISECTIONS):
        middle = (inner + outer) / 2
        is_valid = earth.locate(*place(*between(middle)))[2]
        inner, outer = np.where(is_valid, middle, inner), np.where(is_valid, outer, middle)
    return between(inner)


def _contains_pole(earth: EarthTransform, place: Place, pole: float) -> bool:
    xs, ys = earth.invert(np.zeros(1), np.full(1, pole))
    if not np.isfinite(xs + ys).all():
        return False
    (x0, y0), (x1, y1), (x2, y2) = (place(u, v) for u, v in ((0, 0), (1, 0), (0, 1)))
    try:
        u, v = np.linalg.solve(
            [[x1 - x0, x2 - x0], [y1 - y0, y2 - y0]], [float(xs[0]) - x0, float(ys[0]) - y0]
        )
    except np.linalg.LinAlgError:
        return False
    return bool(max(abs(u - 0.5), abs(v - 0.5)) <= 0.5 + _ROUNDING)


def _longitude_range(longitudes: Any) -> tuple[float, float]:
    """Return the shortest range that contains all longitudes; its end may exceed 180."""
    ordered = np.sort(longitudes % _FULL_CIRCLE)
    gaps = np.diff(ordered, append=ordered[0] + _FULL_CIRCLE)
    widest = int(np.argmax(gaps))
    if gaps[widest] < _LARGEST_GAP:
        return -180.0, 180.0
    west = _snap_to_antimeridian(float(ordered[(widest + 1) % len(ordered)]))
    east = _snap_to_antimeridian(float(ordered[widest]))
    west -= _FULL_CIRCLE if west >= _FULL_CIRCLE / 2 else 0
    return west, west + (east - west) % _FULL_CIRCLE


def _antimeridian_before(longitude: float) -> float:
    return _FULL_CIRCLE * float(np.floor((longitude + 180) / _FULL_CIRCLE)) - 180


def _cut_footprint(outline: Any) -> Footprint:
    """Return the footprint of an outline whose longitudes may exceed 180: cut at the antimeridian."""
    left, bottom, right, top = outline.bounds
    if right - left >= _FULL_CIRCLE - 1e-9:
        outline = shapely.box(-180, bottom, 180, top)
        return Footprint(geometry=_to_geojson([outline]), bbox=_round_bbox([-180, bottom, 180, top]))
    parts = [
        translate(cut, xoff=-_FULL_CIRCLE * turn)
        for turn in (-1, 0, 1)
        if (
            cut := outline.intersection(
                shapely.box(_FULL_CIRCLE * turn - 180, -90, _FULL_CIRCLE * turn + 180, 90)
            )
        ).area
        > 0
    ]
    return Footprint(
        geometry=_to_geojson(parts),
        bbox=_round_bbox([wrap_longitude(left), bottom, wrap_longitude(right, is_east=True), top]),
    )


def unwrap_longitudes(ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Remove jumps across the antimeridian: longitudes may then exceed 180."""
    longitudes = _unwrap(np.array([x for x, _ in ring]))
    return [(float(x), y) for x, (_, y) in zip(longitudes, ring, strict=True)]


def _unwrap(longitudes: Any) -> Any:
    return np.unwrap(longitudes, period=_FULL_CIRCLE)


def _snap_to_antimeridian(longitude: float) -> float:
    """Round a longitude very close to 180 to 180, so that no sliver is left beyond it."""
    edge = _FULL_CIRCLE * round((longitude - 180) / _FULL_CIRCLE) + 180
    return edge if abs(longitude - edge) < _ROUNDING else float(longitude)


def _round_bbox(bbox: list[float]) -> list[float]:
    return [round(float(side), _DIGITS) for side in bbox]


def _to_geojson(parts: Sequence[Any]) -> dict[str, Any]:
    polygons = [
        piece for part in parts for piece in getattr(part, "geoms", [part]) if piece.geom_type == "Polygon"
    ]
    rings = [
        [
            [
                [round(x, _DIGITS), round(y, _DIGITS)]
                for x, y in shapely.normalize(polygon).reverse().exterior.coords
            ]
        ]
        for polygon in polygons
    ]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}
