"""Read GeoParquet 0.1 to 1.1, and Parquet whose own types are GEOMETRY or GEOGRAPHY.

Where an edge runs between two vertices (`edges: spherical`, GEOGRAPHY) is not carried on: a table stores
vertices.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyproj
import shapely

from dagmaster.errors import invalid_input
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    import pyarrow.parquet as pq

CRS84: Final = "OGC:CRS84"
_NATIVE_TYPES: Final = ("Geometry", "Geography")
_RAGGED_TYPES: Final = {
    "point": shapely.GeometryType.POINT,
    "linestring": shapely.GeometryType.LINESTRING,
    "polygon": shapely.GeometryType.POLYGON,
    "multipoint": shapely.GeometryType.MULTIPOINT,
    "multilinestring": shapely.GeometryType.MULTILINESTRING,
    "multipolygon": shapely.GeometryType.MULTIPOLYGON,
}
_AUTHORITY_CODE: Final = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,20}")
_WKT: Final = re.compile(r"\s*[A-Z_0-9]+\s*\[")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryColumn:
    """The geometry column of a file. `covering` are the columns that only repeat its bounds."""

    name: str
    encoding: str
    crs: pyproj.CRS | None
    covering: frozenset[str] = frozenset()

    def decode(self, column: pa.Array) -> list[bytes | str | None]:
        """Return the geometries of a batch as WKB, or as WKT."""
        if self.encoding in ("WKB", "WKT"):
            values: list[bytes | str | None] = column.to_pylist()
            return values
        return _encode_ragged(column, self.encoding)


def find_geometry_column(file: pq.ParquetFile) -> GeometryColumn:
    """Return the geometry column that the metadata names, or the one of a native type."""
    schema = file.schema_arrow
    text = (schema.metadata or {}).get(b"geo")
    column = _native_column(file) if text is None else _described_column(text)
    if column.name not in schema.names:
        raise invalid_input(
            f"the GeoParquet names {column.name!r} as its geometry column, and has no such column: write it"
            " again"
        )
    return column


def _described_column(text: bytes) -> GeometryColumn:
    try:
        geo = json.loads(text)
        name = geo["primary_column"]
        metadata: dict[str, Any] = geo["columns"][name]
        encoding = str(metadata["encoding"]).removeprefix("geoarrow.")
        covering = frozenset(str(path[0]) for path in metadata.get("covering", {}).get("bbox", {}).values())
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise invalid_input(
            "the geometry metadata of the GeoParquet is damaged, or not of versions 0.1 to 1.1: write the"
            f" file again{library_words('JSON', repr(error))}"
        ) from error
    if encoding not in ("WKB", "WKT", *_RAGGED_TYPES):
        raise invalid_input(
            f"the geometries in {name!r} are encoded as {encoding!r}: expected WKB, WKT or"
            f" {', '.join(_RAGGED_TYPES)}"
        )
    # Without the key it is longitude and latitude; null means unknown.
    crs = _parse_described_crs(metadata["crs"]) if "crs" in metadata else _parse(CRS84)
    return GeometryColumn(name=str(name), encoding=encoding, crs=crs, covering=covering)


def _native_column(file: pq.ParquetFile) -> GeometryColumn:
    columns = {}
    for index in range(len(file.schema)):
        leaf = file.schema.column(index)
        logical_type = json.loads(leaf.logical_type.to_json())
        if logical_type.get("Type") in _NATIVE_TYPES:
            columns[leaf.path] = logical_type.get("crs", "")
    if not columns:
        raise invalid_input(
            "the file is Parquet, but not GeoParquet: it names no geometry column. Write it as GeoParquet"
        )
    name = "geometry" if "geometry" in columns else next(iter(columns))
    if len(columns) > 1 and name != "geometry":
        raise invalid_input(
            f"the Parquet has {len(columns)} geometry columns, {', '.join(columns)}, and none is called"
            " 'geometry': rename one of them, or write it as GeoParquet with a primary_column"
        )
    return GeometryColumn(name=name, encoding="WKB", crs=_parse_native_crs(columns[name], file))


# ── CRS ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_described_crs(value: Any) -> pyproj.CRS | None:
    """Parse the CRS of GeoParquet: PROJJSON, or WKT before version 0.4.

    For other text, or an object with `init` or `proj`, PROJ might open files.
    """
    if value is None:
        return None
    if isinstance(value, str) and _WKT.match(value):
        return _parse(value)
    if (
        not isinstance(value, dict)
        or not str(value.get("type", "")).endswith("CRS")
        or {"init", "proj"} & value.keys()
    ):
        raise invalid_input(
            "the crs of the GeoParquet is not PROJJSON, which its specification requires: write the file"
            " again"
        )
    return _parse(value)


def _parse_native_crs(text: str, file: pq.ParquetFile) -> pyproj.CRS | None:
    """Parse the CRS of a native type: a code, `srid:code`, PROJJSON, or the metadata key of PROJJSON."""
    if not text:
        return _parse(CRS84)
    if text.startswith("projjson:"):
        key = text.removeprefix("projjson:").encode()
        text = (file.schema_arrow.metadata or {}).get(key, b"").decode() or text
    if text.startswith("{"):
        try:
            return _parse_described_crs(json.loads(text))
        except ValueError:
            text = text[:60]
    text = text.replace("srid:", "EPSG:")
    if text == "EPSG:0":
        return None
    if not _AUTHORITY_CODE.fullmatch(text):
        raise invalid_input(
            f"the CRS of the Parquet geometry is {text[:60]!r}: expected a code such as EPSG:4326, or"
            " PROJJSON"
        )
    return _parse(text)


def _parse(value: Any) -> pyproj.CRS:
    try:
        return pyproj.CRS.from_user_input(value)
    except pyproj.exceptions.CRSError as error:
        raise invalid_input(
            "the CRS of the file is unknown: write it as PROJJSON of a known"
            f" CRS{library_words('PROJ', error)}"
        ) from error


# ── Native encodings ────────────────────────────────────────────────────────────────────────────────────────


def _encode_ragged(column: pa.Array, encoding: str) -> list[bytes | str | None]:
    """Return geometries whose coordinates are columns as WKB. Measures are dropped."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    offsets = []
    array = column
    try:
        while pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            lengths = pc.fill_null(array.value_lengths(), 0).to_numpy(zero_copy_only=False)
            offsets.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
            array = array.flatten()
        axes = [axis for axis in ("x", "y", "z") if array.type.get_field_index(axis) >= 0]
        coordinates = np.column_stack([array.field(axis).to_numpy(zero_copy_only=False) for axis in axes])
        geometries = shapely.from_ragged_array(
            _RAGGED_TYPES[encoding], coordinates, tuple(reversed(offsets)) or None
        )
    except (AttributeError, ValueError, TypeError, pa.ArrowException, shapely.errors.ShapelyError) as error:
        raise invalid_input(
            f"the geometries of the GeoParquet are not encoded as {encoding}, as its metadata says: write it"
            f" again{library_words('shapely', error)}"
        ) from error
    geometries[is_null] = None
    encoded: list[bytes | str | None] = shapely.to_wkb(geometries, flavor="iso").tolist()
    return encoded
