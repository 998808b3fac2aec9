"""Split geometries that cross the antimeridian or go around a pole into parts within ±180 degrees.

After reprojection to degrees, a ring across the antimeridian jumps from 179 to -179, as if it went around the
Earth. Unwrapped (179, 181) it is continuous, and is split at ±180. A ring that returns 360 degrees away goes
around a pole, and is closed over it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import shapely

HALF_CIRCLE: Final = 180.0
FULL_CIRCLE: Final = 360.0
POLE: Final = 90.0
TOLERANCE: Final = 1e-6
"""Degrees, about 10 cm: files contain 180.00000000000006 and mean 180."""
_LINEAR: Final = ("LineString", "LinearRing")


def needs_split(geometries: Any, *, unwrap: bool) -> Any:
    """Return which geometries reach beyond ±180, or (`unwrap`) jump across it."""
    bounds = shapely.bounds(geometries)
    with np.errstate(invalid="ignore"):
        beyond = (bounds[:, 0] < -HALF_CIRCLE - TOLERANCE) | (bounds[:, 2] > HALF_CIRCLE + TOLERANCE)
        # A geometry that jumps is wide.
        wide = (bounds[:, 2] - bounds[:, 0]) > HALF_CIRCLE
    if unwrap and wide.any():
        beyond[wide] |= [_has_jump(part) for part in geometries[wide]]
    return beyond


def split(geometry: Any, *, unwrap: bool) -> Any:
    parts = [piece for part in shapely.get_parts(geometry) for piece in _split_part(part, unwrap=unwrap)]
    parts = [part for part in parts if not part.is_empty]
    if len(parts) == 1:
        return parts[0]
    kinds = {part.geom_type for part in parts}
    if kinds <= {"Polygon", "MultiPolygon"}:
        return shapely.union_all(parts) if unwrap else shapely.multipolygons(shapely.get_parts(parts))
    if kinds <= {"LineString", "MultiLineString"}:
        return shapely.multilinestrings(shapely.get_parts(parts))
    if kinds <= {"Point", "MultiPoint"}:
        return shapely.multipoints(shapely.get_parts(parts))
    return shapely.geometrycollections(parts)


def _has_jump(geometry: Any) -> bool:
    return any(
        bool((np.abs(np.diff(shapely.get_coordinates(line)[:, 0])) > HALF_CIRCLE).any())
        for line in _lines(geometry)
    )


def _lines(geometry: Any) -> list[Any]:
    return [
        line
        for part in shapely.get_parts(geometry)
        for line in (shapely.get_rings(part) if part.geom_type == "Polygon" else [part])
        if line.geom_type in _LINEAR
    ]


def _split_part(part: Any, *, unwrap: bool) -> list[Any]:
    if part.geom_type == "Polygon" and unwrap:
        part = _unwrap_polygon(part)
    elif part.geom_type in _LINEAR and unwrap:
        part = shapely.LineString(_unwrap(shapely.get_coordinates(part, include_z=part.has_z)))
    elif part.geom_type == "Point":
        return [shapely.transform(part, _wrap_longitudes, include_z=part.has_z)]
    west, _, east, _ = part.bounds
    pieces = []
    for turn in range(
        int(np.floor((west + HALF_CIRCLE) / FULL_CIRCLE)), int(np.ceil((east + HALF_CIRCLE) / FULL_CIRCLE))
    ):
        window = shapely.box(turn * FULL_CIRCLE - HALF_CIRCLE, -POLE, turn * FULL_CIRCLE + HALF_CIRCLE, POLE)
        piece = shapely.intersection(part, window)
        shifted = shapely.transform(piece, lambda xy, turn=turn: _shift_turns(xy, turn), include_z=part.has_z)
        pieces += list(shapely.get_parts(shifted))
    return [piece for piece in pieces if shapely.get_dimensions(piece) == shapely.get_dimensions(part)]


def _shift_turns(xy: Any, turns: int) -> Any:
    shifted = xy.copy()
    shifted[:, 0] -= turns * FULL_CIRCLE
    return shifted


def _wrap_longitudes(xy: Any) -> Any:
    shifted = xy.copy()
    shifted[:, 0] = (shifted[:, 0] + HALF_CIRCLE) % FULL_CIRCLE - HALF_CIRCLE
    return shifted


def _unwrap(xy: Any) -> Any:
    """Make each step go the short way around."""
    steps = np.diff(xy[:, 0])
    turns = np.concatenate([[0.0], np.cumsum(-np.round(steps / FULL_CIRCLE))])
    shifted = xy.copy()
    shifted[:, 0] += turns * FULL_CIRCLE
    return shifted


def _unwrap_polygon(polygon: Any) -> Any:
    has_z = polygon.has_z
    shell = _close_over_pole(_unwrap(shapely.get_coordinates(polygon.exterior, include_z=has_z)))
    middle = shell[:, 0].mean()
    holes = []
    for hole in polygon.interiors:
        ring = _close_over_pole(_unwrap(shapely.get_coordinates(hole, include_z=has_z)))
        # A hole lies inside its shell, not a turn away.
        ring[:, 0] -= FULL_CIRCLE * np.round((ring[:, 0].mean() - middle) / FULL_CIRCLE)
        holes.append(ring)
    return shapely.make_valid(shapely.Polygon(shell, holes), method="structure", keep_collapsed=False)


def _close_over_pole(ring: Any) -> Any:
    """Close a ring that ends a turn away over the pole that it goes around."""
    if abs(ring[-1, 0] - ring[0, 0]) < HALF_CIRCLE:
        return ring
    pole = POLE if ring[:, 1].mean() > 0 else -POLE
    over = ring[[-1, 0, 0]]
    over[:2, 1] = pole
    return np.vstack([ring, over])
