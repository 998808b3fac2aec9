"""Feature tables as GeoParquet in a directory: one folder per table, one file per chunk, no server.

DuckDB (`read_parquet('…/*.parquet')`), geopandas (`read_parquet('…')`) and QGIS read the files directly. A
chunk is replaced atomically, so readers see the old rows or the new ones. Names that start with a dot or an
underscore are not chunks, here and for those readers.
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

from dagmaster.errors import PermanentError, TablesUnavailable
from dagmaster.geo.rules import arrow_features
from dagmaster.geo.rules.bounding_boxes import bbox_union
from dagmaster.host.atomic_files import sync_folder
from dagmaster.ports.table_schemas import check_chunk, check_table
from dagmaster.ports.tables import TableInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dagmaster.ports.table_schemas import TableSpec

TABLE_METADATA: Final = "_table.json"
STALE_AFTER_SECONDS: Final = 3600.0
"""A temporary file of this age is a left-over of a killed process."""


class ParquetTables:
    """Tables below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, spec: TableSpec, *, replace: bool = False) -> bool:
        """Create the folder and its description, unless they exist."""
        description = arrow_features.spec_to_json(spec)
        arrow_features.crs_to_projjson(spec.srid)
        with self._translate_errors():
            folder = self._folder(spec.name)
            folder.mkdir(parents=True, exist_ok=True)
            temp_path = self._temp_path(folder, "table")
            temp_path.write_text(json.dumps({**description, "source": spec.source}), encoding="utf-8")
            try:
                # A link, not a rename: of concurrent creators exactly one succeeds.
                os.link(temp_path, folder / TABLE_METADATA)
                return True
            except FileExistsError:
                existing = self._spec(spec.name)
                if check_existing(spec, existing, replace=replace):
                    temp_path.replace(folder / TABLE_METADATA)
                return False
            finally:
                temp_path.unlink(missing_ok=True)

    def replace_chunk(self, table: str, chunk: str, rows: Any) -> int:
        """Write the chunk to a temporary file and rename it."""
        check_chunk(chunk)
        with self._translate_errors(), self._lock_table(table, fcntl.LOCK_SH) as folder:
            spec = self._require_spec(table)
            temp_path = self._temp_path(folder, chunk)
            try:
                written = arrow_features.write_geoparquet(
                    arrow_features.fit_to_table(rows, spec), temp_path, spec
                )
                with temp_path.open("rb") as file:
                    os.fsync(file.fileno())
                temp_path.replace(folder / f"{chunk}.parquet")
                sync_folder(folder)
            finally:
                temp_path.unlink(missing_ok=True)
            return written.rows

    def keep_only(self, table: str, chunks: Sequence[str]) -> int:
        """Wait for uploads in progress, then remove the other chunks and left-overs of killed processes."""
        with self._translate_errors(), self._lock_table(table, fcntl.LOCK_EX):
            self._require_spec(table)
            removed = 0
            for file in self._chunks(table):
                if file.stem not in set(chunks):
                    with contextlib.suppress(FileNotFoundError):
                        rows = arrow_features.read_file_info(file).rows
                        file.unlink()
                        removed += rows
            for stale_file in self._folder(table).glob(".*.tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - stale_file.stat().st_mtime > STALE_AFTER_SECONDS:
                        stale_file.unlink()
            return removed

    def describe(self, table: str) -> TableInfo | None:
        """Read the last bytes of each file."""
        with self._translate_errors():
            spec = self._spec(table)
            if spec is None:
                return None
            infos = {file.stem: arrow_features.read_file_info(file) for file in self._chunks(table)}
            boxes = [info.bbox for info in infos.values() if info.bbox is not None]
            return TableInfo.of(
                spec,
                href=self._folder(table).absolute().as_uri(),
                rows=sum(info.rows for info in infos.values()),
                chunks=tuple(infos),
                bbox=bbox_union(boxes) if boxes else None,
                media_type="application/vnd.apache.parquet",
            )

    def read(self, table: str) -> Any:
        import pyarrow as pa

        with self._translate_errors():
            spec = self._require_spec(table)
            parts = [arrow_features.read_chunk(file)[1] for file in self._chunks(table)]
            return pa.concat_tables([arrow_features.arrow_schema(spec).empty_table(), *parts])

    def drop(self, table: str) -> bool:
        """Rename the folder, then delete it: no reader sees half a table."""
        with self._translate_errors():
            folder = self._folder(table)
            renamed = self._root / f".{table}.{secrets.token_hex(8)}.gone"
            try:
                folder.rename(renamed)
            except FileNotFoundError:
                return False
            shutil.rmtree(renamed, ignore_errors=True)
            return True

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def _folder(self, table: str) -> Path:
        return self._root / check_table(table)

    @contextlib.contextmanager
    def _lock_table(self, table: str, operation: int) -> Iterator[Path]:
        """Yield the locked folder of a table. The kernel releases the locks of dead processes."""
        folder = self._folder(table)
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError as error:
            raise table_not_found(table) from error
        try:
            fcntl.flock(descriptor, operation)
            yield folder
        finally:
            os.close(descriptor)

    def _chunks(self, table: str) -> list[Path]:
        return sorted(file for file in self._folder(table).glob("*.parquet") if file.name[0] not in "._")

    def _temp_path(self, folder: Path, name: str) -> Path:
        return folder / f".{name}.{secrets.token_hex(8)}.tmp"

    def _spec(self, table: str) -> TableSpec | None:
        try:
            return arrow_features.spec_from_json(
                json.loads((self._folder(table) / TABLE_METADATA).read_text(encoding="utf-8"))
            )
        except FileNotFoundError:
            return None

    def _require_spec(self, table: str) -> TableSpec:
        spec = self._spec(table)
        if spec is None:
            raise table_not_found(table)
        return spec

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TablesUnavailable(f"the tables in {self._root} cannot be used: {error}") from error


def table_not_found(table: str) -> PermanentError:
    return PermanentError(f"there is no table {table}: create it first", kind="invalid_input")


def check_existing(spec: TableSpec, existing: TableSpec | None, *, replace: bool) -> bool:
    """Check an existing table against a spec; return whether its source has to be updated."""
    if existing is not None and spec.source and existing.source not in ("", spec.source) and not replace:
        raise PermanentError(
            f"the table {spec.name} was created from {existing.source}, not from {spec.source}: name another"
            " `table`, or set `replace: true` to replace it",
            kind="invalid_input",
        )
    if existing is None or arrow_features.spec_to_json(existing) != arrow_features.spec_to_json(spec):
        raise table_mismatch(spec, existing)
    return bool(spec.source) and existing.source != spec.source


def table_mismatch(spec: TableSpec, existing: TableSpec | None) -> PermanentError:
    reason = "it was not created by dagmaster" if existing is None else _difference(spec, existing)
    return PermanentError(
        f"the table {spec.name} exists and differs: {reason}. Name another table, or drop it first",
        kind="invalid_input",
    )


def _difference(spec: TableSpec, existing: TableSpec) -> str:
    parts = [
        f"its {property_name} is {old}, not {new}"
        for property_name, old, new in (
            ("geometry type", existing.geometry_type, spec.geometry_type),
            ("coordinate system", f"EPSG:{existing.srid}", f"EPSG:{spec.srid}"),
            ("geometry column", existing.geometry_column, spec.geometry_column),
        )
        if old != new
    ]
    old, new = dict(existing.columns), dict(spec.columns)
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    parts += [
        f"its column {name!r} is {old.get(name, 'missing')}, not {new.get(name, 'missing')}"
        for name in changed[:5]
    ]
    return "; ".join(parts) or "its columns are in another order"
