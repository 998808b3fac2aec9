"""Rows of features as they cross the port of tables: their Arrow schema, and their form in a file, GeoParquet 1.1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import shapely

from dagmaster.errors import PermanentError
from dagmaster.ports.tables import TableSpec

if TYPE_CHECKING:
    from pathlib import Path

COVERING: Final = "bbox"
"""The column with the bounds of each row, by which readers skip what is elsewhere."""
ROW_GROUP: Final = 20_000
SPEC: Final = b"dagmaster:table"

_TYPES: Final = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "json": pa.string(),
}
_NAMES: Final = (
    "Point", "LineString", "LinearRing", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon",
    "GeometryCollection",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a file of features holds. The bbox is in its own coordinate system."""

    rows: int
    bbox: tuple[float, float, float, float] | None
    geometry_types: tuple[str, ...]


def arrow_schema(spec: TableSpec) -> pa.Schema:
    """The columns of a table, its geometry last."""
    fields = [pa.field(name, _TYPES[kind]) for name, kind in spec.columns.items()]
    return pa.schema([*fields, pa.field(spec.geometry_column, pa.binary())])


def fit(rows: Any, spec: TableSpec) -> pa.Table:
    """The rows in the columns and types of a table. `invalid_input` where they do not fit."""
    schema = arrow_schema(spec)
    # Arrow makes a new list of names each time it is asked: with 3,000 columns that took 20 s.
    wanted, given = schema.names, rows.column_names
    asked, there = set(wanted), set(given)
    missing = [name for name in wanted if name not in there]
    more = [name for name in given if name not in asked]
    if missing or more:
        said = [
            f"{', '.join(names[:10])} {what}" for names, what in ((missing, "missing"), (more, "too many")) if names
        ]
        raise _invalid(f"the rows do not fit the table {spec.name}: its columns and theirs differ, {'; '.join(said)}")
    columns = []
    for one in schema:
        try:
            columns.append(_plain(rows.column(one.name)).cast(one.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _invalid(
                f"the column {one.name!r} of {spec.name} is {spec.columns.get(one.name, 'WKB')}: {error}"
            ) from error
    return pa.table(columns, schema=schema)


def _plain(column: Any) -> Any:
    """Without an extension type: WKB or JSON that says so is stored as bytes or text."""
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column


def geometries(rows: pa.Table, column: str) -> Any:
    """The geometries of rows, as shapely has them."""
    try:
        return shapely.from_wkb(rows.column(column).to_numpy())
    except (shapely.errors.ShapelyError, TypeError) as error:
        raise _invalid(f"the column {column!r} is not WKB of simple features: {error}") from error


def write_file(rows: pa.Table, path: Path, spec: TableSpec) -> Written:
    """Write rows that fit a table as GeoParquet 1.1. Geometries of another type than the table's are refused."""
    shapes = geometries(rows, spec.geometry_column)
    types = geometry_types(shapes)
    wanted = spec.geometry_type
    odd = [one for one in types if wanted not in ("Geometry", "Geometry Z") and one != wanted]
    odd += [one for one in types if one.endswith(" Z") != wanted.endswith(" Z") and one not in odd]
    if odd:
        raise _invalid(f"the table {spec.name} holds {wanted}, and the rows have {', '.join(odd)}")
    bounds = shapely.bounds(shapes)
    box = _whole(bounds)
    geo: dict[str, Any] = {"encoding": "WKB", "geometry_types": list(types), "crs": crs_json(spec.srid)}
    if box is not None:
        geo["bbox"] = list(box)
    if COVERING not in rows.column_names:
        rows = rows.append_column(COVERING, _covering(bounds))
        sides = ("xmin", "ymin", "xmax", "ymax")
        geo["covering"] = {"bbox": {side: [COVERING, side] for side in sides}}
    columns = {spec.geometry_column: geo}
    about = {"version": "1.1.0", "primary_column": spec.geometry_column, "columns": columns}
    rows = rows.replace_schema_metadata(
        {b"geo": json.dumps(about).encode(), SPEC: json.dumps(spec_json(spec)).encode()}
    )
    pq.write_table(rows, path, compression="zstd", row_group_size=ROW_GROUP)
    return Written(rows=rows.num_rows, bbox=box, geometry_types=types)


def read_file(path: Path) -> tuple[TableSpec, pa.Table]:
    """What `write_file` wrote: the table it is for, and its rows."""
    try:
        # Not `read_table`: that takes the names of folders for columns.
        with pq.ParquetFile(path) as file:
            said = (file.schema_arrow.metadata or {}).get(SPEC)
            spec = None if said is None else spec_from(json.loads(said))
            rows = None if spec is None else file.read([*spec.columns, spec.geometry_column])
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            # The disk's trouble, not the chunk's.
            raise
        raise _invalid(f"not a chunk of a table that can be read: {error}") from error
    if spec is None or rows is None:
        raise _invalid("not a chunk of a table: it is Parquet, but vector.prepare did not write it")
    return spec, rows.replace_schema_metadata(None)


def file_facts(path: Path) -> Written:
    """The same of a file that is there, from its last bytes."""
    try:
        meta = pq.read_metadata(path)
        geo = json.loads(meta.metadata[b"geo"])
        column = geo["columns"][geo["primary_column"]]
        box = column.get("bbox")
        types = tuple(column["geometry_types"])
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise _invalid(f"{path.name} is no chunk of the table {path.parent.name}: take it away from there") from error
    return Written(rows=meta.num_rows, bbox=None if box is None else tuple(box), geometry_types=types)


def geometry_types(shapes: Any) -> tuple[str, ...]:
    """The types that occur, in order of their names, with ` Z` where there are heights."""
    there = shapes[~shapely.is_missing(shapes)]
    codes = np.unique(shapely.get_type_id(there) + 100 * shapely.has_z(there))
    return tuple(sorted(_NAMES[code % 100] + (" Z" if code >= len(_NAMES) else "") for code in codes.tolist()))


def spec_json(spec: TableSpec) -> dict[str, Any]:
    """A table's spec as JSON."""
    return {
        "name": spec.name,
        "columns": dict(spec.columns),
        "geometry_type": spec.geometry_type,
        "srid": spec.srid,
        "geometry_column": spec.geometry_column,
    }


def spec_from(said: dict[str, Any]) -> TableSpec:
    """The spec of a table, from JSON."""
    return TableSpec(**said)


def crs_json(srid: int) -> dict[str, Any]:
    """A coordinate system as PROJJSON."""
    try:
        found: dict[str, Any] = pyproj.CRS.from_epsg(srid).to_json_dict()
    except pyproj.exceptions.CRSError as error:
        raise _invalid(f"nobody knows the coordinate system EPSG:{srid}") from error
    return found


def _covering(bounds: Any) -> pa.StructArray:
    # A row without a place has none. Doubles, not floats: rounded bounds may leave a corner out.
    nowhere = pa.array(np.isnan(bounds[:, 0]))
    sides = [pa.array(np.ascontiguousarray(bounds[:, side])) for side in range(4)]
    return pa.StructArray.from_arrays(sides, ["xmin", "ymin", "xmax", "ymax"], mask=nowhere)


def _whole(bounds: Any) -> tuple[float, float, float, float] | None:
    there = bounds[~np.isnan(bounds[:, 0])]
    if not len(there):
        return None
    west, south = there[:, :2].min(axis=0).tolist()
    east, north = there[:, 2:].max(axis=0).tolist()
    return west, south, east, north


def _invalid(message: str) -> PermanentError:
    return PermanentError(message, kind="invalid_input")
