"""Edges that a map tears: their ends lie on both sides of where it ends, and the line between goes across all of it.

Point by point such a geometry is right. So an edge that is long on the map is halved, over and over, on the side whose
half is the longer one there: on a map without a tear, what is left shrinks to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely

if TYPE_CHECKING:
    from collections.abc import Callable

LONG: Final = 100_000.0
"""Metres: shorter edges are not looked at."""
_HALVINGS: Final = 24
_TORN: Final = 1_000.0
_LINEAR: Final = (1, 2)


def torn(shapes: Any, moved: Any, transform: Callable[[Any], Any], unit: float) -> Any:
    """Which geometries have an edge that the map tears. `transform` moves points, `unit` is the map's in metres."""
    found = np.zeros(len(shapes), dtype=bool)
    bounds = shapely.bounds(moved)
    with np.errstate(invalid="ignore"):
        wide = np.flatnonzero(((bounds[:, 2:] - bounds[:, :2]) * unit > LONG).any(axis=1))
    if not len(wide):
        return found
    begin, end, owner = _edges(shapes[wide])
    there_begin, there_end, _ = _edges(moved[wide])
    with np.errstate(invalid="ignore"):
        long = np.hypot(*(there_end - there_begin).T) * unit > LONG
    begin, end, there_begin, there_end = begin[long], end[long], there_begin[long], there_end[long]
    for _ in range(_HALVINGS):
        if not len(begin):
            return found
        middle = (begin + end) / 2
        there = transform(middle)
        first = (np.hypot(*(there - there_begin).T) >= np.hypot(*(there_end - there).T))[:, None]
        begin, end = np.where(first, begin, middle), np.where(first, middle, end)
        there_begin, there_end = np.where(first, there_begin, there), np.where(first, there, there_end)
    is_torn = ~(np.hypot(*(there_end - there_begin).T) * unit <= _TORN)
    found[wide[owner[long][is_torn]]] = True
    return found


def _edges(shapes: Any) -> tuple[Any, Any, Any]:
    """Where each edge begins and ends, and whose it is."""
    parts, owner = shapely.get_parts(shapes, return_index=True)
    # Of a collection, the parts of its parts.
    parts, whose = shapely.get_parts(parts, return_index=True)
    owner = owner[whose]
    rings, whose = shapely.get_rings(parts, return_index=True)
    linear = np.isin(shapely.get_type_id(parts), _LINEAR)
    xy, line = shapely.get_coordinates(np.concatenate([rings, parts[linear]]), return_index=True)
    owners = np.concatenate([owner[whose], owner[linear]])
    same = line[1:] == line[:-1]
    return xy[:-1][same], xy[1:][same], owners[line[:-1][same]]
