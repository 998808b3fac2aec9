"""Simplify and dissolve. Shared borders stay shared where the features are a coverage; that is looked at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyproj
import shapely

from dagmaster.handlers.vector import columns
from dagmaster.handlers.vector.dataset_files import invalid
from dagmaster.handlers.vector.geometry_cleaning import Mending
from dagmaster.handlers.vector.models import GeometryRules
from dagmaster.handlers.vector.preparation import source_crs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dagmaster.handlers.vector.geometry_cleaning import Tally
    from dagmaster.handlers.vector.readers import Layer

MAX_FEATURES: Final = 5_000_000
"""A coverage is looked at as a whole: all of it is in memory."""
_POLYGONS: Final = (3, 6)
_SUMMED: Final = ("integer", "number")


@dataclass(slots=True, kw_only=True)
class Features:
    """All features of a file, in its own CRS."""

    crs: pyproj.CRS
    kinds: dict[str, str]
    rows: pa.Table
    shapes: Any

    @property
    def vertices(self) -> int:
        """How many points their geometries have."""
        return int(shapely.get_num_coordinates(self.shapes).sum())

    def area(self) -> float:
        """In square metres, on the ellipsoid."""
        return geodesic_area(self.shapes, self.crs)


def load(layer: Layer, said_crs: str | None, on_batch: Callable[[int], None]) -> tuple[Features, Tally]:
    """Read all of a layer. Invalid geometries are repaired, and counted."""
    crs = source_crs(layer.crs, said_crs)
    mending = Mending(GeometryRules(), crs, crs)
    names = columns.plain_names(layer.names)
    kinds = [columns.kind_of(one) for one in layer.types]
    parts, shapes, read = [], [], 0
    for batch in layer.batches:
        mended, _ = mending.mend(batch.shapes, read)
        made = [
            columns.converted(column, kind, name, read)
            for column, kind, name in zip(batch.columns, kinds, layer.names, strict=True)
        ]
        # A file of geometries alone has rows, too.
        parts.append(pa.table([*made, pa.nulls(len(mended))], names=[*names, columns.GEOMETRY]))
        shapes.append(mended)
        read += len(mended)
        if read > MAX_FEATURES:
            raise invalid(f"the file has more than {MAX_FEATURES:,} features: split it first")
        on_batch(read)
    if read == 0:
        raise invalid("the file holds no features: there is nothing to do")
    rows = pa.concat_tables(parts).drop_columns([columns.GEOMETRY]) if names else pa.table({})
    found = Features(crs=crs, kinds=dict(zip(names, kinds, strict=True)), rows=rows, shapes=np.concatenate(shapes))
    mending.tally.counts["read"] = read
    return found, mending.tally


def simplify(features: Features, tolerance: float) -> tuple[Features, str]:
    """Fewer points, the same features. As a coverage if they are one, else each by itself, its topology kept."""
    shapes = features.shapes.copy()
    there = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
    method = "coverage" if is_coverage(shapes[there]) else "plain"
    if method == "coverage":
        shapes[there] = shapely.coverage_simplify(shapes[there], tolerance)
    else:
        shapes[there] = shapely.simplify(shapes[there], tolerance, preserve_topology=True)
    return Features(crs=features.crs, kinds=features.kinds, rows=features.rows, shapes=shapes), method


def dissolve(features: Features, by: Sequence[str], sums: Sequence[str]) -> tuple[Features, str]:
    """One feature for each group, with its sums and how many it was made of, in the order of first appearance."""
    for name in (*by, *sums):
        if name not in features.kinds:
            raise invalid(f"there is no column {name!r}: there are {', '.join(list(features.kinds)[:20])}")
    for name in sums:
        if features.kinds[name] not in _SUMMED:
            raise invalid(f"the column {name!r} is {features.kinds[name]}: only numbers are summed")
    shapes = features.shapes
    there = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
    method = "coverage" if is_coverage(shapes[there]) else "plain"
    union = shapely.coverage_union_all if method == "coverage" else shapely.union_all
    keys = (
        list(zip(*[features.rows.column(name).to_pylist() for name in by], strict=True)) if by else [()] * len(shapes)
    )
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, key in enumerate(keys):
        groups.setdefault(key, []).append(at)
    merged = np.array([_merged(shapes[members], union) for members in groups.values()], dtype=object)
    names = columns.plain_names([*by, *(f"sum_{name}" for name in sums), "features"])
    kinds = [*(features.kinds[name] for name in by), *(features.kinds[name] for name in sums), "integer"]
    made: list[Any] = [
        pa.array([key[at] for key in groups], features.rows.column(name).type) for at, name in enumerate(by)
    ]
    for name in sums:
        values = features.rows.column(name).to_pylist()
        made.append([sum(values[at] for at in members if values[at] is not None) for members in groups.values()])
    made.append([len(members) for members in groups.values()])
    rows = pa.table(made, names=names)
    return Features(crs=features.crs, kinds=dict(zip(names, kinds, strict=True)), rows=rows, shapes=merged), method


def is_coverage(shapes: Any) -> bool:
    """Whether these are areas that meet at their borders and nowhere overlap."""
    return (
        bool(len(shapes))
        and bool(np.isin(shapely.get_type_id(shapes), _POLYGONS).all())
        and bool(shapely.coverage_is_valid(shapes))
    )


def geodesic_area(shapes: Any, crs: pyproj.CRS) -> float:
    """The area of geometries, in square metres, on the ellipsoid."""
    geod = crs.get_geod() or pyproj.Geod(ellps="WGS84")
    areas = shapes[~shapely.is_missing(shapes)]
    areas = areas[shapely.get_dimensions(areas) == 2]  # noqa: PLR2004 - of an area
    if not crs.is_geographic and len(areas):
        base = crs.geodetic_crs
        to = pyproj.Transformer.from_crs(crs, base, always_xy=True)
        areas = shapely.transform(areas, lambda xy: np.column_stack(to.transform(xy[:, 0], xy[:, 1])))
    return float(sum(abs(geod.geometry_area_perimeter(one)[0]) for one in shapely.orient_polygons(areas)))


def _merged(shapes: Any, union: Any) -> Any:
    there = shapes[~(shapely.is_missing(shapes) | shapely.is_empty(shapes))]
    if not len(there):
        return None
    # A union of a coverage is made of parts that may touch in a point; of others, of what is left.
    return union(there)
