"""Clean geometries: decode, check, repair or report, clip and reproject them.

Nothing is dropped without being counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely

from dagmaster.errors import invalid_input
from dagmaster.geo.vector import antimeridian, curves
from dagmaster.geo.vector.reprojection import Reprojection, bbox_in_crs, crs_label
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyproj

    from dagmaster.geo.vector.models import GeometryRules

_SHORT_LINE: Final = "Line with fewer than two points"
MAX_PROBLEMS: Final = 20
"""How many problems are listed. All are counted."""
MAX_LONGITUDE: Final = 3 * 360.0
"""Degrees: files that cross the antimeridian continue beyond 180, but not for turns."""


@dataclass(slots=True)
class CleaningReport:
    """What was found and done. `invalid` counts by reason."""

    counts: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    problems: list[dict[str, Any]] = field(default_factory=list)

    def add_problem(self, row: int, problem: str) -> None:
        """List the problem of a feature, unless the list is full."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append({"feature": row + 1, "problem": problem})


class GeometryCleaner:
    """Convert the geometries of one file to the CRS and type of its table."""

    def __init__(self, rules: GeometryRules, source: pyproj.CRS, target: pyproj.CRS) -> None:
        self._rules = rules
        self._reprojection = Reprojection(source, target)
        self._target = target
        self._clip_area = None if rules.clip_bbox is None else bbox_in_crs(rules.clip_bbox, source)
        self.report = CleaningReport()
        self._has_heights: bool | None = None

    def clean(self, encoded: Sequence[bytes | str | None], row: int) -> tuple[Any, Any]:
        """Return the geometries, and which features are kept. `row` is the index of the first feature."""
        geometries = self._drop_m(self._decode(encoded, row))
        is_kept = np.ones(len(geometries), dtype=bool)
        if self._rules.heights == "drop":
            self.report.counts["heights_dropped"] += int(shapely.has_z(geometries).sum())
            geometries = shapely.force_2d(geometries)
        is_empty = shapely.is_empty(geometries)
        self._check_missing(geometries, is_kept, row, shapely.is_missing(geometries) | is_empty)
        geometries = self._repair_invalid(geometries, row, "")
        # A line whose points are all equal is empty when it is repaired.
        self._check_missing(geometries, is_kept, row, shapely.is_empty(geometries) & ~is_empty)
        if self._clip_area is not None:
            geometries = self._clip(geometries, is_kept)
        geometries = self._reproject(geometries, row)
        is_present = ~(shapely.is_missing(geometries) | shapely.is_empty(geometries))
        self._require_same_dimensions(geometries, np.flatnonzero(is_present & is_kept), row)
        return geometries, is_kept

    def _require_same_dimensions(self, geometries: Any, indices: Any, row: int) -> None:
        """Require that all features have heights, or none: the first one decides."""
        if not len(indices):
            return
        has_z = shapely.has_z(geometries[indices])
        if self._has_heights is None:
            self._has_heights = bool(has_z[0])
        others = indices[has_z != self._has_heights]
        if len(others):
            has, have = ("no height", "have some") if self._has_heights else ("heights", "have none")
            raise invalid_input(
                f"some features have heights (Z) and some have not: feature {row + int(others[0]) + 1:,} has"
                f" {has}, those before it {have}. Set heights: drop, or give all features heights"
            )

    def _decode(self, encoded: Sequence[bytes | str | None], row: int) -> Any:
        values = np.array(encoded, dtype=object)
        is_text = any(isinstance(value, str) for value in encoded)
        decode = shapely.from_wkt if is_text else shapely.from_wkb
        try:
            return decode(values)
        except (shapely.errors.ShapelyError, NotImplementedError, TypeError):
            pass
        return np.array(
            [self._decode_one(decode, value, row + index) for index, value in enumerate(encoded)],
            dtype=object,
        )

    def _decode_one(self, decode: Any, value: bytes | str | None, row: int) -> Any:
        if value is None:
            return None
        try:
            return decode(value)
        except (shapely.errors.ShapelyError, NotImplementedError, TypeError) as error:
            reason = str(error).partition(": ")[2] or str(error)
        linear = self._linearize(value, row)
        if linear is not None:
            return self._decode_one(shapely.from_wkb, linear, row)
        longer = self._drop_short_lines(value, row)
        if longer is not None:
            return self._decode_one(shapely.from_wkb, longer, row)
        geometry = decode(value, on_invalid="fix")
        if geometry is None:
            raise invalid_input(
                f"the geometry of feature {row + 1:,} is damaged and cannot be read: correct it, or remove"
                f" the feature{library_words('GEOS', reason)}"
            )
        if self._rules.invalid == "fail":
            raise invalid_input(
                f"feature {row + 1:,} has a ring that is not closed: set invalid: repair, or close it"
            )
        # An open ring is no geometry at all, so it is closed even under `report`.
        self.report.invalid["Ring not closed"] += 1
        self.report.counts["closed"] += 1
        self.report.add_problem(row, "Ring not closed")
        return geometry

    def _drop_short_lines(self, value: bytes | str, row: int) -> bytes | None:
        """Return a geometry without its lines of one point; None if it has none."""
        try:
            encoded = curves.without_short_lines(curves.parse(value))
        except ValueError:
            return None
        if encoded is None:
            return None
        if self._rules.invalid == "fail":
            raise invalid_input(
                f"feature {row + 1:,} has a line with fewer than two points: set invalid: repair to empty it,"
                " or correct it"
            )
        # One point is no line at all, so it is emptied even under `report`.
        self.report.invalid[_SHORT_LINE] += 1
        self.report.counts["collapsed"] += 1
        self.report.add_problem(row, _SHORT_LINE)
        return encoded

    def _linearize(self, value: bytes | str, row: int) -> bytes | None:
        """Return a geometry with arcs, or a surface, as WKB of simple features; None if it is neither."""
        try:
            shape = curves.parse(value)
            linear = (
                None if shape.is_simple_feature else curves.linearize(shape, self._rules.curve_step_degrees)
            )
        except ValueError:
            return None
        if linear is not None and shape.has_arcs and self._rules.curves == "fail":
            raise invalid_input(
                f"feature {row + 1:,} has arcs, which a table does not store: set curves: linearize to"
                " replace them by chords"
            )
        self.report.counts["linearized" if shape.has_arcs else "surfaces_split"] += int(linear is not None)
        return linear

    def _drop_m(self, geometries: Any) -> Any:
        has_m = shapely.has_m(geometries)
        if not has_m.any():
            return geometries
        self.report.counts["m_dropped"] += int(has_m.sum())
        geometries = geometries.copy()
        for index in np.flatnonzero(has_m).tolist():
            geometry = geometries[index]
            flat = shapely.force_2d(geometry)
            if geometry.has_z:
                # Not force_3d alone: it sets the Z of ZM geometries to zero.
                coordinates = shapely.get_coordinates(geometry, include_z=True)
                flat = shapely.set_coordinates(shapely.force_3d(flat), coordinates)
            geometries[index] = flat
        return geometries

    def _check_missing(self, geometries: Any, is_kept: Any, row: int, is_affected: Any) -> None:
        """Apply the rule for features without a geometry to those that are affected."""
        is_null = shapely.is_missing(geometries) & is_affected
        self.report.counts["null_geometry"] += int(is_null.sum())
        self.report.counts["empty_geometry"] += int((is_affected & ~is_null).sum())
        for index in np.flatnonzero(is_affected).tolist():
            if self._rules.missing_geometry == "fail":
                raise invalid_input(
                    f"feature {row + index + 1:,} has no geometry: set missing_geometry: keep or drop"
                )
            self.report.add_problem(row + index, "no geometry" if is_null[index] else "empty geometry")
        if self._rules.missing_geometry == "drop":
            is_kept &= ~is_affected
            self.report.counts["dropped"] += int(is_affected.sum())

    def _repair_invalid(self, geometries: Any, row: int, stage: str) -> Any:
        is_invalid = ~(shapely.is_valid(geometries) | shapely.is_missing(geometries))
        if not is_invalid.any():
            return geometries
        geometries = geometries.copy()
        for index in np.flatnonzero(is_invalid).tolist():
            reason = str(shapely.is_valid_reason(geometries[index]))
            if self._rules.invalid == "fail":
                raise invalid_input(
                    f"feature {row + index + 1:,} is not valid: set invalid: repair or report, or correct it"
                    f"{library_words('GEOS', reason)}"
                )
            self.report.invalid[reason.partition("[")[0].strip() + stage] += 1
            self.report.add_problem(row + index, reason + stage)
            if self._rules.invalid == "repair":
                geometries[index] = self._repair(geometries[index], row + index, reason)
        return geometries

    def _repair(self, geometry: Any, row: int, reason: str) -> Any:
        if not np.isfinite(shapely.get_coordinates(geometry)).all():
            raise invalid_input(
                f"feature {row + 1:,} has a coordinate that is not a number, and cannot be repaired: correct"
                f" it, or remove the feature{library_words('GEOS', reason)}"
            )
        valid = shapely.make_valid(geometry, method="structure", keep_collapsed=False)
        repaired = keep_dimension(valid, geometry)
        if not repaired.is_valid:
            raise invalid_input(
                f"feature {row + 1:,} is not valid and cannot be repaired: correct it, or remove it"
                f"{library_words('GEOS', reason)}"
            )
        self.report.counts["repaired"] += 1
        self.report.counts["collapsed"] += int(repaired.is_empty)
        return repaired

    def _clip(self, geometries: Any, is_kept: Any) -> Any:
        is_present = ~(shapely.is_missing(geometries) | shapely.is_empty(geometries))
        is_inside = np.zeros(len(geometries), dtype=bool)
        is_inside[is_present] = shapely.covered_by(geometries[is_present], self._clip_area)
        geometries = geometries.copy()
        for index in np.flatnonzero(is_present & ~is_inside).tolist():
            clipped = shapely.intersection(geometries[index], self._clip_area)
            geometries[index] = keep_dimension(clipped, geometries[index])
            self.report.counts["clipped"] += int(not geometries[index].is_empty)
        is_outside = is_present & shapely.is_empty(geometries)
        self.report.counts["clipped_away"] += int(is_outside.sum())
        is_kept &= ~is_outside
        return geometries

    def _reproject(self, geometries: Any, row: int) -> Any:
        projected, is_lost = self._reprojection.apply(geometries)
        crosses = is_lost & self._reprojection.is_from_degrees
        if crosses.any():
            crosses &= antimeridian.needs_split(geometries, unwrap=False)
        if crosses.any():
            # From 178 to 182 degrees: most projections end in between.
            geometries = geometries.copy()
            geometries[crosses] = [
                antimeridian.split(geometry, unwrap=False) for geometry in geometries[crosses]
            ]
            projected[crosses], is_lost[crosses] = self._reprojection.apply(geometries[crosses])
            self.report.counts["antimeridian_cut"] += int(crosses.sum())
        if is_lost.any():
            index, others = int(np.flatnonzero(is_lost)[0]), int(is_lost.sum()) - 1
            if self._rules.outside == "fail":
                more = f", and {others:,} more of its batch do" if others else ""
                raise invalid_input(
                    f"feature {row + index + 1:,} reaches beyond what {crs_label(self._target)} can"
                    f" represent, or across the boundary of its map{more}: set outside: clip to clip them,"
                    " or choose another target_crs"
                )
            projected = self._clip_to_area_of_use(geometries, projected, is_lost, row)
        if self._target.is_geographic:
            projected = self._split_at_antimeridian(projected, row)
        if projected is geometries:
            return projected
        return self._repair_invalid(projected, row, " after reprojection")

    def _clip_to_area_of_use(self, geometries: Any, projected: Any, is_lost: Any, row: int) -> Any:
        area = self._reprojection.area_of_use()
        if area is None:
            raise invalid_input(
                f"the area of use of {crs_label(self._target)} is unknown: feature {row + 1:,} cannot be"
                " clipped to it. Choose another target_crs"
            )
        clipped = geometries.copy()
        for index in np.flatnonzero(is_lost).tolist():
            clipped[index] = keep_dimension(shapely.intersection(clipped[index], area), clipped[index])
            self.report.counts["clipped"] += 1
            self.report.add_problem(row + index, f"clipped to the area of use of {crs_label(self._target)}")
        reprojected, is_still_lost = self._reprojection.apply(clipped[is_lost])
        if is_still_lost.any():
            raise invalid_input(
                f"feature {row + 1:,} and its neighbours cannot be represented in {crs_label(self._target)}:"
                " choose another target_crs"
            )
        projected = projected.copy()
        projected[is_lost] = reprojected
        return projected

    def _split_at_antimeridian(self, geometries: Any, row: int) -> Any:
        bounds = shapely.bounds(geometries)
        with np.errstate(invalid="ignore"):
            is_beyond = (bounds[:, 1] < -90 - antimeridian.TOLERANCE) | (
                bounds[:, 3] > 90 + antimeridian.TOLERANCE
            )
        if is_beyond.any():
            index = int(np.flatnonzero(is_beyond)[0])
            south, north = f"{bounds[index, 1]:g}", f"{bounds[index, 3]:g}"
            latitude = south if south == north else f"{south} to {north}"
            raise invalid_input(
                f"feature {row + index + 1:,} has a latitude of {latitude}, beyond the pole:"
                " are longitude and latitude swapped, or is the CRS another one?"
            )
        self._reject_far_longitudes(bounds, row)
        unwrap = self._reprojection.is_from_projected
        needs_split = antimeridian.needs_split(geometries, unwrap=unwrap)
        if needs_split.any():
            geometries = geometries.copy()
            for index in np.flatnonzero(needs_split).tolist():
                geometries[index] = antimeridian.split(geometries[index], unwrap=unwrap)
                self.report.counts["antimeridian_cut"] += 1
        return geometries

    def _reject_far_longitudes(self, bounds: Any, row: int) -> None:
        """Reject what is more than some turns around the Earth: it would be split into as many parts."""
        farthest = np.nan_to_num(np.abs(bounds[:, [0, 2]]), nan=0.0, posinf=np.inf).max(axis=1, initial=0.0)
        if (farthest > MAX_LONGITUDE).any():
            index = int(np.flatnonzero(farthest > MAX_LONGITUDE)[0])
            raise invalid_input(
                f"feature {row + index + 1:,} has a longitude of {farthest[index]:g}, which is not in"
                " degrees: is the CRS another one?"
            )


def keep_dimension(result: Any, original: Any) -> Any:
    """Return the parts of a result with the dimension of the original: areas of an area. It may be empty."""
    dimension = shapely.get_dimensions(original)
    parts = [part for part in shapely.get_parts(result) if shapely.get_dimensions(part) == dimension]
    if result.geom_type == "GeometryCollection" or any(
        part.geom_type == "GeometryCollection" for part in parts
    ):
        parts = [
            piece
            for part in parts
            for piece in shapely.get_parts(part)
            if shapely.get_dimensions(piece) == dimension
        ]
    if original.geom_type == "GeometryCollection":
        return result
    combine = {0: shapely.multipoints, 1: shapely.multilinestrings, 2: shapely.multipolygons}[dimension]
    return parts[0] if len(parts) == 1 else combine(parts)
