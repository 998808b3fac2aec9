"""Footprints: where on Earth an item of a fan-out lies, so that a run can be drawn on a map.

An item that is a mapping may carry one, as `footprint`, else `bbox` or `geometry`. It is kept with the fan-out, whose
list is frozen when it starts: nothing is stored twice, and nothing is paid by those who draw no map. Of an item that
has none, as the name of a file, the child's output may tell once it is there.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

_TILE: Final = re.compile(r"(\d{1,2})/(\d{1,9})/(\d{1,9})")
_CELL: Final = re.compile(r"[89][0-9a-f]{14}")
_BBOX: Final = 4
_BBOX_3D: Final = 6
_MAX_ZOOM: Final = 30
_HALF_TURN: Final = 180
_POLE: Final = 90


def footprint_of(item: Any) -> Any:
    """What an item says of its place; None if nothing."""
    if not isinstance(item, dict):
        return None
    return next((item[name] for name in ("footprint", "bbox", "geometry") if item.get(name) is not None), None)


def footprint_of_output(output: Any) -> list[Any] | None:
    """The bbox in an output, or in the STAC item there, if it is one in degrees: other numbers may be metres."""
    if not isinstance(output, dict):
        return None
    item = output.get("item")
    found = (output.get("bbox"), item.get("bbox") if isinstance(item, dict) else None)
    return next((bbox for bbox in found if _is_in_degrees(bbox)), None)


def _is_in_degrees(bbox: Any) -> bool:
    if not isinstance(bbox, list) or len(bbox) != _BBOX or bbox_outline(bbox) is None:
        return False
    west, south, east, north = bbox
    return bool(max(abs(west), abs(east)) <= _HALF_TURN and -_POLE <= south <= north <= _POLE)


def outline(footprint: Any) -> dict[str, Any] | None:
    """A footprint as a GeoJSON geometry in degrees: of a bbox, GeoJSON, a tile z/x/y or an H3 cell; else None."""
    if isinstance(footprint, dict):
        if footprint.get("type") == "Feature":
            return outline(footprint.get("geometry"))
        if isinstance(footprint.get("type"), str) and isinstance(footprint.get("coordinates"), list):
            return footprint
        zoom, x, y = (footprint.get(name) for name in "zxy")
        return tile_outline(zoom, x, y) if type(zoom) is type(x) is type(y) is int else None
    if isinstance(footprint, str):
        tile = _TILE.fullmatch(footprint)
        if tile:
            return tile_outline(*map(int, tile.groups()))
        return _cell_outline(footprint) if _CELL.fullmatch(footprint) else None
    if isinstance(footprint, list) and len(footprint) in (_BBOX, _BBOX_3D):
        return bbox_outline(footprint[:2] + footprint[len(footprint) // 2 :][:2])
    return None


def bbox_outline(bbox: list[Any]) -> dict[str, Any] | None:
    """A rectangle. One whose west is beyond its east crosses the antimeridian: it is two rectangles."""
    if not all(isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in bbox):
        return None
    west, south, east, north = bbox
    if west <= east:
        return {"type": "Polygon", "coordinates": [_ring(west, south, east, north)]}
    halves = [[_ring(west, south, 180, north)], [_ring(-180, south, east, north)]]
    return {"type": "MultiPolygon", "coordinates": halves}


def tile_outline(zoom: int, x: int, y: int) -> dict[str, Any] | None:
    """A tile of the web's map, by zoom, column and row."""
    if not 0 <= zoom <= _MAX_ZOOM or not 0 <= x < 2**zoom or not 0 <= y < 2**zoom:
        return None
    side = 2.0**zoom

    def latitude(row: int) -> float:
        return math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / side))))

    return bbox_outline([x / side * 360 - 180, latitude(y + 1), (x + 1) / side * 360 - 180, latitude(y)])


def _cell_outline(cell: str) -> dict[str, Any] | None:
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
