"""Tables of features as GeoParquet in a directory: a folder a table, a file a chunk. No server is needed.

What DuckDB (`read_parquet('…/*.parquet')`), geopandas (`read_parquet('…')`) and QGIS read is what is here. A chunk is
written beside its place and moved there in one step, so readers see the old rows or the new ones. Names that begin with
a dot or an underscore are no chunks, here and for those readers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from dagmaster.adapters.atomic_files import sync_folder
from dagmaster.errors import PermanentError, TablesUnavailable
from dagmaster.geo import arrow_features
from dagmaster.ports.tables import TableInfo, check_chunk, check_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dagmaster.ports.tables import TableSpec

ABOUT: Final = "_table.json"
LEFT_SECONDS: Final = 3600.0
"""A file that is being written for so long was left by a process that died."""


class ParquetTables:
    """Tables below one directory."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def create(self, spec: TableSpec, *, replace: bool = False) -> bool:
        """Make the folder, and the file that says what it holds, unless that is there."""
        said = arrow_features.spec_to_json(spec)
        arrow_features.crs_to_projjson(spec.srid)
        with self._working():
            folder = self._folder(spec.name)
            folder.mkdir(parents=True, exist_ok=True)
            beside = self._beside(folder, "table")
            beside.write_text(json.dumps({**said, "source": spec.source}), encoding="utf-8")
            try:
                # A link, not a move: of many that make the same table at once, one does.
                os.link(beside, folder / ABOUT)
                return True
            except FileExistsError:
                there = self._spec(spec.name)
                if has_new_source(spec, there, replace=replace):
                    beside.replace(folder / ABOUT)
                return False
            finally:
                beside.unlink(missing_ok=True)

    def replace_chunk(self, table: str, chunk: str, rows: Any) -> int:
        """Write the chunk beside, and move it into its place."""
        check_chunk(chunk)
        with self._working(), self._held(table, fcntl.LOCK_SH) as folder:
            spec = self._known(table)
            beside = self._beside(folder, chunk)
            try:
                written = arrow_features.write_geoparquet(arrow_features.fit_to_table(rows, spec), beside, spec)
                with beside.open("rb") as file:
                    os.fsync(file.fileno())
                beside.replace(folder / f"{chunk}.parquet")
                sync_folder(folder)
            finally:
                beside.unlink(missing_ok=True)
            return written.rows

    def keep_only(self, table: str, chunks: Sequence[str]) -> int:
        """Wait for the uploads that are under way, and remove the other files, and what a killed process left."""
        with self._working(), self._held(table, fcntl.LOCK_EX):
            self._known(table)
            gone = 0
            for file in self._chunks(table):
                if file.stem not in set(chunks):
                    with contextlib.suppress(FileNotFoundError):
                        rows = arrow_features.read_file_info(file).rows
                        file.unlink()
                        gone += rows
            for left in self._folder(table).glob(".*.tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - left.stat().st_mtime > LEFT_SECONDS:
                        left.unlink()
            return gone

    def describe(self, table: str) -> TableInfo | None:
        """Read the last bytes of each file."""
        with self._working():
            spec = self._spec(table)
            if spec is None:
                return None
            facts = {file.stem: arrow_features.read_file_info(file) for file in self._chunks(table)}
            boxes = [one.bbox for one in facts.values() if one.bbox is not None]
            return TableInfo(
                name=table,
                href=self._folder(table).absolute().as_uri(),
                rows=sum(one.rows for one in facts.values()),
                chunks=tuple(facts),
                srid=spec.srid,
                bbox=around(boxes),
                columns=dict(spec.columns),
                geometry_type=spec.geometry_type,
                geometry_column=spec.geometry_column,
                media_type="application/vnd.apache.parquet",
            )

    def read(self, table: str) -> Any:
        """Read each file."""
        import pyarrow as pa

        with self._working():
            spec = self._known(table)
            parts = [arrow_features.read_chunk(file)[1] for file in self._chunks(table)]
            return pa.concat_tables([arrow_features.arrow_schema(spec).empty_table(), *parts])

    def drop(self, table: str) -> bool:
        """Move the folder away, then remove it: nobody sees half a table."""
        with self._working():
            folder = self._folder(table)
            away = self._place / f".{table}.{secrets.token_hex(8)}.gone"
            try:
                folder.rename(away)
            except FileNotFoundError:
                return False
            shutil.rmtree(away, ignore_errors=True)
            return True

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _folder(self, table: str) -> Path:
        return self._place / check_table(table)

    @contextlib.contextmanager
    def _held(self, table: str, how: int) -> Iterator[Path]:
        """The folder of a table, locked. The kernel drops the locks of the dead."""
        folder = self._folder(table)
        try:
            number = os.open(folder, os.O_RDONLY)
        except FileNotFoundError as error:
            raise unknown(table) from error
        try:
            fcntl.flock(number, how)
            yield folder
        finally:
            os.close(number)

    def _chunks(self, table: str) -> list[Path]:
        return sorted(file for file in self._folder(table).glob("*.parquet") if file.name[0] not in "._")

    def _beside(self, folder: Path, name: str) -> Path:
        return folder / f".{name}.{secrets.token_hex(8)}.tmp"

    def _spec(self, table: str) -> TableSpec | None:
        try:
            return arrow_features.spec_from_json(json.loads((self._folder(table) / ABOUT).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _known(self, table: str) -> TableSpec:
        spec = self._spec(table)
        if spec is None:
            raise unknown(table)
        return spec

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TablesUnavailable(f"the tables in {self._place} cannot be used: {error}") from error


def around(boxes: Sequence[tuple[float, float, float, float]]) -> tuple[float, float, float, float] | None:
    """The box around boxes."""
    if not boxes:
        return None
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def unknown(table: str) -> PermanentError:
    """There is no such table."""
    return PermanentError(f"there is no table {table}: create it first", kind="invalid_input")


def has_new_source(spec: TableSpec, there: TableSpec | None, *, replace: bool) -> bool:
    """Whether a table that is there has to remember another source. One that holds something else is refused."""
    if there is not None and spec.source and there.source not in ("", spec.source) and not replace:
        raise PermanentError(
            f"the table {spec.name} is made of {there.source}, and this is {spec.source}: name another `table`, or say"
            " `replace: true` to have this in its place",
            kind="invalid_input",
        )
    if there is None or arrow_features.spec_to_json(there) != arrow_features.spec_to_json(spec):
        raise differs(spec, there)
    return bool(spec.source) and there.source != spec.source


def differs(spec: TableSpec, there: TableSpec | None) -> PermanentError:
    """A table of this name holds something else."""
    said = "it is none of dagmaster's" if there is None else _difference(spec, there)
    return PermanentError(
        f"the table {spec.name} is there and differs: {said}. Name another table, or drop it first",
        kind="invalid_input",
    )


def _difference(spec: TableSpec, there: TableSpec) -> str:
    parts = [
        f"its {what} is {old}, not {new}"
        for what, old, new in (
            ("geometry type", there.geometry_type, spec.geometry_type),
            ("coordinate system", f"EPSG:{there.srid}", f"EPSG:{spec.srid}"),
            ("geometry column", there.geometry_column, spec.geometry_column),
        )
        if old != new
    ]
    old, new = dict(there.columns), dict(spec.columns)
    odd = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    parts += [f"its column {name!r} is {old.get(name, 'not there')}, not {new.get(name, 'there')}" for name in odd[:5]]
    return "; ".join(parts) or "its columns stand in another order"
