"""The columns of feature tables: their types, and which names tables, chunks and columns may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMN_TYPES: Final = ("text", "integer", "number", "boolean", "date", "time", "timestamp", "binary", "json")
"""Integers have 64 bits, numbers are doubles, times and timestamps have microseconds, timestamps are in UTC.

Besides these there is `decimal(precision,scale)`, which is exact, and lists of any type but json, such as
`integer[]`."""
MAX_DECIMAL_DIGITS: Final = 76
"""What Arrow and Parquet hold."""
SINGLE: Final = ("Point", "LineString", "Polygon")
GEOMETRY_TYPES: Final = (*SINGLE, *(f"Multi{one}" for one in SINGLE), "GeometryCollection", "Geometry")
CHUNK_COLUMN: Final = "_chunk"
MAX_IDENTIFIER: Final = 63
"""In bytes: PostgreSQL truncates longer names silently."""

_TABLE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")
_CHUNK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_COLUMN_TYPE = re.compile(rf"(?:({'|'.join(COLUMN_TYPES)})|decimal\(([0-9]{{1,2}}),([0-9]{{1,2}})\))(\[\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """The type of a column. `precision` and `scale` describe a decimal."""

    name: str
    precision: int = 0
    scale: int = 0
    is_list: bool = False

    @classmethod
    def parse(cls, text: str) -> ColumnType | None:
        """Parse a type, such as `integer`, `decimal(10,2)` or `text[]`; return None if it is unknown."""
        match = _COLUMN_TYPE.fullmatch(text)
        if match is None:
            return None
        name, precision, scale, brackets = match.groups()
        if name is not None:
            return None if name == "json" and brackets else cls(name=name, is_list=bool(brackets))
        if not 1 <= int(precision) <= MAX_DECIMAL_DIGITS or int(scale) > int(precision):
            return None
        return cls(name="decimal", precision=int(precision), scale=int(scale), is_list=bool(brackets))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The columns of a table. `columns` maps a name to a type (`ColumnType`)."""

    name: str
    columns: Mapping[str, str]
    geometry_type: str = "Geometry"
    """One of the simple features' names, or Geometry for any; with the suffix ` Z` if there are heights."""
    srid: int = 4326
    geometry_column: str = "geometry"
    source: str = ""
    """The source of the data: an href without a version, with an optional layer. Empty: unknown."""

    def __post_init__(self) -> None:
        check_table(self.name)
        for name in (*self.columns, self.geometry_column):
            check_column(name)
        if self.geometry_column in self.columns:
            raise _invalid(
                f"the table {self.name} has two columns {self.geometry_column!r}: one is the geometry"
            )
        for name, kind in self.columns.items():
            if ColumnType.parse(kind) is None:
                raise _invalid(
                    f"the column {name!r} is of type {kind!r}: the types are {', '.join(COLUMN_TYPES)},"
                    " decimal(precision,scale), and lists of them, such as integer[]"
                )
        if self.geometry_type.removesuffix(" Z") not in GEOMETRY_TYPES:
            raise _invalid(
                f"there is no geometry type {self.geometry_type!r}: they are {', '.join(GEOMETRY_TYPES)}"
            )


def check_table(name: str) -> str:
    if not _TABLE.fullmatch(name):
        raise _invalid(
            f"{name[:100]!r} is not a valid table name: use letters, digits and '_', at most"
            f" {MAX_IDENTIFIER}, no digit"
            " first, and optionally a schema, as in geo.countries"
        )
    return name


def check_chunk(name: str) -> str:
    """Check the name of a chunk: it may become a file name."""
    if not _CHUNK.fullmatch(name):
        raise _invalid(
            f"{name[:100]!r} is not a valid chunk name: use letters, digits, '_' and '-', at most 100"
        )
    return name


def check_column(name: str) -> str:
    """Check the name of a column: any text that PostgreSQL neither truncates nor reserves."""
    if not name or len(name.encode(errors="replace")) > MAX_IDENTIFIER or not name.isprintable():
        raise _invalid(
            f"{name[:100]!r} is not a valid column name: use 1 to {MAX_IDENTIFIER} printable bytes"
        )
    if name in (CHUNK_COLUMN, *SYSTEM_COLUMNS):
        raise _invalid(f"the column name {name!r} is reserved")
    return name


SYSTEM_COLUMNS: Final = ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "oid")
"""PostgreSQL's own, in every table."""


def _invalid(message: str) -> PermanentError:
    return PermanentError(message, kind="invalid_input")
