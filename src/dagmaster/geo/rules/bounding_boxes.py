"""Bounding boxes in degrees: parse them, split them at the antimeridian, compute them from GeoJSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import invalid_input
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dagmaster.json_types import JsonObject, JsonValue

BBox = tuple[float, float, float, float]
"""West, south, east, north, in degrees."""

ROUNDING_DEGREES: Final = 1e-6
"""How far beyond ±180 and ±90 a coordinate may lie: rounding, about 10 cm."""

_NESTING: Final = {
    "Point": 0,
    "MultiPoint": 1,
    "LineString": 1,
    "MultiLineString": 2,
    "Polygon": 2,
    "MultiPolygon": 3,
}
"""How many lists enclose a position, by geometry type."""


def parse_bbox(values: Sequence[JsonValue], label: str = "the bbox") -> BBox:
    """Parse west, south, east, north; heights are dropped.

    West greater than east crosses the antimeridian.
    """
    if not isinstance(values, list | tuple) or len(values) not in (4, 6) or not all(map(_is_number, values)):
        raise invalid_input(
            f"{label} is {values!r:.80}: expected four finite numbers, west, south, east, north, in degrees"
        )
    half = len(values) // 2
    west, south, east, north = (
        float(value) for value in (values[0], values[1], values[half], values[half + 1])
    )
    for degrees, limit, side in (
        (west, 180, "west"),
        (east, 180, "east"),
        (south, 90, "south"),
        (north, 90, "north"),
    ):
        if abs(degrees) > limit + ROUNDING_DEGREES:
            hint = ""
            if limit == 180:  # noqa: PLR2004 - of longitudes
                hint = " Across the antimeridian, west is greater than east: 170,-10,-170,10."
            raise invalid_input(
                f"{label} has {side} {degrees:g}: expected degrees from -{limit} to {limit}.{hint}"
            )
    if south > north:
        raise invalid_input(
            f"{label} has its south ({south:g}) above its north ({north:g}): the order is"
            " west,south,east,north"
        )
    return west, south, east, north


def split_at_antimeridian(bbox: BBox) -> list[BBox]:
    """Return the bbox as one part, or as two if it crosses the antimeridian."""
    west, south, east, north = bbox
    return [bbox] if west <= east else [(west, south, 180.0, north), (-180.0, south, east, north)]


def bbox_union(boxes: Iterable[Sequence[float]]) -> BBox:
    """Return the bbox around one or more bboxes, none of which crosses the antimeridian."""
    wests, souths, easts, norths = zip(*boxes, strict=True)
    return min(wests), min(souths), max(easts), max(norths)


def wrap_longitude(longitude: float, *, is_east: bool = False) -> float:
    """Wrap a longitude to -180 … 180. On the antimeridian, the east of a bbox is 180 and its west -180."""
    wrapped = (longitude + 180) % 360 - 180
    if min(wrapped + 180, 180 - wrapped) < ROUNDING_DEGREES:
        return 180.0 if is_east else -180.0
    return wrapped


def bbox_to_geometry(bbox: BBox) -> dict[str, Any]:
    """Convert a bbox to GeoJSON, cut at the antimeridian as RFC 7946 asks.

    A bbox without width or height becomes a line or a point: a polygon without area intersects nothing.
    """
    parts = [_rectangle(part) for part in split_at_antimeridian(bbox)]
    if len(parts) == 1:
        return parts[0]
    if any(part["type"] != "Polygon" for part in parts):
        return {"type": "GeometryCollection", "geometries": parts}
    return {"type": "MultiPolygon", "coordinates": [part["coordinates"] for part in parts]}


def _rectangle(bbox: BBox) -> JsonObject:
    west, south, east, north = bbox
    corners = list(dict.fromkeys([(west, south), (east, south), (east, north), (west, north)]))
    if len(corners) == 1:
        return {"type": "Point", "coordinates": list(corners[0])}
    if len(corners) == 2:  # noqa: PLR2004 - both ends of a line
        return {"type": "LineString", "coordinates": [list(corner) for corner in corners]}
    return {"type": "Polygon", "coordinates": [[list(corner) for corner in [*corners, corners[0]]]]}


def geometry_bounds(geometry: object, label: str) -> BBox:
    """Return the minimum and maximum coordinates of a GeoJSON geometry; check its structure on the way."""
    if geometry is None:
        raise invalid_input(
            f"{label} has no geometry, so no search can find it: add a GeoJSON geometry in degrees"
        )
    positions = list(_positions(geometry, label, 0))
    longitudes, latitudes = [position[0] for position in positions], [position[1] for position in positions]
    west, south = float(min(longitudes)), float(min(latitudes))
    east, north = float(max(longitudes)), float(max(latitudes))
    max_longitude, max_latitude = 180 + ROUNDING_DEGREES, 90 + ROUNDING_DEGREES
    if west < -max_longitude or east > max_longitude or south < -max_latitude or north > max_latitude:
        raise invalid_input(
            f"the geometry of {label} reaches from {west:g}, {south:g} to {east:g}, {north:g}: expected"
            " longitude (-180 to 180), then latitude (-90 to 90), in degrees. Cut a geometry across the"
            " antimeridian into a MultiPolygon"
        )
    return west, south, east, north


def _positions(geometry: object, label: str, depth: int) -> Iterator[Sequence[float]]:
    geometry_type = geometry.get("type") if isinstance(geometry, dict) else None
    if not isinstance(geometry, dict) or (
        geometry_type not in _NESTING and geometry_type != "GeometryCollection"
    ):
        types = ", ".join([*_NESTING, "GeometryCollection"])
        raise invalid_input(f"the geometry of {label} is {geometry!r:.80}: expected GeoJSON, one of {types}")
    if geometry_type == "GeometryCollection":
        parts = geometry.get("geometries")
        if not isinstance(parts, list) or not parts or depth:
            raise invalid_input(
                f"the geometry of {label} is a GeometryCollection without geometries, or one inside another:"
                " write its geometries"
            )
        for part in parts:
            yield from _positions(part, label, depth + 1)
        return
    yield from _nested_positions(
        geometry.get("coordinates"), _NESTING[str(geometry_type)], str(geometry_type), label
    )


def _nested_positions(
    values: object, depth: int, geometry_type: str, label: str
) -> Iterator[Sequence[float]]:
    if not isinstance(values, list | tuple) or not values:
        raise invalid_input(f"the {geometry_type} of {label} has no coordinates: add them")
    if depth:
        _check_line(values, depth, geometry_type, label)
        for value in values:
            yield from _nested_positions(value, depth - 1, geometry_type, label)
        return
    if len(values) < 2 or not all(map(_is_number, values)):  # noqa: PLR2004 - longitude and latitude
        raise invalid_input(
            f"the {geometry_type} of {label} has a position {values!r:.80}: expected finite numbers,"
            " longitude then latitude"
        )
    yield values


def _check_line(values: Sequence[JsonValue], depth: int, geometry_type: str, label: str) -> None:
    """Require two positions of a line, and four of a ring, whose last position equals its first."""
    if depth != 1 or geometry_type == "MultiPoint":
        return
    min_positions = 4 if "Polygon" in geometry_type else 2
    if len(values) < min_positions:
        raise invalid_input(
            f"the {geometry_type} of {label} has a line of {format_count(len(values), 'position')}:"
            f" at least {min_positions}"
            " are needed"
        )
    if "Polygon" in geometry_type and values[0] != values[-1]:
        raise invalid_input(
            f"the {geometry_type} of {label} has a ring that is not closed: repeat its first position as its"
            " last"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
