"""Geometries as they should be: read, checked, repaired or reported, brought into another coordinate system.

Nothing is dropped without being counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyproj
import shapely

from dagmaster.handlers.vector import antimeridian, map_discontinuities
from dagmaster.handlers.vector.dataset_files import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.handlers.vector.models import GeometryRules

MAX_PROBLEMS: Final = 20
"""How many are told one by one. All are counted."""
FAR: Final = 5e7
"""Metres. The Earth has a girth of 4e7: what lies beyond is no place, such as a pole on a Mercator map."""
BACK: Final = 1e-5
"""Degrees, a metre: how far off a point may be that went to another CRS and back."""
DEGREES: Final = "OGC:CRS84"


@dataclass(slots=True)
class Tally:
    """What was found. `invalid` counts by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    problems: list[dict[str, Any]] = field(default_factory=list)

    def note(self, row: int, problem: str) -> None:
        """Tell of one feature, unless many were told of."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append({"feature": row + 1, "problem": problem})


class Mending:
    """How geometries of one file become those of its table."""

    def __init__(self, rules: GeometryRules, source: pyproj.CRS, target: pyproj.CRS) -> None:
        self._rules = rules
        self._to = Reprojection(source, target)
        self._target = target
        self._clip = None if rules.clip_bbox is None else _clip_shape(rules.clip_bbox, source)
        self.tally = Tally()
        self._has_heights: bool | None = None

    def mend(self, raw: Sequence[bytes | str | None], row: int) -> tuple[Any, Any]:
        """The geometries, and which of the features stay. `row` is the first one's."""
        shapes = self._without_m(self._parsed(raw, row))
        stay = np.ones(len(shapes), dtype=bool)
        if self._rules.heights == "drop":
            self.tally.counts["heights_dropped"] += int(shapely.has_z(shapes).sum())
            shapes = shapely.force_2d(shapes)
        self._missing(shapes, stay, row)
        shapes = self._valid(shapes, row, "")
        if self._clip is not None:
            shapes = self._clipped(shapes, stay)
        shapes = self._reprojected(shapes, row)
        there = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
        self._alike(shapes, np.flatnonzero(there & stay), row)
        return shapes, stay

    def _alike(self, shapes: Any, counted: Any, row: int) -> None:
        """All have heights, or none has: the first one says which, and the first that differs is refused."""
        if not len(counted):
            return
        has_z = shapely.has_z(shapes[counted])
        if self._has_heights is None:
            self._has_heights = bool(has_z[0])
        others = counted[has_z != self._has_heights]
        if len(others):
            has, have = ("no height", "have some") if self._has_heights else ("heights", "have none")
            raise invalid(
                f"some features have heights (Z) and some have not: feature {row + int(others[0]) + 1:,} has {has},"
                f" those before it {have}. Say heights: drop, or give all of them one"
            )

    def _parsed(self, raw: Sequence[bytes | str | None], row: int) -> Any:
        values = np.array(raw, dtype=object)
        is_text = any(isinstance(one, str) for one in raw)
        read = shapely.from_wkt if is_text else shapely.from_wkb
        try:
            return read(values)
        except (shapely.errors.ShapelyError, NotImplementedError, TypeError):
            pass
        return np.array([self._parsed_one(read, one, row + at) for at, one in enumerate(raw)], dtype=object)

    def _parsed_one(self, read: Any, one: bytes | str | None, row: int) -> Any:
        if one is None:
            return None
        try:
            return read(one)
        except NotImplementedError as error:
            raise invalid(
                f"feature {row + 1:,} has curves: straighten them first, with ogr2ogr -nlt CONVERT_TO_LINEAR"
            ) from error
        except (shapely.errors.ShapelyError, TypeError) as error:
            reason = str(error).partition(": ")[2] or str(error)
            found = read(one, on_invalid="fix")
        if found is None:
            raise invalid(f"feature {row + 1:,} has a geometry that cannot be read: {reason[:200]}")
        if self._rules.invalid == "fail":
            raise invalid(f"feature {row + 1:,} has a ring that is not closed: say invalid: repair, or close it")
        # Kept as it is it would be no geometry at all: also those who want a report get it closed.
        self.tally.invalid["Ring not closed"] += 1
        self.tally.counts["closed"] += 1
        self.tally.note(row, "Ring not closed")
        return found

    def _without_m(self, shapes: Any) -> Any:
        measured = shapely.has_m(shapes)
        if not measured.any():
            return shapes
        self.tally.counts["m_dropped"] += int(measured.sum())
        shapes = shapes.copy()
        for at in np.flatnonzero(measured).tolist():
            one = shapes[at]
            flat = shapely.force_2d(one)
            if one.has_z:
                # Not force_3d alone: of ZM it makes a Z of zero.
                flat = shapely.set_coordinates(shapely.force_3d(flat), shapely.get_coordinates(one, include_z=True))
            shapes[at] = flat
        return shapes

    def _missing(self, shapes: Any, stay: Any, row: int) -> None:
        null, empty = shapely.is_missing(shapes), shapely.is_empty(shapes)
        self.tally.counts["null_geometry"] += int(null.sum())
        self.tally.counts["empty_geometry"] += int(empty.sum())
        for at in np.flatnonzero(null | empty).tolist():
            if self._rules.missing_geometry == "fail":
                raise invalid(f"feature {row + at + 1:,} has no geometry: say missing_geometry: keep or drop")
            self.tally.note(row + at, "no geometry" if null[at] else "empty geometry")
        if self._rules.missing_geometry == "drop":
            stay &= ~(null | empty)
            self.tally.counts["dropped"] += int((null | empty).sum())

    def _valid(self, shapes: Any, row: int, after: str) -> Any:
        wrong = ~(shapely.is_valid(shapes) | shapely.is_missing(shapes))
        if not wrong.any():
            return shapes
        shapes = shapes.copy()
        for at in np.flatnonzero(wrong).tolist():
            reason = str(shapely.is_valid_reason(shapes[at]))
            kind = reason.partition("[")[0].strip() + after
            if self._rules.invalid == "fail":
                raise invalid(f"feature {row + at + 1:,} is not valid: {reason}. Say invalid: repair, or report")
            self.tally.invalid[kind] += 1
            self.tally.note(row + at, reason + after)
            if self._rules.invalid == "repair":
                shapes[at] = self._repaired(shapes[at], row + at, reason)
        return shapes

    def _repaired(self, shape: Any, row: int, reason: str) -> Any:
        if not np.isfinite(shapely.get_coordinates(shape)).all():
            raise invalid(f"feature {row + 1:,} has a coordinate that is no number, and cannot be repaired: {reason}")
        found = same_dimension(shapely.make_valid(shape, method="structure", keep_collapsed=False), shape)
        if not found.is_valid:
            raise invalid(f"feature {row + 1:,} cannot be repaired: {reason}")
        self.tally.counts["repaired"] += 1
        self.tally.counts["collapsed"] += int(found.is_empty)
        return found

    def _clipped(self, shapes: Any, stay: Any) -> Any:
        there = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
        inside = np.zeros(len(shapes), dtype=bool)
        inside[there] = shapely.covered_by(shapes[there], self._clip)
        shapes = shapes.copy()
        for at in np.flatnonzero(there & ~inside).tolist():
            shapes[at] = same_dimension(shapely.intersection(shapes[at], self._clip), shapes[at])
            self.tally.counts["clipped"] += int(not shapes[at].is_empty)
        away = there & shapely.is_empty(shapes)
        self.tally.counts["clipped_away"] += int(away.sum())
        stay &= ~away
        return shapes

    def _reprojected(self, shapes: Any, row: int) -> Any:
        moved, bad = self._to.apply(shapes)
        across = bad & antimeridian.needs_cut(shapes, unroll=False) if self._to.is_from_degrees else bad & False
        if across.any():
            # 178 to 182 degrees: most maps end in between.
            shapes = shapes.copy()
            shapes[across] = [antimeridian.cut(one, unroll=False) for one in shapes[across]]
            moved[across], bad[across] = self._to.apply(shapes[across])
            self.tally.counts["antimeridian_cut"] += int(across.sum())
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            if self._rules.outside == "fail":
                raise invalid(
                    f"feature {row + at + 1:,} reaches beyond what {short(self._target)} can show, or across the"
                    f" edge of its map, and {int(bad.sum()) - 1} more of its batch do: say outside: clip to cut them"
                    " off, or choose another target_crs"
                )
            moved = self._cut_to_area(shapes, moved, bad, row)
        if self._target.is_geographic:
            moved = self._within_the_map(moved, row)
        return moved if moved is shapes else self._valid(moved, row, " after reprojection")

    def _cut_to_area(self, shapes: Any, moved: Any, bad: Any, row: int) -> Any:
        area = self._to.area()
        if area is None:
            raise invalid(f"nobody knows the area of {short(self._target)}: feature {row + 1:,} cannot be cut to it")
        cut = shapes.copy()
        for at in np.flatnonzero(bad).tolist():
            cut[at] = same_dimension(shapely.intersection(cut[at], area), cut[at])
            self.tally.counts["clipped"] += 1
            self.tally.note(row + at, f"cut to the area of {short(self._target)}")
        again, still = self._to.apply(cut[bad])
        if still.any():
            raise invalid(f"feature {row + 1:,} and its neighbours cannot be shown in {short(self._target)}")
        moved = moved.copy()
        moved[bad] = again
        return moved

    def _within_the_map(self, shapes: Any, row: int) -> Any:
        bounds = shapely.bounds(shapes)
        with np.errstate(invalid="ignore"):
            beyond = (bounds[:, 1] < -90 - antimeridian.TOLERANCE) | (bounds[:, 3] > 90 + antimeridian.TOLERANCE)
        if beyond.any():
            at = int(np.flatnonzero(beyond)[0])
            south, north = f"{bounds[at, 1]:g}", f"{bounds[at, 3]:g}"
            latitude = south if south == north else f"{south} to {north}"
            raise invalid(
                f"feature {row + at + 1:,} has a latitude of {latitude}, beyond the pole:"
                " are longitude and latitude swapped, or is the CRS another one?"
            )
        unroll = self._to.is_from_a_map
        wrong = antimeridian.needs_cut(shapes, unroll=unroll)
        if wrong.any():
            shapes = shapes.copy()
            for at in np.flatnonzero(wrong).tolist():
                shapes[at] = antimeridian.cut(shapes[at], unroll=unroll)
                self.tally.counts["antimeridian_cut"] += 1
        return shapes


