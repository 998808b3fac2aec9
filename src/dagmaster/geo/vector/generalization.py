"""Simplify and dissolve features.

Shared borders stay shared if the features form a coverage; that is checked first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import localcontext
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyproj
import shapely

from dagmaster.errors import invalid_input
from dagmaster.geo.rules import arrow_features
from dagmaster.geo.vector import columns
from dagmaster.geo.vector.geometry_cleaning import GeometryCleaner
from dagmaster.geo.vector.models import GeometryRules
from dagmaster.geo.vector.preparation import choose_source_crs
from dagmaster.ports.table_schemas import MAX_DECIMAL_DIGITS, ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.geo.vector.geometry_cleaning import CleaningReport
    from dagmaster.geo.vector.readers import Layer

MAX_FEATURES: Final = 5_000_000
"""A coverage is processed as a whole, in memory."""
_POLYGON_TYPES: Final = (3, 6)
_SUMMABLE: Final = ("integer", "number", "decimal")
_SUM_DIGITS: Final = 7
"""Digits that the sum of `MAX_FEATURES` values may have more than each of them."""


@dataclass(slots=True, kw_only=True)
class Features:
    """All features of a file, in the CRS of the file."""

    crs: pyproj.CRS
    column_types: dict[str, str]
    rows: pa.Table
    geometries: Any

    @property
    def vertices(self) -> int:
        return int(shapely.get_num_coordinates(self.geometries).sum())

    def area(self) -> float:
        """Return the area in square metres, on the ellipsoid."""
        return geodesic_area(self.geometries, self.crs)


def load(
    layer: Layer, source_crs: str | None, on_batch: Callable[[int], None]
) -> tuple[Features, CleaningReport]:
    """Read a whole layer. Invalid geometries are repaired and counted."""
    crs = choose_source_crs(layer, source_crs)
    cleaner = GeometryCleaner(GeometryRules(), crs, crs)
    names = columns.unique_column_names(layer.names)
    column_types = [columns.column_type(arrow_type) for arrow_type in layer.types]
    parts, geometries, read = [], [], 0
    for batch in layer.batches:
        cleaned, _ = cleaner.clean(batch.geometries, read)
        arrays = [
            columns.convert_column(column, column_type, name, read)
            for column, column_type, name in zip(batch.columns, column_types, layer.names, strict=True)
        ]
        # The null column gives rows to a file that has only geometries.
        parts.append(pa.table([*arrays, pa.nulls(len(cleaned))], names=[*names, columns.GEOMETRY]))
        geometries.append(cleaned)
        read += len(cleaned)
        if read > MAX_FEATURES:
            raise invalid_input(f"the file has more than {MAX_FEATURES:,} features: split it first")
        on_batch(read)
    if read == 0:
        raise invalid_input("the file contains no features: there is nothing to do")
    rows = pa.concat_tables(parts).drop_columns([columns.GEOMETRY]) if names else pa.table({})
    features = Features(
        crs=crs,
        column_types=dict(zip(names, column_types, strict=True)),
        rows=rows,
        geometries=np.concatenate(geometries),
    )
    cleaner.report.counts["read"] = read
    return features, cleaner.report


def simplify(features: Features, tolerance: float) -> tuple[Features, str]:
    """Simplify the geometries: as a coverage if they form one, else each alone, preserving its topology."""
    geometries = features.geometries.copy()
    is_present = ~(shapely.is_missing(geometries) | shapely.is_empty(geometries))
    method = "coverage" if is_coverage(geometries[is_present]) else "plain"
    if method == "coverage":
        geometries[is_present] = shapely.coverage_simplify(geometries[is_present], tolerance)
    else:
        geometries[is_present] = shapely.simplify(geometries[is_present], tolerance, preserve_topology=True)
    return replace(features, geometries=geometries), method


def dissolve(features: Features, by: Sequence[str], sums: Sequence[str]) -> tuple[Features, str]:
    """Return one feature per group, with sums and the number of its members, in order of first appearance."""
    _check_columns(features, by, sums)
    geometries = features.geometries
    is_present = ~(shapely.is_missing(geometries) | shapely.is_empty(geometries))
    method = "coverage" if is_coverage(geometries[is_present]) else "plain"
    union = shapely.coverage_union_all if method == "coverage" else shapely.union_all
    groups = _group_rows(features, by)
    merged = np.array([_merge(geometries[members], union) for members in groups], dtype=object)
    names = columns.unique_column_names([*by, *(f"sum_{name}" for name in sums), "features"])
    sum_types = [_sum_type(features.column_types[name]) for name in sums]
    column_types = [*(features.column_types[name] for name in by), *sum_types, "integer"]
    first_members = pa.array([members[0] for members in groups])
    arrays: list[Any] = [features.rows.column(name).take(first_members) for name in by]
    arrays += [
        _sum_groups(features.rows.column(name).to_pylist(), groups, sum_type, name)
        for name, sum_type in zip(sums, sum_types, strict=True)
    ]
    arrays.append([len(members) for members in groups])
    dissolved = Features(
        crs=features.crs,
        column_types=dict(zip(names, column_types, strict=True)),
        rows=pa.table(arrays, names=names),
        geometries=merged,
    )
    return dissolved, method


def _check_columns(features: Features, by: Sequence[str], sums: Sequence[str]) -> None:
    for name in (*by, *sums):
        if name not in features.column_types:
            listed = ", ".join(list(features.column_types)[:20])
            known = f"the columns are {listed}" if listed else "the features have no columns"
            raise invalid_input(f"there is no column {name!r}: {known}")
    for name in sums:
        if features.column_types[name].partition("(")[0] not in _SUMMABLE:
            raise invalid_input(
                f"the column {name!r} is {features.column_types[name]}: only numbers can be summed"
            )


def _group_rows(features: Features, by: Sequence[str]) -> list[list[int]]:
    """Return the indices of the rows of each group, in order of first appearance; without `by` one group."""
    key_columns = [[_hashable(value) for value in features.rows.column(name).to_pylist()] for name in by]
    keys = zip(*key_columns, strict=True) if by else [()] * len(features.geometries)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def is_coverage(geometries: Any) -> bool:
    """Return whether these are polygons that share borders and do not overlap."""
    return (
        bool(len(geometries))
        and bool(np.isin(shapely.get_type_id(geometries), _POLYGON_TYPES).all())
        and bool(shapely.coverage_is_valid(geometries))
    )


def geodesic_area(geometries: Any, crs: pyproj.CRS) -> float:
    geod = crs.get_geod() or pyproj.Geod(ellps="WGS84")
    polygons = geometries[~shapely.is_missing(geometries)]
    polygons = polygons[shapely.get_dimensions(polygons) == 2]  # noqa: PLR2004 - the dimension of areas
    if not crs.is_geographic and len(polygons):
        transformer = pyproj.Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True)
        polygons = shapely.transform(
            polygons, lambda xy: np.column_stack(transformer.transform(xy[:, 0], xy[:, 1]))
        )
    return float(
        sum(abs(geod.geometry_area_perimeter(polygon)[0]) for polygon in shapely.orient_polygons(polygons))
    )


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _sum_type(column_type: str) -> str:
    """Return the type of a sum: decimals have room for the sum of any number of features."""
    parsed = ColumnType.parse(column_type)
    if parsed is None or parsed.name != "decimal":
        return column_type
    return f"decimal({min(parsed.precision + _SUM_DIGITS, MAX_DECIMAL_DIGITS)},{parsed.scale})"


def _sum_groups(values: list[Any], groups: Iterable[list[int]], sum_type: str, name: str) -> pa.Array:
    with localcontext(prec=MAX_DECIMAL_DIGITS + _SUM_DIGITS):
        sums = [sum(values[index] for index in members if values[index] is not None) for members in groups]
    try:
        return pa.array(sums, arrow_features.arrow_type(sum_type))
    except (pa.ArrowException, OverflowError) as error:
        raise invalid_input(
            f"the sum of the column {name!r} is beyond what {sum_type} can hold: convert the column to number"
            " first"
        ) from error


def _merge(geometries: Any, union: Any) -> Any:
    present = geometries[~(shapely.is_missing(geometries) | shapely.is_empty(geometries))]
    return union(present) if len(present) else None
