"""Transforms geometries and boxes between CRSs, and finds what a target cannot represent.

An edge that a projection tears has ends on both sides of its boundary, and spans the whole map; each point of
such a geometry is correct. So an edge that is long on the map is halved repeatedly, keeping the half that is
longer there: on a continuous map, the remainder shrinks to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyproj
import shapely

from dagmaster.errors import invalid_input
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_METRES: Final = 5e7
"""The Earth's circumference is 4e7: coordinates beyond are not places, such as a pole in Mercator."""
ROUND_TRIP_DEGREES: Final = 1e-5
"""About a metre: the tolerance of a point transformed to another CRS and back."""
DEGREES: Final = "OGC:CRS84"
_OGC_CODES: Final = {"CRS84": 4326, "CRS83": 4269, "CRS27": 4267}
"""The EPSG codes of the same systems with latitude first."""
MIN_EDGE_METRES: Final = 100_000.0
"""Shorter edges are not examined."""
_HALVINGS: Final = 24
_TORN_METRES: Final = 1_000.0
_LINE_TYPES: Final = (1, 2)


class Reprojection:
    """A transformation from one CRS to another, x before y in both. Heights are not changed."""

    def __init__(self, source: pyproj.CRS, target: pyproj.CRS) -> None:
        self._source, self._target = source, target
        self.is_same = source.equals(target, ignore_axis_order=True)
        self.is_from_projected = not self.is_same and not source.is_geographic
        self.is_from_degrees = source.is_geographic and not target.is_geographic
        try:
            self._transformer = pyproj.Transformer.from_crs(source, target, always_xy=True)
        except pyproj.exceptions.ProjError as error:
            raise invalid_input(
                f"there is no transformation from {crs_label(source)}, the CRS of the file, to"
                f" {crs_label(target)}:"
                f" correct the CRS of the file, or choose another target_crs{library_words('PROJ', error)}"
            ) from error

    def apply(self, geometries: Any) -> tuple[Any, Any]:
        """Return the transformed geometries, and which of them the target cannot represent."""
        is_lost = np.zeros(len(geometries), dtype=bool)
        if self.is_same:
            return geometries, is_lost
        projected = np.empty_like(geometries)
        for has_z in (False, True):
            group = shapely.has_z(geometries) == has_z
            if group.any():
                projected[group] = shapely.transform(
                    geometries[group], self._transform_points, include_z=has_z
                )
        before, owner = shapely.get_coordinates(geometries, return_index=True)
        after = shapely.get_coordinates(projected)
        is_lost[np.unique(owner[self._find_lost_points(before, after)])] = True
        if not self._target.is_geographic:
            is_lost |= find_torn(geometries, projected, self._transform_points, self._unit_metres)
        return projected, is_lost

    def area_of_use(self) -> Any:
        """Return the area of use of the target, in the coordinates of the source."""
        area = self._target.area_of_use
        return None if area is None else bbox_in_crs(area.bounds, self._source)

    def _transform_points(self, points: Any) -> Any:
        transformed = points.copy()
        transformed[:, 0], transformed[:, 1] = self._transformer.transform(points[:, 0], points[:, 1])
        return transformed

    @property
    def _unit_metres(self) -> float:
        return float(self._target.axis_info[0].unit_conversion_factor or 1.0)

    def _find_lost_points(self, before: Any, after: Any) -> Any:
        is_lost = ~np.isfinite(after).all(axis=1)
        if not self._target.is_geographic:
            with np.errstate(invalid="ignore"):
                is_lost |= (np.abs(after) * self._unit_metres > MAX_METRES).any(axis=1)
            back = np.column_stack(self._transformer.transform(after[:, 0], after[:, 1], direction="INVERSE"))
            tolerance = ROUND_TRIP_DEGREES if self._source.is_geographic else 1.0
            with np.errstate(invalid="ignore"):
                distance = np.abs(back - before)
            if self._source.is_geographic:
                # 180 and -180 are one meridian, and at a pole every longitude is correct.
                distance[:, 0] = np.minimum(distance[:, 0], np.abs(360 - distance[:, 0]))
                distance[np.abs(before[:, 1]) > 90 - ROUND_TRIP_DEGREES, 0] = 0
            is_lost |= ~(distance <= tolerance).all(axis=1)
        return is_lost


def lon_lat_bounds(bounds: Sequence[float] | None, crs: pyproj.CRS) -> list[float] | None:
    """Transform bounds to a bbox in degrees."""
    if bounds is None:
        return None
    if not crs.equals(pyproj.CRS.from_user_input("EPSG:4326"), ignore_axis_order=True):
        transformer = pyproj.Transformer.from_crs(crs, DEGREES, always_xy=True)
        left, bottom, right, top = bounds
        bounds = transformer.transform_bounds(left, bottom, right, top, densify_pts=21)
    west, south, east, north = (round(float(side), 9) for side in bounds)
    return [max(west, -180.0), max(south, -90.0), min(east, 180.0), min(north, 90.0)]


def crs_label(crs: pyproj.CRS) -> str:
    """Return `EPSG:3857` if the CRS has a code, else its name."""
    code = crs.to_authority()
    return crs.name if code is None else ":".join(code)


def find_srid(crs: pyproj.CRS) -> int | None:
    """Return the EPSG code of the horizontal part of a CRS; None if it has none. Tables store x before y."""
    if crs.is_bound and crs.source_crs is not None:
        return find_srid(crs.source_crs)
    if crs.is_compound:
        return find_srid(crs.sub_crs_list[0])
    authority = crs.to_authority()
    if authority is not None and authority[0] == "OGC" and authority[1] in _OGC_CODES:
        return _OGC_CODES[authority[1]]
    code = crs.to_epsg()
    return None if code is None else int(code)


def bbox_in_crs(bbox: Sequence[float], crs: pyproj.CRS) -> Any:
    """Return a bbox in degrees as a polygon in a CRS, with curved sides where the CRS requires."""
    west, south, east, north = bbox
    if not (west != east and south < north):
        raise invalid_input(f"the bbox {list(bbox)} is empty: expected west, south, east, north in degrees")
    if crs.is_geographic:
        # West greater than east crosses the antimeridian.
        spans = [(west, east)] if west < east else [(west, 180.0), (-180.0, east)]
        return shapely.union_all([shapely.box(left, south, right, north) for left, right in spans])
    box = shapely.box(west, south, east if west < east else east + 360, north)
    projected, is_lost = Reprojection(pyproj.CRS.from_user_input(DEGREES), crs).apply(
        np.array([shapely.segmentize(box, 1.0)], dtype=object)
    )
    if is_lost.any():
        raise invalid_input(
            f"the bbox {list(bbox)} reaches beyond what {crs_label(crs)}, the CRS of the file, can represent:"
            " use a smaller one"
        )
    shapely.prepare(projected)
    return projected[0]


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
