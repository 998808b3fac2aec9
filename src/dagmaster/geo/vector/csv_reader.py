"""Read CSV with WKT, or with longitude and latitude.

The file is read twice: first to infer the column types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dagmaster.errors import invalid_input
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dagmaster.geo.vector.models import VectorSource

LON_NAMES: Final = ("lon", "lng", "long", "longitude", "x")
LAT_NAMES: Final = ("lat", "latitude", "y")
WKT_NAMES: Final = ("wkt", "geometry", "geom", "the_geom")
BLOCK_BYTES: Final = 4 * 1024 * 1024
# 007 is a name, not a number; an integer beyond 64 bits would lose digits as a double.
_PATTERNS: Final = {
    "integer": (r"^-?(0|[1-9][0-9]*)$", pa.int64()),
    "number": (r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][-+]?[0-9]+)?$", pa.float64()),
    "boolean": (r"^(true|false)$", pa.bool_()),
    "date": (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", pa.date32()),
    "timestamp": (
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?Z?$",
        pa.timestamp("us", tz="UTC"),
    ),
}


class CsvReader:
    """A CSV file with geometries."""

    def __init__(self, path: Path, params: VectorSource) -> None:
        self._path = path
        self._encoding = params.encoding or "utf8"
        self._delimiter = _detect_delimiter(path)
        try:
            header = self._open({}).schema.names
        except UnicodeError as error:
            raise _read_error(error) from error
        self._all = header
        self._wkt = _find_column(header, params.wkt_column, WKT_NAMES)
        lon = _find_column(header, params.lon_column, LON_NAMES)
        lat = _find_column(header, params.lat_column, LAT_NAMES)
        if self._wkt is None and (lon is None or lat is None):
            raise invalid_input(
                f"the CSV has no geometries: its columns are {', '.join(header[:20])}. Expected lon and lat,"
                " or wkt; name them by lon_column and lat_column, or wkt_column"
            )
        self._lon_lat = None if self._wkt is not None or lon is None or lat is None else (lon, lat)
        self._others = [index for index in range(len(header)) if index != self._wkt]
        self.is_in_degrees = self._lon_lat is not None and params.source_crs is None
        self.names = [header[index] for index in self._others]
        self.types = self._infer_types()

    def batches(self) -> Iterator[tuple[list[Any], list[bytes | str | None]]]:
        """Iterate over the rows: columns, and geometries as WKT."""
        row = 0
        for batch in self._rows():
            columns = [
                _cast(batch.column(index), arrow_type)
                for index, arrow_type in zip(self._others, self.types, strict=True)
            ]
            yield columns, self._geometries(batch, row)
            row += batch.num_rows

    def _geometries(self, batch: pa.RecordBatch, row: int) -> list[bytes | str | None]:
        if self._lon_lat is None:
            texts: list[bytes | str | None] = batch.column(self._wkt).to_pylist()
            return texts
        lon, lat = (batch.column(index).to_pylist() for index in self._lon_lat)
        return [self._point(x, y, row + index) for index, (x, y) in enumerate(zip(lon, lat, strict=True))]

    def _point(self, x: str | None, y: str | None, row: int) -> str | None:
        if x is None or y is None:
            return None
        try:
            return f"POINT ({float(x)!r} {float(y)!r})"
        except ValueError:
            raise invalid_input(
                f"row {row + 1} of the CSV has no valid coordinates: {x[:40]!r}, {y[:40]!r} are not numbers"
            ) from None

    def _infer_types(self) -> list[Any]:
        """Return the narrowest type that fits every value of a column."""
        candidates = [dict(_PATTERNS) for _ in self._others]
        is_empty = [True] * len(self._others)
        for batch in self._rows():
            for number, (index, types) in enumerate(zip(self._others, candidates, strict=True)):
                column = batch.column(index).drop_null()
                is_empty[number] &= len(column) == 0
                for name, (pattern, arrow_type) in list(types.items()):
                    if not _all_match(column, pattern, arrow_type):
                        del types[name]
        return [
            pa.string() if empty or not types else next(iter(types.values()))[1]
            for empty, types in zip(is_empty, candidates, strict=True)
        ]

    def _rows(self) -> Iterator[pa.RecordBatch]:
        reader = self._open(dict.fromkeys(self._all, pa.string()))
        while True:
            try:
                yield reader.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, UnicodeError) as error:
                raise _read_error(error) from error

    def _open(self, types: dict[str, pa.DataType]) -> Any:
        try:
            return pyarrow.csv.open_csv(
                self._path,
                read_options=pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, encoding=self._encoding),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=[""],
                ),
            )
        except (pa.ArrowException, UnicodeError, LookupError) as error:
            raise _read_error(error) from error


def _read_error(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, UnicodeError) or "UTF8" in text:
        return invalid_input("the CSV is not UTF-8: set `encoding`, such as ISO-8859-1")
    return invalid_input(
        "the CSV cannot be read: give every row as many values as the header has columns, and name an"
        f" encoding that Python knows{library_words('Arrow', text)}"
    )


def _detect_delimiter(path: Path) -> str:
    with path.open("rb") as file:
        header = file.readline(1_000_000)
    counts = {mark: header.count(mark.encode()) for mark in ",;\t|"}
    return max(counts, key=lambda mark: counts[mark])


def _find_column(header: list[str], name: str | None, usual_names: tuple[str, ...]) -> int | None:
    if name is not None:
        if name not in header:
            raise invalid_input(f"the CSV has no column {name!r}: it has {', '.join(header[:20])}")
        return header.index(name)
    lowered = [column.strip().lower() for column in header]
    return next((lowered.index(usual) for usual in usual_names if usual in lowered), None)


def _all_match(column: pa.Array, pattern: str, arrow_type: pa.DataType) -> bool:
    if not len(column):
        return True
    if not pc.all(pc.match_substring_regex(column, pattern)).as_py():
        return False
    try:
        _cast(column, arrow_type)
    except pa.ArrowException:
        return False
    return True


def _cast(column: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(arrow_type):
        # With or without Z: a time without a zone is UTC.
        return pc.utf8_rtrim(column, "Z").cast(pa.timestamp("us")).cast(arrow_type)
    return column.cast(arrow_type)
