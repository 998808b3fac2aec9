"""Convert curves and surfaces, which shapely does not know, to lines and polygons: from WKB or WKT to WKB.

An arc is replaced by chords. Its three defining points stay exactly as they are, and an arc in the other
direction has the same vertices, so that neighbours which share an arc still share a border.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from dagmaster.geo.vector.models import CURVE_STEP_DEGREES
from dagmaster.text_format import format_count

_POINT, _LINE, _POLYGON, _MULTIPOINT, _MULTILINE, _MULTIPOLYGON, _COLLECTION = range(1, 8)
_CIRCULAR, _COMPOUND, _CURVE_POLYGON, _MULTICURVE, _MULTISURFACE = range(8, 13)
_POLYHEDRAL, _TIN, _TRIANGLE = range(15, 18)
_ARCS: Final = (_CIRCULAR, _COMPOUND, _CURVE_POLYGON, _MULTICURVE, _MULTISURFACE)
_KEYWORDS: Final = {
    "POINT": _POINT, "LINESTRING": _LINE, "POLYGON": _POLYGON, "MULTIPOINT": _MULTIPOINT,
    "MULTILINESTRING": _MULTILINE, "MULTIPOLYGON": _MULTIPOLYGON, "GEOMETRYCOLLECTION": _COLLECTION,
    "CIRCULARSTRING": _CIRCULAR, "COMPOUNDCURVE": _COMPOUND, "CURVEPOLYGON": _CURVE_POLYGON,
    "MULTICURVE": _MULTICURVE, "MULTISURFACE": _MULTISURFACE, "POLYHEDRALSURFACE": _POLYHEDRAL, "TIN": _TIN,
    "TRIANGLE": _TRIANGLE,
}  # fmt: skip
_DEFAULT_MEMBER: Final = {
    _MULTIPOINT: _POINT, _MULTILINE: _LINE, _MULTIPOLYGON: _POLYGON, _COMPOUND: _LINE, _CURVE_POLYGON: _LINE,
    _MULTICURVE: _LINE, _MULTISURFACE: _POLYGON, _POLYHEDRAL: _POLYGON, _TIN: _TRIANGLE,
}  # fmt: skip
"""What a member without a keyword is, in WKT."""
_LINEAR: Final = {
    _CIRCULAR: _LINE, _COMPOUND: _LINE, _CURVE_POLYGON: _POLYGON, _MULTICURVE: _MULTILINE,
    _MULTISURFACE: _MULTIPOLYGON, _POLYHEDRAL: _MULTIPOLYGON, _TIN: _MULTIPOLYGON, _TRIANGLE: _POLYGON,
}  # fmt: skip
_EWKB_Z, _EWKB_M, _EWKB_SRID = 0x80000000, 0x40000000, 0x20000000
_MAX_DEPTH: Final = 32
_XY: Final = 2
_TOKEN: Final = re.compile(r"[A-Z]+|[-+.0-9][-+.0-9E]*|[(),]")


@dataclass(slots=True)
class Shape:
    """A geometry as its parts: an array of points, or members. The rings of a polygon are members."""

    kind: int
    dimensions: str
    points: Any = None
    members: list[Shape] = field(default_factory=list)

    @property
    def has_arcs(self) -> bool:
        """Return whether the geometry, or a part of it, is of a type for arcs."""
        return self.kind in _ARCS or any(member.has_arcs for member in self.members)

    @property
    def is_simple_feature(self) -> bool:
        """Return whether shapely knows the type of the geometry and of all its parts."""
        return self.kind not in _LINEAR and all(member.is_simple_feature for member in self.members)


def linearize_unsupported(value: bytes | str, step_degrees: float = CURVE_STEP_DEGREES) -> bytes | None:
    """Return a geometry that shapely does not know as WKB of simple features; None for other geometries."""
    try:
        shape = parse(value)
        return None if shape.is_simple_feature else linearize(shape, step_degrees)
    except ValueError:
        return None


def parse(value: bytes | str) -> Shape:
    """Parse WKB, EWKB or WKT; raise ValueError if it is neither."""
    try:
        return _WktParser(value).parse() if isinstance(value, str) else _WkbParser(value).parse()
    except (struct.error, IndexError, KeyError) as error:
        raise ValueError(str(error)) from error


def linearize(shape: Shape, step_degrees: float) -> bytes:
    """Return the geometry as WKB of lines and polygons. No chord spans more than this angle."""
    return _encode(_linear_shape(shape, math.radians(step_degrees)))


def without_short_lines(shape: Shape) -> bytes | None:
    """Return the geometry as WKB without lines of one point, unknown to shapely; None if it has none."""
    return _encode(_without_short(shape)) if _has_short(shape) else None


def _has_short(shape: Shape) -> bool:
    if shape.kind == _LINE:
        return len(shape.points) == 1
    # The rings of a polygon are no lines.
    return shape.kind in (_MULTILINE, _COLLECTION) and any(map(_has_short, shape.members))


def _without_short(shape: Shape) -> Shape:
    if shape.kind == _LINE:
        return replace(shape, points=shape.points[:0])
    members = [
        _without_short(member) if _has_short(member) else member
        for member in shape.members
        if not (member.kind == _LINE and _has_short(member))
    ]
    return replace(shape, members=members)


def _linear_shape(shape: Shape, step: float) -> Shape:
    kind = _LINEAR.get(shape.kind, shape.kind)
    if shape.kind == _CIRCULAR:
        return Shape(kind, shape.dimensions, _stroke(shape.points, step))
    members = [_linear_shape(member, step) for member in shape.members]
    if shape.kind == _COMPOUND:
        # Each part begins where the one before it ends.
        parts = [member.points[1:] if index else member.points for index, member in enumerate(members)]
        return Shape(kind, shape.dimensions, np.concatenate([np.empty((0, len(shape.dimensions))), *parts]))
    return Shape(kind, shape.dimensions, shape.points, members)


# ── Arcs ────────────────────────────────────────────────────────────────────────────────────────────────────


def _stroke(points: Any, step: float) -> Any:
    """Replace the arcs through each three points by chords."""
    if len(points) % 2 == 0 and len(points):
        raise ValueError(
            f"an arc has three points, and arcs share their ends: not {format_count(len(points), 'point')}"
        )
    triples = [points[index : index + 3] for index in range(0, len(points) - 2, 2)]
    arcs = [_stroke_arc(start, middle, end, step) for start, middle, end in triples]
    return np.concatenate([points[:1], *(arc[1:] for arc in arcs)])


def _stroke_arc(start: Any, middle: Any, end: Any, step: float) -> Any:
    if tuple(start) > tuple(end):
        return _stroke_arc(end, middle, start, step)[::-1]
    center = _center(start, middle, end)
    if center is None:
        return np.array([start, middle, end])
    angles = [math.atan2(point[1] - center[1], point[0] - center[0]) for point in (start, middle, end)]
    full_circle = 2 * math.pi
    is_circle = bool((start[:_XY] == end[:_XY]).all())
    turns = [(after - before) % full_circle for before, after in pairwise(angles)]
    if is_circle:
        turns = [math.pi, math.pi]
    elif sum(turns) > full_circle:
        turns = [turn - full_circle for turn in turns]
    first = _stroke_between(start, middle, center, turns[0], step)
    second = _stroke_between(middle, end, center, turns[1], step)
    return np.concatenate([first, second[1:]])


def _stroke_between(start: Any, end: Any, center: tuple[float, float], turn: float, step: float) -> Any:
    """Return vertices from start to end. Heights and measures change evenly."""
    count = max(1, math.ceil(abs(turn) / step - 1e-9))
    parts = np.linspace(0.0, 1.0, count + 1)[:, None]
    vertices = start + (end - start) * parts
    across, up = start[0] - center[0], start[1] - center[1]
    radius, angle = math.hypot(across, up), math.atan2(up, across)
    directions = angle + turn * parts[1:-1, 0]
    vertices[1:-1, 0] = center[0] + radius * np.cos(directions)
    vertices[1:-1, 1] = center[1] + radius * np.sin(directions)
    vertices[0], vertices[-1] = start, end
    return vertices


def _center(start: Any, middle: Any, end: Any) -> tuple[float, float] | None:
    """Return the centre of the circle through three points; None if they lie on a line."""
    if (start[:_XY] == end[:_XY]).all():
        # A full circle: the middle point is opposite to the start.
        x, y = (start[:_XY] + middle[:_XY]) / 2
        return (float(x), float(y)) if (start[:_XY] != middle[:_XY]).any() else None
    (ax, ay), (bx, by) = (middle - start)[:_XY], (end - start)[:_XY]
    area = 2 * float(ax * by - ay * bx)
    extent = max(abs(float(side)) for side in (ax, ay, bx, by))
    if abs(area) <= 1e-12 * extent * extent:
        return None
    a, b = float(ax * ax + ay * ay), float(bx * bx + by * by)
    return float(start[0]) + (by * a - ay * b) / area, float(start[1]) + (ax * b - bx * a) / area


# ── WKB ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _WkbParser:
    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0

    def parse(self, depth: int = 0) -> Shape:
        if depth > _MAX_DEPTH:
            raise ValueError(f"geometries are nested more than {_MAX_DEPTH} deep")
        order = "<" if self._data[self._offset] == 1 else ">"
        self._offset += 1
        code = self._integer(order)
        if code & _EWKB_SRID:
            self._integer(order)
        thousands = (code & 0xFFFF) // 1000
        has_z = bool(code & _EWKB_Z) or thousands in (1, 3)
        has_m = bool(code & _EWKB_M) or thousands in (2, 3)
        dimensions = f"XY{'Z' * has_z}{'M' * has_m}"
        kind = (code & 0xFFFF) % 1000
        if kind == _POINT:
            return Shape(kind, dimensions, self._points(order, 1, dimensions))
        if kind in (_LINE, _CIRCULAR):
            return Shape(kind, dimensions, self._points(order, self._integer(order), dimensions))
        if kind in (_POLYGON, _TRIANGLE):
            rings = [
                Shape(_LINE, dimensions, self._points(order, self._integer(order), dimensions))
                for _ in range(self._integer(order))
            ]
            return Shape(kind, dimensions, members=rings)
        if kind not in _KEYWORDS.values():
            raise ValueError(f"there is no geometry type {code}")
        return Shape(kind, dimensions, members=[self.parse(depth + 1) for _ in range(self._integer(order))])

    def _integer(self, order: str) -> int:
        (number,) = struct.unpack_from(f"{order}I", self._data, self._offset)
        self._offset += 4
        return int(number)

    def _points(self, order: str, count: int, dimensions: str) -> Any:
        size = count * len(dimensions)
        if self._offset + 8 * size > len(self._data):
            raise ValueError("the geometry is truncated")
        numbers = np.frombuffer(self._data, f"{order}f8", size, self._offset).astype("<f8")
        self._offset += 8 * size
        return numbers.reshape(count, len(dimensions))


def _encode(shape: Shape) -> bytes:
    code = shape.kind + {"XY": 0, "XYZ": 1000, "XYM": 2000, "XYZM": 3000}[shape.dimensions]
    head = struct.pack("<BI", 1, code)
    if shape.kind == _POINT:
        return head + bytes(shape.points.tobytes())
    if shape.kind == _LINE:
        return head + struct.pack("<I", len(shape.points)) + bytes(shape.points.tobytes())
    if shape.kind == _POLYGON:
        rings = [struct.pack("<I", len(ring.points)) + ring.points.tobytes() for ring in shape.members]
        return head + struct.pack("<I", len(rings)) + b"".join(rings)
    return (
        head + struct.pack("<I", len(shape.members)) + b"".join(_encode(member) for member in shape.members)
    )


# ── WKT ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _WktParser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(
            text.upper().partition(";")[2] if text[:5].upper() == "SRID=" else text.upper()
        )
        self._position = 0

    def parse(self) -> Shape:
        shape = self._geometry(None, "XY", 0)
        if self._position != len(self._tokens):
            raise ValueError("there is text after the geometry")
        return shape

    def _next(self) -> str:
        self._position += 1
        return str(self._tokens[self._position - 1])

    def _geometry(self, kind: int | None, dimensions: str, depth: int) -> Shape:
        if depth > _MAX_DEPTH:
            raise ValueError(f"geometries are nested more than {_MAX_DEPTH} deep")
        if self._tokens[self._position] in _KEYWORDS:
            kind = _KEYWORDS[self._next()]
            if self._tokens[self._position] in ("Z", "M", "ZM"):
                dimensions = f"XY{self._next()}"
        if kind is None:
            raise ValueError("a keyword is missing")
        if self._tokens[self._position] == "EMPTY":
            self._next()
            points = (
                np.full((1, len(dimensions)), np.nan) if kind == _POINT else np.empty((0, len(dimensions)))
            )
            return Shape(kind, dimensions, points)
        if kind in (_POINT, _LINE, _CIRCULAR):
            return self._line(kind, dimensions)
        member = _LINE if kind in (_POLYGON, _TRIANGLE) else _DEFAULT_MEMBER.get(kind)
        members = self._list(lambda: self._geometry(member, dimensions, depth + 1))
        return Shape(kind, members[0].dimensions, members=members)

    def _line(self, kind: int, dimensions: str) -> Shape:
        if kind == _POINT and self._tokens[self._position] != "(":
            rows = [self._numbers()]
        else:
            rows = self._list(self._numbers)
        if dimensions == "XY":
            # POINT (1 2 3) has a height without saying so.
            dimensions = {2: "XY", 3: "XYZ", 4: "XYZM"}[len(rows[0])]
        return Shape(kind, dimensions, np.array(rows, dtype="<f8").reshape(len(rows), len(dimensions)))

    def _numbers(self) -> list[float]:
        numbers = []
        while self._tokens[self._position] not in ("(", ")", ","):
            numbers.append(float(self._next()))
        return numbers

    def _list(self, parse_entry: Any) -> list[Any]:
        if self._next() != "(":
            raise ValueError("a parenthesis is missing")
        entries = [parse_entry()]
        while self._next() == ",":
            entries.append(parse_entry())
        return entries