class Reprojection:
    """From one coordinate system to another, x before y in both. Heights stay as they are."""

    def __init__(self, source: pyproj.CRS, target: pyproj.CRS) -> None:
        self._source, self._target = source, target
        self.is_same = source.equals(target, ignore_axis_order=True)
        self.is_from_a_map = not self.is_same and not source.is_geographic
        self.is_from_degrees = source.is_geographic and not target.is_geographic
        self._there = pyproj.Transformer.from_crs(source, target, always_xy=True)

    def apply(self, shapes: Any) -> tuple[Any, Any]:
        """The geometries there, and which of them cannot be shown there."""
        bad = np.zeros(len(shapes), dtype=bool)
        if self.is_same:
            return shapes, bad
        moved = np.empty_like(shapes)
        for has_z in (False, True):
            group = shapely.has_z(shapes) == has_z
            if group.any():
                moved[group] = shapely.transform(shapes[group], self._points, include_z=has_z)
        before, index = shapely.get_coordinates(shapes, return_index=True)
        after = shapely.get_coordinates(moved)
        bad[np.unique(index[self._lost(before, after)])] = True
        if not self._target.is_geographic:
            bad |= map_discontinuities.torn(shapes, moved, self._points, self._unit)
        return moved, bad

    def area(self) -> Any:
        """Where the target is meant for, in the source's coordinates."""
        area = self._target.area_of_use
        return None if area is None else _clip_shape(area.bounds, self._source)

    def _points(self, points: Any) -> Any:
        moved = points.copy()
        moved[:, 0], moved[:, 1] = self._there.transform(points[:, 0], points[:, 1])
        return moved

    @property
    def _unit(self) -> float:
        return float(self._target.axis_info[0].unit_conversion_factor or 1.0)

    def _lost(self, before: Any, after: Any) -> Any:
        lost = ~np.isfinite(after).all(axis=1)
        if not self._target.is_geographic:
            with np.errstate(invalid="ignore"):
                lost |= (np.abs(after) * self._unit > FAR).any(axis=1)
            back = np.column_stack(self._there.transform(after[:, 0], after[:, 1], direction="INVERSE"))
            reach = BACK if self._source.is_geographic else 1.0
            with np.errstate(invalid="ignore"):
                off = np.abs(back - before)
            if self._source.is_geographic:
                # 180 and -180 are one meridian, and at a pole every longitude is right.
                off[:, 0] = np.minimum(off[:, 0], np.abs(360 - off[:, 0]))
                off[np.abs(before[:, 1]) > 90 - BACK, 0] = 0
            lost |= ~(off <= reach).all(axis=1)
        return lost


