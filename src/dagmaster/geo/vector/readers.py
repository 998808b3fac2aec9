"""Read files of features as streams of batches: columns as Arrow arrays, geometries as WKB or WKT.

GDAL reads most formats (`formats/vector_drivers.py`), Arrow reads GeoParquet and CSV. Memory holds one batch,
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
from dagmaster.geo.vector.csv_reader import CsvReader
from dagmaster.geo.vector.gdal_fence import fenced_gdal
from dagmaster.geo.vector.geoparquet_reader import CRS84, find_geometry_column
from dagmaster.text_format import format_count, library_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dagmaster.geo.vector.dataset_files import Fetched
    from dagmaster.geo.vector.models import VectorSource

BATCH_FEATURES: Final = 1_000
_GDAL_ERRORS: Final = (
    pyogrio.errors.DataSourceError,
    pyogrio.errors.FieldError,
    pyogrio.errors.GeometryError,
)
_FIVE_LAYERS: Final = "GPX"
"""The format whose files all have the same layers, most of them without features."""
_UNKNOWN_FORMAT: Final = "not recognized as being in a supported file format"
_NOT_OPENED: Final = "the file cannot be opened as {}: it is damaged, or not what its name says"
_JSON_SUFFIXES: Final = (".json", ".geojson")
_MAX_JSON_BYTES: Final = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some features. `geometries` are bytes (WKB) or text (WKT), or None."""

    columns: list[Any]
    geometries: list[bytes | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """An open layer of features. `crs` is None if the file has none."""

    format: str
    crs: pyproj.CRS | None
    names: list[str]
    types: list[Any]
    batches: Iterator[Batch]


@contextlib.contextmanager
def open_layer(source: Fetched, params: VectorSource) -> Iterator[Layer]:
    match source.format:
        case "GeoParquet":
            reader = _open_geoparquet(source.path)
        case "CSV":
            reader = _open_csv(source.path, params)
        case _:
            reader = _open_with_gdal(source, params)
    with reader as layer:
        yield layer


# ── With GDAL ───────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _open_with_gdal(source: Fetched, params: VectorSource) -> Iterator[Layer]:
    encoding = params.encoding if source.format == "ESRI Shapefile" else None
    with contextlib.ExitStack() as exit_stack:
        exit_stack.enter_context(fenced_gdal(source.path.parent))
        layer = _choose_layer(source, params.layer)
        with _explain_errors(source, _NOT_OPENED.format(source.format)):
            metadata, reader = exit_stack.enter_context(
                pyogrio.raw.open_arrow(
                    str(source.path),
                    layer=layer,
                    encoding=encoding,
                    batch_size=BATCH_FEATURES,
                    use_pyarrow=True,
                )
            )
        schema = reader.schema
        geometry = next((index for index, field in enumerate(schema) if _is_geometry(field)), None)
        if geometry is None:
            raise invalid_input(
                f"the layer {layer!r} has no geometries, only columns: name another by `layer`"
            )
        others = [index for index in range(len(schema)) if index != geometry]

        def batches() -> Iterator[Batch]:
            while True:
                with _explain_errors(
                    source, f"the {source.format} file is damaged: a feature cannot be read"
                ):
                    try:
                        batch = reader.read_next_batch()
                    except StopIteration:
                        return
                    # GDAL passes on what a damaged file states, such as a negative length.
                    batch.column(geometry).validate(full=True)
                    geometries = batch.column(geometry).to_pylist()
                yield Batch(columns=[batch.column(index) for index in others], geometries=geometries)

        yield Layer(
            format=source.format,
            crs=_parse_file_crs(metadata["crs"]),
            names=[schema.field(index).name for index in others],
            types=[schema.field(index).type for index in others],
            batches=batches(),
        )


def _choose_layer(source: Fetched, requested: str | None) -> str:
    """Return the layer with this name; without a name the only layer, or the only one with geometries."""
    with _explain_errors(source, _NOT_OPENED.format(source.format)):
        layers = {str(name): geometry_type for name, geometry_type in pyogrio.list_layers(str(source.path))}
        info = pyogrio.read_info(str(source.path), layer=next(iter(layers))) if layers else {}
    if not layers:
        raise invalid_input(f"the {source.format} file has no layers: there is nothing to read")
    if info["driver"] not in source.formats:
        raise invalid_input(
            f"the file is {info['driver']}, not {' or '.join(source.formats)} as its name says: rename it"
        )
    if requested is not None:
        if requested not in layers:
            raise invalid_input(f"the file has no layer {requested!r}: it has {', '.join(list(layers)[:20])}")
        return requested
    return _choose_layer_with_features(source, info["driver"], layers)


def _choose_layer_with_features(source: Fetched, driver: str, layers: dict[str, Any]) -> str:
    names = list(layers)
    candidates = [name for name, geometry_type in layers.items() if geometry_type is not None] or names
    if driver == _FIVE_LAYERS:
        with _explain_errors(source, _NOT_OPENED.format(source.format)):
            counts = {name: _count_features(source.path, name) for name in candidates}
        candidates = [name for name, count in counts.items() if count] or names[:1]
    if len(candidates) > 1:
        raise invalid_input(
            f"the file has {format_count(len(candidates), 'layer')}: name one by `layer`:"
            f" {', '.join(candidates[:20])}"
        )
    return candidates[0]


def _count_features(path: Path, layer: str) -> int:
    return int(pyogrio.read_info(str(path), layer=layer, force_feature_count=True)["features"])


def _is_geometry(field: pa.Field) -> bool:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name) == "geoarrow.wkb"
    return (field.metadata or {}).get(b"ARROW:extension:name") == b"geoarrow.wkb"


