"""Features of a file, ready for a table: mended, in the table's columns and CRS, in chunks that are GeoParquet.

The file is read once. What type the geometries of the table have is known only at its end; until then the chunks wait
in the scratch folder. What is held in memory is one chunk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyproj
import shapely

from dagmaster.geo import arrow_features
from dagmaster.handlers.vector import columns
from dagmaster.handlers.vector.dataset_files import invalid
from dagmaster.handlers.vector.geometry_cleaning import Mending, short
from dagmaster.ports.tables import SINGLE, TableSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dagmaster.handlers.vector.geometry_cleaning import Tally
    from dagmaster.handlers.vector.models import GeometryRules, Mixed
    from dagmaster.handlers.vector.readers import Layer

_CODE: Final = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One chunk on this machine."""

    chunk_id: str
    path: Path
    rows: int
    bbox: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What a file became. `renamed` has the source's name of each column. The chunks are yet to be written."""

    spec: TableSpec
    renamed: dict[str, str]
    target: pyproj.CRS
    source_crs: str
    tally: Tally
    rows: int
    waiting: list[Path]

    def write(self, folder: Path) -> Iterator[Part]:
        """Write each chunk as GeoParquet, one after another."""
        for number, path in enumerate(self.waiting, 1):
            with pa.memory_map(str(path)) as source:
                rows = pa.ipc.open_file(source).read_all()
                rows = promoted(rows, self.spec)
                chunk_id = f"c{number:05d}"
                to = folder / f"{chunk_id}.parquet"
                written = arrow_features.write_geoparquet(arrow_features.fit_to_table(rows, self.spec), to, self.spec)
            path.unlink()
            yield Part(chunk_id=chunk_id, path=to, rows=written.rows, bbox=written.bbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the table shall be."""

    table: str
    rules: GeometryRules
    target_crs: str = "EPSG:4326"
    source_crs: str | None = None
    chunk_rows: int = 20_000
    chunk_mb: float = 64


def prepare(layer: Layer, wanted: Wanted, folder: Path, on_batch: Callable[[int], None]) -> Ready:
    """Read all of a layer into chunks that wait in a folder. `on_batch` hears how many features were read."""
    target = known_crs(wanted.target_crs, "target_crs")
    srid = target.to_epsg()
    if srid is None:
        raise invalid(f"the target_crs {wanted.target_crs} has no EPSG code: a table needs one")
    source = source_crs(layer.crs, wanted.source_crs)
    mending = Mending(wanted.rules, source, target)
    names = columns.plain_names(layer.names)
    kinds = [columns.kind_of(one) for one in layer.types]
    waiting = _Waiting(folder, wanted)
    types: set[str] = set()
    read = 0
    for batch in layer.batches:
        shapes, stay = mending.mend(batch.shapes, read)
        made = [
            columns.converted(column, kind, name, read)
            for column, kind, name in zip(batch.columns, kinds, layer.names, strict=True)
        ]
        for column, kind in zip(made, kinds, strict=True):
            mending.tally.counts["digits_in_doubt"] += columns.lost_digits(column) if kind == "number" else 0
        # An empty geometry has no type to hold on to.
        types |= set(arrow_features.geometry_types(shapes[stay & ~shapely.is_empty(shapes)]))
        made.append(pa.array(shapely.to_wkb(shapes, flavor="iso"), pa.binary()))
        rows = pa.table(made, names=[*names, columns.GEOMETRY])
        waiting.add(rows if stay.all() else rows.filter(pa.array(stay)))
        read += len(shapes)
        on_batch(read)
    if read == 0:
        raise invalid("the file holds no features: there is nothing to load")
    waiting.close()
    mending.tally.counts["read"] = read
    spec = TableSpec(
        name=wanted.table,
        columns=dict(zip(names, kinds, strict=True)),
        geometry_type=table_type(types, wanted.rules.mixed_types),
        srid=srid,
        geometry_column=columns.GEOMETRY,
    )
    return Ready(
        spec=spec,
        renamed=dict(zip(names, layer.names, strict=True)),
        target=target,
        source_crs=short(source),
        tally=mending.tally,
        rows=waiting.rows,
        waiting=waiting.paths,
    )


class _Waiting:
    """Rows on their way into chunks: whole batches and parts of batches, up to a number of rows or bytes."""

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self._folder = folder
        self._most_rows = wanted.chunk_rows
        self._most_bytes = wanted.chunk_mb * 1_000_000
        self._held: list[pa.Table] = []
        self.paths: list[Path] = []
        self.rows = 0

    def add(self, rows: pa.Table) -> None:
        """Take these rows, and write what is full."""
        self.rows += rows.num_rows
        while rows.num_rows:
            room = self._most_rows - sum(one.num_rows for one in self._held)
            self._held.append(rows.slice(0, room))
            rows = rows.slice(room)
            count, size = sum(one.num_rows for one in self._held), sum(one.nbytes for one in self._held)
            if count >= self._most_rows or size >= self._most_bytes:
                self._write()

    def close(self) -> None:
        """Write what is left."""
        if self._held:
            self._write()

    def _write(self) -> None:
        path = self._folder / f"waiting-{len(self.paths):05d}.arrow"
        held = pa.concat_tables(self._held)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, held.schema) as writer:
            writer.write_table(held)
        self._held = []
        self.paths.append(path)


def table_type(found: set[str], mixed: Mixed) -> str:
    """The geometry type of a table that holds these."""
    tail = " Z" if any(one.endswith(" Z") for one in found) else ""
    kinds = {one.removesuffix(" Z") for one in found}
    if not kinds:
        return "Geometry"
    if len(kinds) == 1:
        return f"{next(iter(kinds))}{tail}"
    if mixed == "fail":
        raise invalid(f"the file has {', '.join(sorted(kinds))}: say mixed_types: multi or geometry, or split it")
    families = {one.removeprefix("Multi") for one in kinds}
    if mixed == "multi" and len(families) == 1 and families <= set(SINGLE):
        return f"Multi{next(iter(families))}{tail}"
    return f"Geometry{tail}"


def promoted(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Rows whose geometries are all Multi, if the table's are."""
    wanted = spec.geometry_type.removesuffix(" Z")
    at = rows.column_names.index(spec.geometry_column)
    shapes = shapely.from_wkb(rows.column(at).to_numpy())
    make: Any = {
        "MultiPoint": shapely.multipoints,
        "MultiLineString": shapely.multilinestrings,
        "MultiPolygon": shapely.multipolygons,
    }.get(wanted)
    there = ~shapely.is_missing(shapes)
    alone = np.array([one is not None and wanted not in ("Geometry", one.geom_type) for one in shapes], dtype=bool)
    # Nothing has no heights either: in a table that has them, an empty geometry is none.
    none = there & shapely.is_empty(shapes) if spec.geometry_type.endswith(" Z") else np.zeros(len(shapes), dtype=bool)
    if not (alone | none).any():
        return rows
    shapes[alone] = [make(shapely.get_parts(one)) if make else _empty(wanted) for one in shapes[alone]]
    shapes[none] = None
    wkb = shapely.to_wkb(shapes, flavor="iso")
    return rows.set_column(at, spec.geometry_column, pa.array(wkb, pa.binary()))


def _empty(kind: str) -> Any:
    return shapely.from_wkt(f"{kind.upper()} EMPTY")


def known_crs(text: str, param: str) -> pyproj.CRS:
    """The CRS that a user names: by its code alone."""
    if not _CODE.fullmatch(text):
        raise invalid(f"{param} is {text[:60]!r}: an authority and a code were expected, as EPSG:4326")
    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError as error:
        raise invalid(f"nobody knows the coordinate system {text} ({param})") from error


def source_crs(found: pyproj.CRS | None, said: str | None) -> pyproj.CRS:
    """The CRS of a file: its own, or the one that the user says where it has none."""
    told = None if said is None else known_crs(said, "source_crs")
    if found is None and told is None:
        raise invalid(
            "the file has no coordinate system (CRS): nobody can tell where it lies. A shapefile has it in its .prj;"
            " else say it as source_crs: EPSG:…"
        )
    if found is not None and told is not None and not found.equals(told, ignore_axis_order=True):
        raise invalid(f"the file is in {short(found)} and source_crs says {said}: leave it out, or repair the file")
    chosen = found if found is not None else told
    assert chosen is not None  # noqa: S101 - one of them is there
    if not (chosen.is_geographic or chosen.is_projected or chosen.is_compound or chosen.is_bound):
        raise invalid(f"the coordinate system of the file, {chosen.name}, has no place on Earth")
    return chosen
