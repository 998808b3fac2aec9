"""Files of features as streams of batches: columns as Arrow has them, geometries as WKB or WKT.

GDAL reads GeoJSON, GeoPackage, Shapefile and FlatGeobuf; Arrow reads GeoParquet and CSV. What is held in memory is a
batch, whatever the size of the file.
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

from dagmaster.errors import BlobsUnavailable
from dagmaster.handlers.vector import csv_reader
from dagmaster.handlers.vector.dataset_files import invalid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dagmaster.handlers.vector.dataset_files import Fetched
    from dagmaster.handlers.vector.models import VectorSource

BATCH: Final = 1_000
_OF_GDAL: Final = (pyogrio.errors.DataSourceError, pyogrio.errors.FieldError, pyogrio.errors.GeometryError)
_NO_FEATURES: Final = "not recognized as being in a supported file format"
_JSON: Final = (".json", ".geojson")
_MOST_JSON: Final = 10_000_000
_CONFIG: Final = {
    # Nothing that a file says is fetched from anywhere: what tries, meets a door without a house.
    "GDAL_HTTP_PROXY": "http://127.0.0.1:9",
    "GDAL_HTTPS_PROXY": "http://127.0.0.1:9",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    # Of any size: the limit of 200 MB an object is for those who have no other.
    "OGR_GEOJSON_MAX_OBJ_SIZE": "500",
    "OGR_SQLITE_LIST_VIRTUAL_OGR": "NO",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some features. `shapes` are bytes (WKB) or text (WKT), or None."""

    columns: list[Any]
    shapes: list[bytes | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Features that are being read. A CRS of None: the file has none."""

    crs: pyproj.CRS | None
    names: list[str]
    types: list[Any]
    batches: Iterator[Batch]


@contextlib.contextmanager
def opened(source: Fetched, how: VectorSource) -> Iterator[Layer]:
    """Open a file of features."""
    match source.format:
        case "GeoParquet":
            opening = _geoparquet(source.path)
        case "CSV":
            opening = _csv(source.path, how)
        case _:
            opening = _with_gdal(source, how)
    with opening as layer:
        yield layer


# ── With GDAL ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _with_gdal(source: Fetched, how: VectorSource) -> Iterator[Layer]:
    pyogrio.set_gdal_config_options(_CONFIG)
    path = str(source.path)
    layer = _layer(source, how.layer)
    encoding = how.encoding if source.format == "ESRI Shapefile" else None
    with contextlib.ExitStack() as stack:
        with _in_our_words(f"the {source.format} cannot be read", source.path):
            opening = pyogrio.raw.open_arrow(path, layer=layer, encoding=encoding, batch_size=BATCH, use_pyarrow=True)
            about, reader = stack.enter_context(opening)
        schema = reader.schema
        shape = next((at for at, one in enumerate(schema) if _is_shape(one)), None)
        if shape is None:
            raise invalid(f"the layer {layer!r} has no geometries: it is a plain table")
        others = [at for at in range(len(schema)) if at != shape]

        def batches() -> Iterator[Batch]:
            while True:
                with _in_our_words(f"the {source.format} is broken", source.path):
                    try:
                        batch = reader.read_next_batch()
                    except StopIteration:
                        return
                yield Batch(columns=[batch.column(at) for at in others], shapes=batch.column(shape).to_pylist())

        yield Layer(
            crs=crs_of(about["crs"]),
            names=[schema.field(at).name for at in others],
            types=[schema.field(at).type for at in others],
            batches=batches(),
        )


def _layer(source: Fetched, wanted: str | None) -> str:
    format_ = source.format
    with _in_our_words(f"the file is no {format_} that can be read", source.path):
        names = [str(name) for name, _ in pyogrio.list_layers(str(source.path))]
        info = pyogrio.read_info(str(source.path), layer=names[0]) if names else {}
    if not names:
        raise invalid(f"the {format_} has no layers")
    if info["driver"] != format_:
        raise invalid(f"the file is {info['driver']}, not {format_} as its name says")
    if wanted is not None and wanted not in names:
        raise invalid(f"the file has no layer {wanted!r}: it has {', '.join(names[:20])}")
    if wanted is None and len(names) > 1:
        raise invalid(f"the file has {len(names)} layers: say which as `layer`: {', '.join(names[:20])}")
    return wanted or names[0]


def _is_shape(field: pa.Field) -> bool:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name) == "geoarrow.wkb"
    return (field.metadata or {}).get(b"ARROW:extension:name") == b"geoarrow.wkb"


@contextlib.contextmanager
def _in_our_words(what: str, path: Path) -> Iterator[None]:
    with warnings.catch_warnings():
        # What GDAL only warns of is looked at and counted later: rings that are not closed, and their like.
        warnings.simplefilter("ignore")
        try:
            yield
        except (*_OF_GDAL, pa.ArrowException, ValueError, RuntimeError, OSError) as error:
            raise _told(error, what, path) from error


def _told(error: Exception, what: str, path: Path) -> Exception:
    """What is wrong with a file is bad input. That it is gone, or its disk is mute, is not: it may come back."""
    if not path.exists() or (isinstance(error, OSError) and error.errno is not None):
        return BlobsUnavailable(f"the file went away while it was read: {_without_path(str(error))}")
    if _NO_FEATURES in str(error):
        return invalid(f"{what}: {_instead(path)}")
    return invalid(f"{what}: {_without_path(str(error))}")


def _instead(path: Path) -> str:
    """What no driver takes for its own. That it begins as its name says was looked at before."""
    if path.suffix.lower() not in _JSON:
        return "it is damaged, or another format than its name says. Copy it again from where it came"
    try:
        keys = list(json.loads(path.read_bytes())) if path.stat().st_size <= _MOST_JSON else []
    except (ValueError, RecursionError) as error:
        return f"it is not JSON, or it is cut off ({str(error)[:80]})"
    found = f": it has {', '.join(repr(key)[:40] for key in keys[:5])}" if keys else ""
    return f"it is JSON, but no GeoJSON with features{found}. Expected a FeatureCollection, a Feature or a geometry"


def _without_path(text: str) -> str:
    """A path of the scratch folder tells nobody anything, and neither does what SQLite was asked."""
    if "sqlite3" in text or "database disk image" in text:
        return "it is cut off or damaged. Copy it again from where it came"
    words = [word.rpartition("/")[2] if word.startswith(("/", "'/")) else word for word in text.split()]
    return " ".join(words)[:300]


# ── With Arrow ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _geoparquet(path: Path) -> Iterator[Layer]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _told(error, "the file is no Parquet that can be read", path) from error
    with file:
        schema = file.schema_arrow
        shape, about = _geo(schema)
        hidden = {shape, *(parts[0] for parts in about.get("covering", {}).get("bbox", {}).values())}
        others = [at for at, name in enumerate(schema.names) if name not in hidden]

        def batches() -> Iterator[Batch]:
            try:
                for batch in file.iter_batches(batch_size=BATCH):
                    shapes = batch.column(schema.names.index(shape)).to_pylist()
                    yield Batch(columns=[batch.column(at) for at in others], shapes=shapes)
            except (pa.ArrowException, OSError) as error:
                raise _told(error, "the Parquet is broken", path) from error

        # Without the key it is longitude and latitude; with null nobody knows.
        yield Layer(
            crs=_projjson(about["crs"]) if "crs" in about else pyproj.CRS.from_user_input("OGC:CRS84"),
            names=[schema.names[at] for at in others],
            types=[schema.types[at] for at in others],
            batches=batches(),
        )


def _projjson(said: Any) -> pyproj.CRS | None:
    """A CRS as GeoParquet has it: an object. Of text, and of an object with `init` or `proj`, PROJ may open files."""
    if said is None:
        return None
    if not isinstance(said, dict) or not str(said.get("type", "")).endswith("CRS") or {"init", "proj"} & said.keys():
        raise invalid("the crs of the GeoParquet is not PROJJSON, as its specification asks: write the file anew")
    return crs_of(said)


def _geo(schema: pa.Schema) -> tuple[str, dict[str, Any]]:
    """The geometry column, and what is said of it."""
    said = (schema.metadata or {}).get(b"geo")
    if said is None:
        raise invalid("the file is Parquet, but not GeoParquet: it does not say which column holds geometries")
    try:
        geo = json.loads(said)
        name = geo["primary_column"]
        about: dict[str, Any] = geo["columns"][name]
        encoding = about["encoding"]
    except (ValueError, KeyError, TypeError) as error:
        raise invalid(f"what the GeoParquet says of its geometries cannot be read: {error!r}") from error
    if encoding != "WKB" or name not in schema.names:
        raise invalid(f"the geometries in {name!r} are {encoding}: WKB was expected")
    return name, about


@contextlib.contextmanager
def _csv(path: Path, how: VectorSource) -> Iterator[Layer]:
    table = csv_reader.Csv(path, how)
    yield Layer(
        crs=pyproj.CRS.from_user_input("OGC:CRS84") if table.is_in_degrees else None,
        names=table.names,
        types=table.types,
        batches=(Batch(columns=columns, shapes=shapes) for columns, shapes in table.batches()),
    )


def crs_of(said: Any) -> pyproj.CRS | None:
    """The CRS that a file has. None: it has none."""
    if not said:
        return None
    try:
        return pyproj.CRS.from_user_input(said)
    except pyproj.exceptions.CRSError as error:
        raise invalid(f"nobody knows the coordinate system (CRS) of the file: {str(error)[:200]}") from error
