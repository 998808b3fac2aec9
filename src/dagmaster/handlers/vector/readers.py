"""Read files of features as streams of batches: columns as Arrow arrays, geometries as WKB or WKT.

GDAL reads GeoJSON, GeoPackage, Shapefile and FlatGeobuf; Arrow reads GeoParquet and CSV. Memory holds one batch,
whatever the size of the file.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pyproj

from dagmaster.errors import BlobsUnavailable, invalid_input
from dagmaster.handlers.vector.csv_reader import CsvReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dagmaster.handlers.vector.dataset_files import Fetched
    from dagmaster.handlers.vector.models import VectorSource

BATCH_FEATURES: Final = 1_000
_GDAL_ERRORS: Final = (pyogrio.errors.DataSourceError, pyogrio.errors.FieldError, pyogrio.errors.GeometryError)
_UNKNOWN_FORMAT: Final = "not recognized as being in a supported file format"
_JSON_SUFFIXES: Final = (".json", ".geojson")
_MAX_JSON_BYTES: Final = 10_000_000
_GDAL_CONFIG: Final = {
    # Nothing that a file references is fetched: requests go to a closed port.
    "GDAL_HTTP_PROXY": "http://127.0.0.1:9",
    "GDAL_HTTPS_PROXY": "http://127.0.0.1:9",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    # Above GDAL's default of 200 MB per object: the file size has its own limit.
    "OGR_GEOJSON_MAX_OBJ_SIZE": "500",
    "OGR_SQLITE_LIST_VIRTUAL_OGR": "NO",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some features. `geometries` are bytes (WKB) or text (WKT), or None."""

    columns: list[Any]
    geometries: list[bytes | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """An open layer of features. `crs` is None if the file has none."""

    crs: pyproj.CRS | None
    names: list[str]
    types: list[Any]
    batches: Iterator[Batch]


@contextlib.contextmanager
def open_layer(source: Fetched, params: VectorSource) -> Iterator[Layer]:
    """Open a file of features."""
    match source.format:
        case "GeoParquet":
            reader = _open_geoparquet(source.path)
        case "CSV":
            reader = _open_csv(source.path, params)
        case _:
            reader = _open_with_gdal(source, params)
    with reader as layer:
        yield layer


# ── With GDAL ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _open_with_gdal(source: Fetched, params: VectorSource) -> Iterator[Layer]:
    pyogrio.set_gdal_config_options(_GDAL_CONFIG)
    path = str(source.path)
    layer = _choose_layer(source, params.layer)
    encoding = params.encoding if source.format == "ESRI Shapefile" else None
    with contextlib.ExitStack() as exit_stack:
        with _explain_errors(f"the {source.format} cannot be read", source.path):
            metadata, reader = exit_stack.enter_context(
                pyogrio.raw.open_arrow(
                    path, layer=layer, encoding=encoding, batch_size=BATCH_FEATURES, use_pyarrow=True
                )
            )
        schema = reader.schema
        geometry = next((index for index, field in enumerate(schema) if _is_geometry(field)), None)
        if geometry is None:
            raise invalid_input(f"the layer {layer!r} has no geometries: it is a plain table")
        others = [index for index in range(len(schema)) if index != geometry]

        def batches() -> Iterator[Batch]:
            while True:
                with _explain_errors(f"the {source.format} is broken", source.path):
                    try:
                        batch = reader.read_next_batch()
                    except StopIteration:
                        return
                yield Batch(
                    columns=[batch.column(index) for index in others], geometries=batch.column(geometry).to_pylist()
                )

        yield Layer(
            crs=_parse_file_crs(metadata["crs"]),
            names=[schema.field(index).name for index in others],
            types=[schema.field(index).type for index in others],
            batches=batches(),
        )


def _choose_layer(source: Fetched, requested: str | None) -> str:
    with _explain_errors(f"the file is not a readable {source.format}", source.path):
        names = [str(name) for name, _ in pyogrio.list_layers(str(source.path))]
        info = pyogrio.read_info(str(source.path), layer=names[0]) if names else {}
    if not names:
        raise invalid_input(f"the {source.format} has no layers")
    if info["driver"] != source.format:
        raise invalid_input(f"the file is {info['driver']}, not {source.format} as its name says")
    if requested is not None and requested not in names:
        raise invalid_input(f"the file has no layer {requested!r}: it has {', '.join(names[:20])}")
    if requested is None and len(names) > 1:
        raise invalid_input(f"the file has {len(names)} layers: name one by `layer`: {', '.join(names[:20])}")
    return requested or names[0]


def _is_geometry(field: pa.Field) -> bool:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name) == "geoarrow.wkb"
    return (field.metadata or {}).get(b"ARROW:extension:name") == b"geoarrow.wkb"


@contextlib.contextmanager
def _explain_errors(problem: str, path: Path) -> Iterator[None]:
    with warnings.catch_warnings():
        # What GDAL warns of, such as open rings, is checked and counted later.
        warnings.simplefilter("ignore")
        try:
            yield
        except (*_GDAL_ERRORS, pa.ArrowException, ValueError, RuntimeError, OSError) as error:
            raise _read_error(error, problem, path) from error


