"""Prepare the features of a file for a table: repaired, in its columns and CRS, as GeoParquet chunks.

The file is read once. The geometry type of the table is known only at the end of the file; until then the
chunks stay in the scratch folder. Memory holds one chunk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyproj
import shapely

from dagmaster.errors import invalid_input
from dagmaster.geo.rules import arrow_features
from dagmaster.geo.vector import columns
from dagmaster.geo.vector.geometry_cleaning import GeometryCleaner
from dagmaster.geo.vector.reprojection import crs_label, find_srid
from dagmaster.ports.table_schemas import SINGLE, TableSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dagmaster.geo.vector.geometry_cleaning import CleaningReport
    from dagmaster.geo.vector.models import GeometryRules, Mixed
    from dagmaster.geo.vector.readers import Layer

_CRS_REMEDIES: Final = {
    "ESRI Shapefile": "put its .prj next to it",
    "CSV": "name columns with longitude and latitude by lon_column and lat_column",
    "DXF": "export it to a format that has one",
    "DGN": "export it to a format that has one",
}
"""What to do about a file without a CRS, besides `source_crs`."""
_CRS_CODE: Final = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFile:
    """One chunk on this machine."""

    chunk_id: str
    path: Path
    rows: int
    bbox: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFile:
    """The features of a file. `source_names` maps columns to their names in the file.

    Chunks are yet to be written.
    """

    spec: TableSpec
    source_names: dict[str, str]
    target: pyproj.CRS
    source_crs: str
    report: CleaningReport
    rows: int
    pending: list[Path]

    def write(self, folder: Path) -> Iterator[ChunkFile]:
        """Write each chunk as GeoParquet, one after another."""
        for number, path in enumerate(self.pending, 1):
            with pa.memory_map(str(path)) as source:
                rows = pa.ipc.open_file(source).read_all()
                rows = promote_to_multi(rows, self.spec)
                chunk_id = f"c{number:05d}"
                target = folder / f"{chunk_id}.parquet"
                written = arrow_features.write_geoparquet(
                    arrow_features.fit_to_table(rows, self.spec), target, self.spec
                )
            path.unlink()
            yield ChunkFile(chunk_id=chunk_id, path=target, rows=written.rows, bbox=written.bbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """How a table is to be filled."""

    table: str
    rules: GeometryRules
    target_crs: str = "EPSG:4326"
    source_crs: str | None = None
    chunk_rows: int = 20_000
    chunk_mb: float = 64


def prepare(layer: Layer, plan: TablePlan, folder: Path, on_batch: Callable[[int], None]) -> PreparedFile:
    """Read a whole layer into pending chunks in a folder. `on_batch` receives the number of features read."""
    target = parse_crs_code(plan.target_crs, "target_crs")
    srid = find_srid(target)
    if srid is None:
        raise invalid_input(
            f"the target_crs {plan.target_crs} has no EPSG code, and a table needs one: choose another, as"
            " EPSG:4326"
        )
    if not (target.is_geographic or target.is_projected):
        raise invalid_input(
            f"the target_crs {plan.target_crs} has no plane or longitudes and latitudes on which features"
            " could lie: expected a projected or geographic CRS, such as EPSG:4326"
        )
    source = choose_source_crs(layer, plan.source_crs)
    cleaner = GeometryCleaner(plan.rules, source, target)
    names = columns.unique_column_names(layer.names)
    column_types = [columns.column_type(arrow_type) for arrow_type in layer.types]
    buffer = _ChunkBuffer(folder, plan)
    geometry_types: set[str] = set()
    read = 0
    for batch in layer.batches:
        geometries, is_kept = cleaner.clean(batch.geometries, read)
        arrays = [
            columns.convert_column(column, column_type, name, read)
            for column, column_type, name in zip(batch.columns, column_types, layer.names, strict=True)
        ]
        for column, array in zip(batch.columns, arrays, strict=True):
            cleaner.report.counts += columns.count_losses(column, array)
        # An empty geometry does not determine the type of the table.
        geometry_types |= set(
            arrow_features.geometry_types(geometries[is_kept & ~shapely.is_empty(geometries)])
        )
        arrays.append(pa.array(shapely.to_wkb(geometries, flavor="iso"), pa.binary()))
        rows = pa.table(arrays, names=[*names, columns.GEOMETRY])
        buffer.add(rows if is_kept.all() else rows.filter(pa.array(is_kept)))
        read += len(geometries)
        on_batch(read)
    if read == 0:
        raise invalid_input("the file contains no features: there is nothing to load")
    if buffer.rows == 0:
        raise invalid_input(
            f"none of the {read:,} features remains: all are without geometry (missing_geometry: drop) or"
            " outside of clip_bbox. Change these params, or name another file"
        )
    buffer.close()
    cleaner.report.counts["read"] = read
    spec = TableSpec(
        name=plan.table,
        columns=dict(zip(names, column_types, strict=True)),
        geometry_type=table_geometry_type(geometry_types, plan.rules.mixed_types),
        srid=srid,
        geometry_column=columns.GEOMETRY,
    )
    return PreparedFile(
        spec=spec,
        source_names=dict(zip(names, layer.names, strict=True)),
        target=target,
        source_crs=crs_label(source),
        report=cleaner.report,
        rows=buffer.rows,
        pending=buffer.paths,
    )


class _ChunkBuffer:
    """Rows that are collected into chunks of at most a number of rows or bytes."""

    def __init__(self, folder: Path, plan: TablePlan) -> None:
        self._folder = folder
        self._max_rows = plan.chunk_rows
        self._max_bytes = plan.chunk_mb * 1_000_000
        self._tables: list[pa.Table] = []
        self.paths: list[Path] = []
        self.rows = 0

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        while rows.num_rows:
            free = self._max_rows - sum(table.num_rows for table in self._tables)
            self._tables.append(rows.slice(0, free))
            rows = rows.slice(free)
            count, size = (
                sum(table.num_rows for table in self._tables),
                sum(table.nbytes for table in self._tables),
            )
            if count >= self._max_rows or size >= self._max_bytes:
                self._write()

    def close(self) -> None:
        if self._tables:
            self._write()

    def _write(self) -> None:
        path = self._folder / f"pending-{len(self.paths):05d}.arrow"
        table = pa.concat_tables(self._tables)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        self._tables = []
        self.paths.append(path)


def table_geometry_type(types: set[str], mixed: Mixed) -> str:
    suffix = " Z" if any(name.endswith(" Z") for name in types) else ""
    flat_types = {name.removesuffix(" Z") for name in types}
    if not flat_types:
        return "Geometry"
    if len(flat_types) == 1:
        return f"{next(iter(flat_types))}{suffix}"
    if mixed == "fail":
        raise invalid_input(
            f"the file has {', '.join(sorted(flat_types))}: set mixed_types to multi or geometry, or split it"
        )
    single_types = {name.removeprefix("Multi") for name in flat_types}
    if mixed == "multi" and len(single_types) == 1 and single_types <= set(SINGLE):
        return f"Multi{next(iter(single_types))}{suffix}"
    return f"Geometry{suffix}"


def promote_to_multi(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return the rows with Multi geometries if the table has these."""
    table_type = spec.geometry_type.removesuffix(" Z")
    index = rows.column_names.index(spec.geometry_column)
    geometries = shapely.from_wkb(rows.column(index).to_numpy())
    combine: Any = {
        "MultiPoint": shapely.multipoints,
        "MultiLineString": shapely.multilinestrings,
        "MultiPolygon": shapely.multipolygons,
    }.get(table_type)
    is_present = ~shapely.is_missing(geometries)
    differs = np.array(
        [
            geometry is not None and table_type not in ("Geometry", geometry.geom_type)
            for geometry in geometries
        ],
        dtype=bool,
    )
    # An empty geometry has no heights: in a table with heights it becomes null.
    has_z = spec.geometry_type.endswith(" Z")
    becomes_null = (
        is_present & shapely.is_empty(geometries) if has_z else np.zeros(len(geometries), dtype=bool)
    )
    if not (differs | becomes_null).any():
        return rows
    geometries[differs] = [
        _empty_geometry(table_type) if geometry.is_empty else combine(shapely.get_parts(geometry))
        for geometry in geometries[differs]
    ]
    geometries[becomes_null] = None
    wkb = shapely.to_wkb(geometries, flavor="iso")
    return rows.set_column(index, spec.geometry_column, pa.array(wkb, pa.binary()))


