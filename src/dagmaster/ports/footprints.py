"""Footprints: where on Earth a fan-out item lies, so that a run can be drawn on a map.

An item that is a mapping may carry one as `footprint`, else as `bbox` or `geometry`. It is stored only with
the frozen fan-out list, so runs that draw no map pay nothing. For an item without one, such as a file name,
the output of its child may contain it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject

_TILE: Final = re.compile(r"(\d{1,2})/(\d{1,9})/(\d{1,9})")
_H3_CELL: Final = re.compile(r"[89][0-9a-f]{14}")
_BBOX: Final = 4
_BBOX_3D: Final = 6
_MAX_ZOOM: Final = 30
_MAX_LONGITUDE: Final = 180
_MAX_LATITUDE: Final = 90


def footprint_of(item: Any) -> Any:
    if not isinstance(item, dict):
        return None
    return next(
        (item[name] for name in ("footprint", "bbox", "geometry") if item.get(name) is not None), None
    )


def footprint_of_output(output: Any) -> list[Any] | None:
    """Return the bbox of an output or of its STAC item if it is in degrees; other numbers may be metres."""
    if not isinstance(output, dict):
        return None
    item = output.get("item")
    boxes = (output.get("bbox"), item.get("bbox") if isinstance(item, dict) else None)
    return next((bbox for bbox in boxes if _is_in_degrees(bbox)), None)


def _is_in_degrees(bbox: Any) -> bool:
    if not isinstance(bbox, list) or len(bbox) != _BBOX or _bbox_geometry(bbox) is None:
        return False
    west, south, east, north = bbox
    return bool(
        max(abs(west), abs(east)) <= _MAX_LONGITUDE and -_MAX_LATITUDE <= south <= north <= _MAX_LATITUDE
    )


def footprint_geometry(footprint: Any) -> dict[str, Any] | None:
    """Convert a footprint (bbox, GeoJSON, tile z/x/y, H3 cell) to a GeoJSON geometry; None for others."""
    if isinstance(footprint, dict):
        if footprint.get("type") == "Feature":
            return footprint_geometry(footprint.get("geometry"))
        if isinstance(footprint.get("type"), str) and isinstance(footprint.get("coordinates"), list):
            return footprint
        zoom, x, y = (footprint.get(name) for name in "zxy")
        return _tile_geometry(zoom, x, y) if type(zoom) is type(x) is type(y) is int else None
    if isinstance(footprint, str):
        tile = _TILE.fullmatch(footprint)
        if tile:
            return _tile_geometry(*map(int, tile.groups()))
        return _cell_geometry(footprint) if _H3_CELL.fullmatch(footprint) else None
    if isinstance(footprint, list) and len(footprint) in (_BBOX, _BBOX_3D):
        return _bbox_geometry(footprint[:2] + footprint[len(footprint) // 2 :][:2])
    return None


def _bbox_geometry(bbox: list[Any]) -> dict[str, Any] | None:
    """Return a rectangle; two of them if west is greater than east (it crosses the antimeridian).

    Any finite numbers will do, unlike in `bounding_boxes`: a map draws what it is given.
    """
    if not all(
        isinstance(side, int | float) and not isinstance(side, bool) and math.isfinite(side) for side in bbox
    ):
        return None
    west, south, east, north = bbox
    if west <= east:
        return {"type": "Polygon", "coordinates": [_ring(west, south, east, north)]}
    halves = [[_ring(west, south, 180, north)], [_ring(-180, south, east, north)]]
    return {"type": "MultiPolygon", "coordinates": halves}


def _tile_geometry(zoom: int, x: int, y: int) -> JsonObject | None:
    if not 0 <= zoom <= _MAX_ZOOM or not 0 <= x < 2**zoom or not 0 <= y < 2**zoom:
        return None
    tiles_per_side = 2.0**zoom

    def latitude(row: int) -> float:
        return math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / tiles_per_side))))

    def longitude(column: int) -> float:
        return column / tiles_per_side * 360 - 180

    return _bbox_geometry([longitude(x), latitude(y + 1), longitude(x + 1), latitude(y)])


def _cell_geometry(cell: str) -> JsonObject | None:
    try:
        import h3  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError:
        return None
    if not h3.is_valid_cell(cell):
        return None
    ring = [[longitude, latitude] for latitude, longitude in h3.cell_to_boundary(cell)]
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def _ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]
