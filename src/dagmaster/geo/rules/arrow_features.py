"""Features as Arrow tables: the schema that crosses the tables port, and their GeoParquet 1.1 files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import shapely

from dagmaster.errors import invalid_input
from dagmaster.ports.table_schemas import ColumnType, TableSpec
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.json_types import JsonObject

BBOX_COLUMN: Final = "bbox"
"""The GeoParquet covering: the bounds of each row, by which readers skip row groups."""
ROW_GROUP_ROWS: Final = 20_000
SPEC_METADATA_KEY: Final = b"dagmaster:table"

_ARROW_TYPES: Final = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "json": pa.string(),
}
_MAX_DECIMAL128_DIGITS: Final = 38
_GEOMETRY_TYPES: Final = (
    "Point", "LineString", "LinearRing", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon",
    "GeometryCollection",
)  # fmt: skip
_SIDES: Final = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFileInfo:
    """The contents of a GeoParquet file. The bbox is in the CRS of the file."""

    rows: int
    bbox: tuple[float, float, float, float] | None
    geometry_types: tuple[str, ...]


def arrow_schema(spec: TableSpec) -> pa.Schema:
    fields = [pa.field(name, arrow_type(column_type)) for name, column_type in spec.columns.items()]
    return pa.schema([*fields, pa.field(spec.geometry_column, pa.binary())])


def arrow_type(column_type: str) -> pa.DataType:
    parsed = ColumnType.parse(column_type)
    if parsed is None:
        raise invalid_input(f"there is no column type {column_type!r}: prepare the file again")
    if parsed.name == "decimal":
        # Not decimal256 throughout: many readers of Parquet stop at 38 digits.
        decimal = pa.decimal128 if parsed.precision <= _MAX_DECIMAL128_DIGITS else pa.decimal256
        element = decimal(parsed.precision, parsed.scale)
    else:
        element = _ARROW_TYPES[parsed.name]
    return pa.list_(element) if parsed.is_list else element


def fit_to_table(rows: Any, spec: TableSpec) -> pa.Table:
    """Cast rows to the columns and types of a table; raise `invalid_input` if they do not fit."""
    schema = arrow_schema(spec)
    # Arrow builds a new list of names on every access: with 3,000 columns that took 20 s.
    expected_names, row_names = schema.names, rows.column_names
    expected_set, row_set = set(expected_names), set(row_names)
    differences = {
        "missing": [name for name in expected_names if name not in row_set],
        "not in the table": [name for name in row_names if name not in expected_set],
    }
    if any(differences.values()):
        text = "; ".join(f"{', '.join(names[:10])} {label}" for label, names in differences.items() if names)
        raise invalid_input(
            f"the rows do not fit the table {spec.name}: the columns differ, {text}. Load them into another"
            " table"
        )
    columns = []
    for field in schema:
        try:
            columns.append(_storage_array(rows.column(field.name)).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            column_type = spec.columns.get(field.name, "WKB")
            raise invalid_input(
                f"the column {field.name!r} of the table {spec.name} is {column_type}, and the rows do not"
                f" fit: load them into another table, or convert the column{library_words('Arrow', error)}"
            ) from error
    return pa.table(columns, schema=schema)


def _storage_array(column: Any) -> Any:
    """Unwrap an Arrow extension type: tagged WKB or JSON is stored as plain bytes or text."""
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column


def decode_geometries(rows: pa.Table, column: str) -> Any:
    try:
        return shapely.from_wkb(rows.column(column).to_numpy())
    except (shapely.errors.ShapelyError, TypeError) as error:
        raise invalid_input(
            f"the column {column!r} is not WKB of simple features: write its geometries as WKB"
            f"{library_words('GEOS', error)}"
        ) from error


def write_geoparquet(rows: pa.Table, path: Path, spec: TableSpec) -> FeatureFileInfo:
    """Write rows that fit a table as GeoParquet 1.1. Reject geometries of another type than the table's."""
    geometries = decode_geometries(rows, spec.geometry_column)
    types = geometry_types(geometries)
    expected = spec.geometry_type
    unexpected = [name for name in types if expected not in ("Geometry", "Geometry Z") and name != expected]
    unexpected += [
        name for name in types if name.endswith(" Z") != expected.endswith(" Z") and name not in unexpected
    ]
    if unexpected:
        raise invalid_input(
            f"the table {spec.name} stores {expected}, and the rows contain {', '.join(unexpected)}: load"
            " them into another table, or with mixed_types: geometry"
        )
    bounds = shapely.bounds(geometries)
    bbox = _total_bounds(bounds)
    column: JsonObject = {"encoding": "WKB", "geometry_types": list(types), "crs": crs_to_projjson(spec.srid)}
    if bbox is not None:
        column["bbox"] = list(bbox)
    if BBOX_COLUMN not in rows.column_names:
        rows = rows.append_column(BBOX_COLUMN, _bbox_array(bounds))
        column["covering"] = {"bbox": {side: [BBOX_COLUMN, side] for side in _SIDES}}
    metadata = {
        "version": "1.1.0",
        "primary_column": spec.geometry_column,
        "columns": {spec.geometry_column: column},
    }
    rows = rows.replace_schema_metadata(
        {b"geo": json.dumps(metadata).encode(), SPEC_METADATA_KEY: json.dumps(spec_to_json(spec)).encode()}
    )
    pq.write_table(rows, path, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    return FeatureFileInfo(rows=rows.num_rows, bbox=bbox, geometry_types=types)


def read_chunk(path: Path) -> tuple[TableSpec, pa.Table]:
    """Read a file that `write_geoparquet` wrote: the spec of its table, and its rows."""
    try:
        # Not `read_table`: it takes names of parent folders for partition columns.
        with pq.ParquetFile(path) as file:
            spec_text = (file.schema_arrow.metadata or {}).get(SPEC_METADATA_KEY)
            spec = None if spec_text is None else spec_from_json(json.loads(spec_text))
            rows = None if spec is None else file.read([*spec.columns, spec.geometry_column])
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            # An error of the disk, not of the chunk.
            raise
        raise invalid_input(
            f"the file is not a chunk of a table, or it is damaged: run vector.prepare again"
            f"{library_words('Arrow', error)}"
        ) from error
    if spec is None or rows is None:
        raise invalid_input(
            "the file is not a chunk of a table: it is Parquet, but vector.prepare did not write it"
        )
    return spec, rows.replace_schema_metadata(None)


def read_file_info(path: Path) -> FeatureFileInfo:
    """Read the contents of an existing chunk from its Parquet footer."""
    try:
        footer = pq.read_metadata(path)
        metadata = json.loads(footer.metadata[b"geo"])
        column = metadata["columns"][metadata["primary_column"]]
        bbox = column.get("bbox")
        types = tuple(column["geometry_types"])
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise invalid_input(
            f"{path.name} is not a chunk of the table {path.parent.name}: move it out of that folder"
        ) from error
    return FeatureFileInfo(
        rows=footer.num_rows, bbox=None if bbox is None else tuple(bbox), geometry_types=types
    )


def geometry_types(geometries: Any) -> tuple[str, ...]:
    """Return the geometry types that occur, sorted by name, with ` Z` where they have heights."""
    present = geometries[~shapely.is_missing(geometries)]
    codes = np.unique(shapely.get_type_id(present) + 100 * shapely.has_z(present))
    return tuple(
        sorted(
            _GEOMETRY_TYPES[code % 100] + (" Z" if code >= len(_GEOMETRY_TYPES) else "")
            for code in codes.tolist()
        )
    )


def spec_to_json(spec: TableSpec) -> JsonObject:
    return {
        "name": spec.name,
        "columns": dict(spec.columns),
        "geometry_type": spec.geometry_type,
        "srid": spec.srid,
        "geometry_column": spec.geometry_column,
    }


def spec_from_json(data: dict[str, Any]) -> TableSpec:
    return TableSpec(**data)


def crs_to_projjson(srid: int) -> JsonObject:
    try:
        projjson: JsonObject = pyproj.CRS.from_epsg(srid).to_json_dict()
    except pyproj.exceptions.CRSError as error:
        raise invalid_input(f"unknown CRS EPSG:{srid}: PROJ has no such code") from error
    return projjson


def _bbox_array(bounds: Any) -> pa.StructArray:
    # A row without geometry has no bbox. Doubles, not floats: rounded bounds could exclude a corner.
    is_missing = pa.array(np.isnan(bounds[:, 0]))
    sides = [pa.array(np.ascontiguousarray(bounds[:, side])) for side in range(4)]
    return pa.StructArray.from_arrays(sides, list(_SIDES), mask=is_missing)


def _total_bounds(bounds: Any) -> tuple[float, float, float, float] | None:
    present = bounds[~np.isnan(bounds[:, 0])]
    if not len(present):
        return None
    west, south = present[:, :2].min(axis=0).tolist()
    east, north = present[:, 2:].max(axis=0).tolist()
    return west, south, east, north