def same_dimension(found: Any, like: Any) -> Any:
    """The parts of a result that have the dimension of what it came from: areas of an area. It may be empty."""
    wanted = shapely.get_dimensions(like)
    parts = [one for one in shapely.get_parts(found) if shapely.get_dimensions(one) == wanted]
    if found.geom_type == "GeometryCollection" or any(one.geom_type == "GeometryCollection" for one in parts):
        parts = [one for each in parts for one in shapely.get_parts(each) if shapely.get_dimensions(one) == wanted]
    if like.geom_type == "GeometryCollection":
        return found
    make = {0: shapely.multipoints, 1: shapely.multilinestrings, 2: shapely.multipolygons}[wanted]
    return parts[0] if len(parts) == 1 else make(parts)


def lon_lat_bounds(bounds: Sequence[float] | None, crs: pyproj.CRS) -> list[float] | None:
    """A bbox in degrees, of one in a CRS."""
    if bounds is None:
        return None
    if not crs.equals(pyproj.CRS.from_user_input("EPSG:4326"), ignore_axis_order=True):
        transformer = pyproj.Transformer.from_crs(crs, DEGREES, always_xy=True)
        left, bottom, right, top = bounds
        bounds = transformer.transform_bounds(left, bottom, right, top, densify_pts=21)
    west, south, east, north = (round(float(one), 9) for one in bounds)
    return [max(west, -180.0), max(south, -90.0), min(east, 180.0), min(north, 90.0)]


def short(crs: pyproj.CRS) -> str:
    """`EPSG:3857`, or its name."""
    code = crs.to_authority()
    return crs.name if code is None else ":".join(code)


def _clip_shape(bbox: Sequence[float], crs: pyproj.CRS) -> Any:
    """A box in degrees, as a shape in a CRS. Its sides are bent where the CRS bends them."""
    west, south, east, north = bbox
    if not (west != east and south < north):
        raise invalid(f"the bbox {list(bbox)} is empty: west, south, east, north in degrees were expected")
    if crs.is_geographic:
        # A west that is beyond the east is across the antimeridian.
        ends = [(west, east)] if west < east else [(west, 180.0), (-180.0, east)]
        return shapely.union_all([shapely.box(left, south, right, north) for left, right in ends])
    box = shapely.box(west, south, east if west < east else east + 360, north)
    moved, bad = Reprojection(pyproj.CRS.from_user_input(DEGREES), crs).apply(
        np.array([shapely.segmentize(box, 1.0)], dtype=object)
    )
    if bad.any():
        raise invalid(f"the bbox {list(bbox)} reaches beyond what {short(crs)}, the file's CRS, can show")
    shapely.prepare(moved)
    return moved[0]