@contextlib.contextmanager
def _explain_errors(source: Fetched, problem: str) -> Iterator[None]:
    with warnings.catch_warnings():
        # What GDAL warns of, such as open rings, is checked and counted later.
        warnings.simplefilter("ignore")
        try:
            yield
        except UnboundLocalError as error:
            # pyogrio 0.13 raises it for a CRS that GDAL cannot write as WKT.
            raise invalid_input(
                "the CRS of the file is damaged or of an unknown kind: set it in the file again, such as"
                " EPSG:…"
            ) from error
        except (*_GDAL_ERRORS, pa.ArrowException, ValueError, RuntimeError, OSError) as error:
            raise _read_error(error, problem, source.path, "GDAL") from error


def _read_error(error: Exception, problem: str, path: Path, library: str) -> Exception:
    """Return `invalid_input` for a bad file, but a retryable error if the file or its disk is gone."""
    if not path.exists() or (isinstance(error, OSError) and error.errno is not None):
        return BlobsUnavailable(
            f"the file went away while it was read: check its storage or disk{library_words(library, error)}"
        )
    if _UNKNOWN_FORMAT in str(error):
        return invalid_input(_describe_content(path))
    words = library_words(library, error)
    return invalid_input(f"{problem}. Copy it again from its origin, or export it again{words}")


def _describe_content(path: Path) -> str:
    """Describe a file that no driver accepts although its first bytes match its name."""
    kind = path.suffix.removeprefix(".")
    if path.suffix not in _JSON_SUFFIXES:
        return f"the file is damaged, or not the .{kind} that its name says: copy it again from its origin"
    try:
        keys = list(json.loads(path.read_bytes())) if path.stat().st_size <= _MAX_JSON_BYTES else []
    except (ValueError, RecursionError) as error:
        return f"the file is not JSON, or it is truncated: copy it again{library_words('JSON', error)}"
    listed = f": it has {', '.join(repr(key)[:40] for key in keys[:5])}" if keys else ""
    expected = "Expected a FeatureCollection, a Feature or a geometry"
    return f"the file is JSON, but not GeoJSON with features{listed}. {expected}"


# ── With Arrow ──────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _open_geoparquet(path: Path) -> Iterator[Layer]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _read_error(error, "the file is not Parquet, or it is truncated", path, "Arrow") from error
    with file:
        schema = file.schema_arrow
        names = schema.names
        geometry = find_geometry_column(file)
        hidden = {geometry.name, *geometry.covering}
        others = [index for index, name in enumerate(names) if name not in hidden]

        def batches() -> Iterator[Batch]:
            try:
                for batch in file.iter_batches(batch_size=BATCH_FEATURES):
                    geometries = geometry.decode(batch.column(names.index(geometry.name)))
                    yield Batch(columns=[batch.column(index) for index in others], geometries=geometries)
            except (pa.ArrowException, OSError) as error:
                raise _read_error(error, "the Parquet file is damaged", path, "Arrow") from error

        yield Layer(
            format="GeoParquet",
            crs=geometry.crs,
            names=[names[index] for index in others],
            types=[schema.types[index] for index in others],
            batches=batches(),
        )


@contextlib.contextmanager
def _open_csv(path: Path, params: VectorSource) -> Iterator[Layer]:
    reader = CsvReader(path, params)
    yield Layer(
        format="CSV",
        crs=pyproj.CRS.from_user_input(CRS84) if reader.is_in_degrees else None,
        names=reader.names,
        types=reader.types,
        batches=(Batch(columns=columns, geometries=geometries) for columns, geometries in reader.batches()),
    )


def _parse_file_crs(value: Any) -> pyproj.CRS | None:
    if not value:
        return None
    try:
        return pyproj.CRS.from_user_input(value)
    except pyproj.exceptions.CRSError as error:
        raise invalid_input(
            "the CRS of the file is unknown: set it in the file, such as EPSG:…"
            f"{library_words('PROJ', error)}"
        ) from error
