"""Find edges that a projection tears: with ends on both sides of its boundary, they span the whole map.

Each point of such a geometry is correct. So an edge that is long on the map is halved repeatedly, keeping the
half that is longer there: on a continuous map, the remainder shrinks to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_EDGE_METRES: Final = 100_000.0
"""Shorter edges are not examined."""
_HALVINGS: Final = 24
_TORN_METRES: Final = 1_000.0
_LINE_TYPES: Final = (1, 2)


def find_torn(geometries: Any, projected: Any, transform: Callable[[Any], Any], unit: float) -> Any:
    """Return which geometries have a torn edge.

    `transform` projects points; `unit` is metres per map unit.
    """
    is_torn = np.zeros(len(geometries), dtype=bool)
    bounds = shapely.bounds(projected)
    with np.errstate(invalid="ignore"):
        wide = np.flatnonzero(((bounds[:, 2:] - bounds[:, :2]) * unit > MIN_EDGE_METRES).any(axis=1))
    if not len(wide):
        return is_torn
    begin, end, owner = _edges(geometries[wide])
    map_begin, map_end, _ = _edges(projected[wide])
    with np.errstate(invalid="ignore"):
        is_long = np.hypot(*(map_end - map_begin).T) * unit > MIN_EDGE_METRES
    begin, end, map_begin, map_end = begin[is_long], end[is_long], map_begin[is_long], map_end[is_long]
    for _ in range(_HALVINGS):
        if not len(begin):
            return is_torn
        middle = (begin + end) / 2
        map_middle = transform(middle)
        use_first = (np.hypot(*(map_middle - map_begin).T) >= np.hypot(*(map_end - map_middle).T))[:, None]
        begin, end = np.where(use_first, begin, middle), np.where(use_first, middle, end)
        map_begin, map_end = (
            np.where(use_first, map_begin, map_middle),
            np.where(use_first, map_middle, map_end),
        )
    is_torn_edge = ~(np.hypot(*(map_end - map_begin).T) * unit <= _TORN_METRES)
    is_torn[wide[owner[is_long][is_torn_edge]]] = True
    return is_torn


def _edges(geometries: Any) -> tuple[Any, Any, Any]:
    """Return the start and end of each edge, and the index of its geometry."""
    parts, owner = shapely.get_parts(geometries, return_index=True)
    # Twice, for the parts of collections.
    parts, part_owner = shapely.get_parts(parts, return_index=True)
    owner = owner[part_owner]
    rings, ring_owner = shapely.get_rings(parts, return_index=True)
    is_line = np.isin(shapely.get_type_id(parts), _LINE_TYPES)
    xy, line = shapely.get_coordinates(np.concatenate([rings, parts[is_line]]), return_index=True)
    owners = np.concatenate([owner[ring_owner], owner[is_line]])
    is_same_line = line[1:] == line[:-1]
    return xy[:-1][is_same_line], xy[1:][is_same_line], owners[line[:-1][is_same_line]]
