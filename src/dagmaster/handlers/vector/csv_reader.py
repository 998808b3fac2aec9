"""CSV with WKT, or with longitude and latitude. All of it is read twice: once for the types of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dagmaster.handlers.vector.dataset_files import invalid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dagmaster.handlers.vector.models import VectorSource

LON: Final = ("lon", "lng", "long", "longitude", "x")
LAT: Final = ("lat", "latitude", "y")
WKT: Final = ("wkt", "geometry", "geom", "the_geom")
BLOCK: Final = 4 * 1024 * 1024
# 007 is a name, not a number; and of a whole number that fits no 64 bits, a double would lose digits.
_PATTERNS: Final = {
    "integer": (r"^-?(0|[1-9][0-9]*)$", pa.int64()),
    "number": (r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][-+]?[0-9]+)?$", pa.float64()),
    "boolean": (r"^(true|false)$", pa.bool_()),
    "date": (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", pa.date32()),
    "timestamp": (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?Z?$", pa.timestamp("us", tz="UTC")),
}


class Csv:
    """A CSV that has places."""

    def __init__(self, path: Path, how: VectorSource) -> None:
        self._path = path
        self._encoding = how.encoding or "utf8"
        self._delimiter = _delimiter(path)
        header = self._open({}).schema.names
        self._all = header
        self._wkt = _column(header, how.wkt_column, WKT)
        lon, lat = _column(header, how.lon_column, LON), _column(header, how.lat_column, LAT)
        if self._wkt is None and (lon is None or lat is None):
            raise invalid(
                f"the CSV has no places: it has the columns {', '.join(header[:20])}. Expected lon and lat, or wkt;"
                " name them as lon_column and lat_column, or wkt_column"
            )
        self._lon_lat = None if self._wkt is not None or lon is None or lat is None else (lon, lat)
        self._others = [at for at in range(len(header)) if at != self._wkt]
        self.is_in_degrees = self._lon_lat is not None and how.source_crs is None
        self.names = [header[at] for at in self._others]
        self.types = self._inferred()

    def batches(self) -> Iterator[tuple[list[Any], list[bytes | str | None]]]:
        """Its rows: columns, and WKT."""
        row = 0
        for batch in self._rows():
            columns = [_cast(batch.column(at), kind) for at, kind in zip(self._others, self.types, strict=True)]
            yield columns, self._shapes(batch, row)
            row += batch.num_rows

    def _shapes(self, batch: pa.RecordBatch, row: int) -> list[bytes | str | None]:
        if self._lon_lat is None:
            found: list[bytes | str | None] = batch.column(self._wkt).to_pylist()
            return found
        lon, lat = (batch.column(at).to_pylist() for at in self._lon_lat)
        return [self._point(x, y, row + at) for at, (x, y) in enumerate(zip(lon, lat, strict=True))]

    def _point(self, x: str | None, y: str | None, row: int) -> str | None:
        if x is None or y is None:
            return None
        try:
            return f"POINT ({float(x)!r} {float(y)!r})"
        except ValueError:
            raise invalid(f"row {row + 1} of the CSV has no place: {x[:40]!r}, {y[:40]!r} are no numbers") from None

    def _inferred(self) -> list[Any]:
        """The narrowest type that every value of a column has."""
        possible = [dict(_PATTERNS) for _ in self._others]
        is_empty = [True] * len(self._others)
        for batch in self._rows():
            for at, (place, kinds) in enumerate(zip(self._others, possible, strict=True)):
                column = batch.column(place).drop_null()
                is_empty[at] &= len(column) == 0
                for kind, (pattern, type_) in list(kinds.items()):
                    if not _all_are(column, pattern, type_):
                        del kinds[kind]
        return [
            pa.string() if nothing or not kinds else next(iter(kinds.values()))[1]
            for nothing, kinds in zip(is_empty, possible, strict=True)
        ]

    def _rows(self) -> Iterator[pa.RecordBatch]:
        reader = self._open(dict.fromkeys(self._all, pa.string()))
        while True:
            try:
                yield reader.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, UnicodeError) as error:
                raise _broken(error) from error

    def _open(self, types: dict[str, pa.DataType]) -> Any:
        try:
            return pyarrow.csv.open_csv(
                self._path,
                read_options=pyarrow.csv.ReadOptions(block_size=BLOCK, encoding=self._encoding),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
                ),
            )
        except (pa.ArrowException, UnicodeError, LookupError) as error:
            raise _broken(error) from error


def _broken(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, UnicodeError) or "UTF8" in text:
        return invalid("the CSV is not UTF-8: say its `encoding`, as ISO-8859-1")
    return invalid(f"the CSV cannot be read: {text[:300]}")


def _delimiter(path: Path) -> str:
    with path.open("rb") as file:
        first = file.readline(1_000_000)
    counts = {mark: first.count(mark.encode()) for mark in ",;\t|"}
    return max(counts, key=lambda mark: counts[mark])


def _column(header: list[str], wanted: str | None, usual: tuple[str, ...]) -> int | None:
    if wanted is not None:
        if wanted not in header:
            raise invalid(f"the CSV has no column {wanted!r}: it has {', '.join(header[:20])}")
        return header.index(wanted)
    lowered = [name.strip().lower() for name in header]
    return next((lowered.index(name) for name in usual if name in lowered), None)


def _all_are(column: pa.Array, pattern: str, type_: pa.DataType) -> bool:
    if not len(column):
        return True
    if not pc.all(pc.match_substring_regex(column, pattern)).as_py():
        return False
    try:
        _cast(column, type_)
    except pa.ArrowException:
        return False
    return True


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        # With or without Z: a time without a zone is taken as UTC.
        return pc.utf8_rtrim(column, "Z").cast(pa.timestamp("us")).cast(type_)
    return column.cast(type_)