def _read_error(error: Exception, problem: str, path: Path) -> Exception:
    """Return `invalid_input` for a bad file, but a retryable error if the file or its disk is gone."""
    if not path.exists() or (isinstance(error, OSError) and error.errno is not None):
        return BlobsUnavailable(f"the file went away while it was read: {_strip_paths(str(error))}")
    if _UNKNOWN_FORMAT in str(error):
        return invalid_input(f"{problem}: {_describe_content(path)}")
    return invalid_input(f"{problem}: {_strip_paths(str(error))}")


def _describe_content(path: Path) -> str:
    """Describe a file that no driver accepts although its first bytes match its name."""
    if path.suffix.lower() not in _JSON_SUFFIXES:
        return "it is damaged, or another format than its name says. Copy it again from its origin"
    try:
        keys = list(json.loads(path.read_bytes())) if path.stat().st_size <= _MAX_JSON_BYTES else []
    except (ValueError, RecursionError) as error:
        return f"it is not JSON, or it is truncated ({str(error)[:80]})"
    listed = f": it has {', '.join(repr(key)[:40] for key in keys[:5])}" if keys else ""
    return f"it is JSON, but not GeoJSON with features{listed}. Expected a FeatureCollection, a Feature or a geometry"


def _strip_paths(text: str) -> str:
    """Remove scratch paths and SQLite details, which mean nothing to a user."""
    if "sqlite3" in text or "database disk image" in text:
        return "it is truncated or damaged. Copy it again from its origin"
    words = [word.rpartition("/")[2] if word.startswith(("/", "'/")) else word for word in text.split()]
    return " ".join(words)[:300]


# ── With Arrow ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _open_geoparquet(path: Path) -> Iterator[Layer]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _read_error(error, "the file is not a readable Parquet", path) from error
    with file:
        schema = file.schema_arrow
        geometry, metadata = _geometry_metadata(schema)
        hidden = {geometry, *(parts[0] for parts in metadata.get("covering", {}).get("bbox", {}).values())}
        others = [index for index, name in enumerate(schema.names) if name not in hidden]

        def batches() -> Iterator[Batch]:
            try:
                for batch in file.iter_batches(batch_size=BATCH_FEATURES):
                    geometries = batch.column(schema.names.index(geometry)).to_pylist()
                    yield Batch(columns=[batch.column(index) for index in others], geometries=geometries)
            except (pa.ArrowException, OSError) as error:
                raise _read_error(error, "the Parquet is broken", path) from error

        # GeoParquet: without the key it is longitude and latitude; null means unknown.
        yield Layer(
            crs=_parse_projjson(metadata["crs"]) if "crs" in metadata else pyproj.CRS.from_user_input("OGC:CRS84"),
            names=[schema.names[index] for index in others],
            types=[schema.types[index] for index in others],
            batches=batches(),
        )


def _parse_projjson(value: Any) -> pyproj.CRS | None:
    """Parse the CRS of GeoParquet, an object. For text, or an object with `init` or `proj`, PROJ might open files."""
    if value is None:
        return None
    if not isinstance(value, dict) or not str(value.get("type", "")).endswith("CRS") or {"init", "proj"} & value.keys():
        raise invalid_input(
            "the crs of the GeoParquet is not PROJJSON, which its specification requires: write the file again"
        )
    return _parse_file_crs(value)


def _geometry_metadata(schema: pa.Schema) -> tuple[str, dict[str, Any]]:
    """Return the geometry column and its GeoParquet metadata."""
    text = (schema.metadata or {}).get(b"geo")
    if text is None:
        raise invalid_input("the file is Parquet, but not GeoParquet: it does not name a geometry column")
    try:
        geo = json.loads(text)
        name = geo["primary_column"]
        metadata: dict[str, Any] = geo["columns"][name]
        encoding = metadata["encoding"]
    except (ValueError, KeyError, TypeError) as error:
        raise invalid_input(f"the geometry metadata of the GeoParquet cannot be read: {error!r}") from error
    if encoding != "WKB" or name not in schema.names:
        raise invalid_input(f"the geometries in {name!r} are {encoding}: expected WKB")
    return name, metadata


@contextlib.contextmanager
def _open_csv(path: Path, params: VectorSource) -> Iterator[Layer]:
    reader = CsvReader(path, params)
    yield Layer(
        crs=pyproj.CRS.from_user_input("OGC:CRS84") if reader.is_in_degrees else None,
        names=reader.names,
        types=reader.types,
        batches=(Batch(columns=columns, geometries=geometries) for columns, geometries in reader.batches()),
    )


def _parse_file_crs(value: Any) -> pyproj.CRS | None:
    """Parse the CRS of a file; None if it has none."""
    if not value:
        return None
    try:
        return pyproj.CRS.from_user_input(value)
    except pyproj.exceptions.CRSError as error:
        raise invalid_input(f"the file has an unknown CRS: {str(error)[:200]}") from error