def _empty_geometry(geometry_type: str) -> Any:
    return shapely.from_wkt(f"{geometry_type.upper()} EMPTY")


def parse_crs_code(text: str, param: str) -> pyproj.CRS:
    if not _CRS_CODE.fullmatch(text):
        raise invalid_input(f"{param} is {text[:60]!r}: expected an authority and a code, such as EPSG:4326")
    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError as error:
        raise invalid_input(
            f"{param} is {text}, which is not a known CRS: expected a code such as EPSG:4326"
        ) from error


def choose_source_crs(layer: Layer, param: str | None) -> pyproj.CRS:
    """Return the CRS of a file: its own, or that of the param `source_crs` if it has none."""
    file_crs = layer.crs
    param_crs = None if param is None else parse_crs_code(param, "source_crs")
    if file_crs is None and param_crs is None:
        remedy = _CRS_REMEDIES.get(layer.format, "set it in the file")
        raise invalid_input(
            f"the {layer.format} file has no CRS, so its place is unknown: {remedy}, or set source_crs:"
            " EPSG:…"
        )
    if (
        file_crs is not None
        and param_crs is not None
        and not file_crs.equals(param_crs, ignore_axis_order=True)
    ):
        raise invalid_input(
            f"the file is in {crs_label(file_crs)}, but source_crs is {param}: leave it out, or repair the"
            " file"
        )
    crs = file_crs if file_crs is not None else param_crs
    assert crs is not None  # noqa: S101 - one of them is set
    if not (crs.is_geographic or crs.is_projected or crs.is_compound or crs.is_bound):
        raise invalid_input(
            f"the CRS of the file, {crs.name}, has no relation to the Earth: transform the file first"
        )
    return crs
