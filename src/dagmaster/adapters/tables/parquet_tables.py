"""Feature tables as GeoParquet in a directory: one folder per table, one file per chunk, no server.

DuckDB (`read_parquet('…/*.parquet')`), geopandas (`read_parquet('…')`) and QGIS read the files directly. A chunk is
replaced atomically, so readers see the old rows or the new ones. Names that start with a dot or an underscore are not
chunks, here and for those readers.
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
        """Create the folder and its description, unless they exist."""
        description = arrow_features.spec_to_json(spec)
        arrow_features.crs_to_projjson(spec.srid)
        with self._working():
            folder = self._folder(spec.name)
            folder.mkdir(parents=True, exist_ok=True)
            beside = self._beside(folder, "table")
            beside.write_text(json.dumps({**description, "source": spec.source}), encoding="utf-8")
            try:
                # A link, not a rename: of concurrent creators exactly one succeeds.
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
        """Write the chunk to a temporary file and rename it."""
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
        """Wait for uploads in progress, then remove the other chunks and left-overs of killed processes."""
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
        """Rename the folder, then delete it: no reader sees half a table."""
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
        """Yield the locked folder of a table. The kernel releases the locks of dead processes."""
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
    """Return the box around boxes."""
    if not boxes:
        return None
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def unknown(table: str) -> PermanentError:
    """Return the error for a missing table."""
    return PermanentError(f"there is no table {table}: create it first", kind="invalid_input")


def has_new_source(spec: TableSpec, there: TableSpec | None, *, replace: bool) -> bool:
    """Return whether an existing table gets a new source; raise if it holds something else."""
    if there is not None and spec.source and there.source not in ("", spec.source) and not replace:
        raise PermanentError(
            f"the table {spec.name} was made from {there.source}, not from {spec.source}: name another `table`, or set"
            " `replace: true` to replace it",
            kind="invalid_input",
        )
    if there is None or arrow_features.spec_to_json(there) != arrow_features.spec_to_json(spec):
        raise differs(spec, there)
    return bool(spec.source) and there.source != spec.source


def differs(spec: TableSpec, there: TableSpec | None) -> PermanentError:
    """Return the error for a table that holds something else."""
    reason = "it was not created by dagmaster" if there is None else _difference(spec, there)
    return PermanentError(
        f"the table {spec.name} exists and differs: {reason}. Name another table, or drop it first",
        kind="invalid_input",
    )


def _difference(spec: TableSpec, there: TableSpec) -> str:
    parts = [
        f"its {property_name} is {old}, not {new}"
        for property_name, old, new in (
            ("geometry type", there.geometry_type, spec.geometry_type),
            ("coordinate system", f"EPSG:{there.srid}", f"EPSG:{spec.srid}"),
            ("geometry column", there.geometry_column, spec.geometry_column),
        )
        if old != new
    ]
    old, new = dict(there.columns), dict(spec.columns)
    odd = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    parts += [f"its column {name!r} is {old.get(name, 'not there')}, not {new.get(name, 'there')}" for name in odd[:5]]
    return "; ".join(parts) or "its columns are in another order"
