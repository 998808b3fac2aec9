"""Geometries in degrees that cross the antimeridian or go around a pole: cut, so that each part lies within ±180.

After a projection turned its points into degrees, a ring that crosses the antimeridian jumps from 179 to -179, as if it
went around the Earth. Unrolled (179, 181) it is whole again, and is cut where it leaves the map. A ring that comes back
360 degrees away goes around a pole, and is closed over it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import shapely

HALF: Final = 180.0
WHOLE: Final = 360.0
POLE: Final = 90.0
TOLERANCE: Final = 1e-6
"""Degrees: a tenth of a metre. Files say 180.00000000000006 and mean 180."""
_LINEAR: Final = ("LineString", "LinearRing")


def needs_cut(shapes: Any, *, unroll: bool) -> Any:
    """Which geometries leave the map, or (`unroll`) jump across it."""
    bounds = shapely.bounds(shapes)
    with np.errstate(invalid="ignore"):
        beyond = (bounds[:, 0] < -HALF - TOLERANCE) | (bounds[:, 2] > HALF + TOLERANCE)
        # What jumps is wide.
        wide = (bounds[:, 2] - bounds[:, 0]) > HALF
    if unroll and wide.any():
        beyond[wide] |= [_jumps(one) for one in shapes[wide]]
    return beyond


def cut(shape: Any, *, unroll: bool) -> Any:
    """The geometry in parts within ±180."""
    parts = [piece for part in shapely.get_parts(shape) for piece in _cut_part(part, unroll=unroll)]
    parts = [one for one in parts if not one.is_empty]
    if len(parts) == 1:
        return parts[0]
    kinds = {one.geom_type for one in parts}
    if kinds <= {"Polygon", "MultiPolygon"}:
        return shapely.union_all(parts) if unroll else shapely.multipolygons(shapely.get_parts(parts))
    if kinds <= {"LineString", "MultiLineString"}:
        return shapely.multilinestrings(shapely.get_parts(parts))
    if kinds <= {"Point", "MultiPoint"}:
        return shapely.multipoints(shapely.get_parts(parts))
    return shapely.geometrycollections(parts)


def _jumps(shape: Any) -> bool:
    return any(bool((np.abs(np.diff(shapely.get_coordinates(line)[:, 0])) > HALF).any()) for line in _lines(shape))


def _lines(shape: Any) -> list[Any]:
    return [
        line
        for part in shapely.get_parts(shape)
        for line in (shapely.get_rings(part) if part.geom_type == "Polygon" else [part])
        if line.geom_type in _LINEAR
    ]


def _cut_part(part: Any, *, unroll: bool) -> list[Any]:
    if part.geom_type == "Polygon" and unroll:
        part = _unrolled_polygon(part)
    elif part.geom_type in _LINEAR and unroll:
        part = shapely.LineString(_unrolled(shapely.get_coordinates(part, include_z=part.has_z)))
    elif part.geom_type == "Point":
        return [shapely.transform(part, _into_map, include_z=part.has_z)]
    west, _, east, _ = part.bounds
    pieces = []
    for turn in range(int(np.floor((west + HALF) / WHOLE)), int(np.ceil((east + HALF) / WHOLE))):
        window = shapely.box(turn * WHOLE - HALF, -POLE, turn * WHOLE + HALF, POLE)
        piece = shapely.intersection(part, window)
        moved = shapely.transform(piece, lambda xy, turn=turn: _turned(xy, turn), include_z=part.has_z)
        pieces += list(shapely.get_parts(moved))
    return [one for one in pieces if shapely.get_dimensions(one) == shapely.get_dimensions(part)]


def _turned(xy: Any, turns: int) -> Any:
    moved = xy.copy()
    moved[:, 0] -= turns * WHOLE
    return moved


def _into_map(xy: Any) -> Any:
    moved = xy.copy()
    moved[:, 0] = (moved[:, 0] + HALF) % WHOLE - HALF
    return moved


def _unrolled(xy: Any) -> Any:
    """Each step the short way around."""
    steps = np.diff(xy[:, 0])
    turns = np.concatenate([[0.0], np.cumsum(-np.round(steps / WHOLE))])
    moved = xy.copy()
    moved[:, 0] += turns * WHOLE
    return moved


def _unrolled_polygon(polygon: Any) -> Any:
    has_z = polygon.has_z
    shell = _closed(_unrolled(shapely.get_coordinates(polygon.exterior, include_z=has_z)))
    middle = shell[:, 0].mean()
    holes = []
    for hole in polygon.interiors:
        ring = _closed(_unrolled(shapely.get_coordinates(hole, include_z=has_z)))
        # A hole lies where its shell does, not one turn away.
        ring[:, 0] -= WHOLE * np.round((ring[:, 0].mean() - middle) / WHOLE)
        holes.append(ring)
    return shapely.make_valid(shapely.Polygon(shell, holes), method="structure", keep_collapsed=False)


def _closed(ring: Any) -> Any:
    """A ring that ends a turn away goes around a pole: close it over that one."""
    if abs(ring[-1, 0] - ring[0, 0]) < HALF:
        return ring
    pole = POLE if ring[:, 1].mean() > 0 else -POLE
    over = ring[[-1, 0, 0]]
    over[:2, 1] = pole
    return np.vstack([ring, over])
