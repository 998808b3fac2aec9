"""Tables of features: where vector data goes, chunk by chunk."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLUMN_TYPES: Final = ("text", "integer", "number", "boolean", "date", "timestamp", "json")
"""Integers have 64 bits, numbers are doubles, a timestamp is a moment in UTC."""
SINGLE: Final = ("Point", "LineString", "Polygon")
GEOMETRY_TYPES: Final = (*SINGLE, *(f"Multi{one}" for one in SINGLE), "GeometryCollection", "Geometry")
CHUNK_COLUMN: Final = "_chunk"
MAX_IDENTIFIER: Final = 63
"""In bytes: PostgreSQL cuts longer names without a word."""

_TABLE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")
_CHUNK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a table holds. `columns` maps a name to text, integer, number, boolean, date, timestamp or json."""

    name: str
    columns: Mapping[str, str]
    geometry_type: str = "Geometry"
    """One of the simple features' names, or Geometry for any; with ` Z` behind it where there are heights."""
    srid: int = 4326
    geometry_column: str = "geometry"
    source: str = ""
    """What it is made of: an href without a version, perhaps a layer. Empty: nobody says."""

    def __post_init__(self) -> None:
        check_table(self.name)
        for name in (*self.columns, self.geometry_column):
            check_column(name)
        if self.geometry_column in self.columns:
            raise _invalid(f"the table {self.name} has two columns {self.geometry_column!r}: one is the geometry")
        for name, kind in self.columns.items():
            if kind not in COLUMN_TYPES:
                raise _invalid(f"the column {name!r} is of type {kind!r}: the types are {', '.join(COLUMN_TYPES)}")
        if self.geometry_type.removesuffix(" Z") not in GEOMETRY_TYPES:
            raise _invalid(f"there is no geometry type {self.geometry_type!r}: they are {', '.join(GEOMETRY_TYPES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """What is in a table. The bbox is in its own coordinate system."""

    name: str
    href: str
    rows: int
    chunks: tuple[str, ...] = ()
    srid: int = 4326
    bbox: tuple[float, float, float, float] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    geometry_type: str = "Geometry"
    geometry_column: str = "geometry"
    media_type: str = ""


class Tables(Protocol):
    """Tables of features. It blocks. A chunk is replaced as a whole, in one step: twice is once.

    `rows` is an Arrow table whose geometry column is WKB. `TablesUnavailable`: it does not answer, and trying again may
    help. `PermanentError` of kind `invalid_input`: these rows do not fit this table, or nobody may have this name.
    """

    def create(self, spec: TableSpec, *, replace: bool = False) -> bool:
        """Have this table. True: it was made. One that is there and differs is a PermanentError.

        So is one that is made of another source, unless that is to be replaced.
        """

    def replace_chunk(self, table: str, chunk: str, rows: Any) -> int:
        """Put these rows in the place of those that this chunk had; how many."""

    def keep_only(self, table: str, chunks: Sequence[str]) -> int:
        """Take away the chunks of earlier runs; how many rows went."""

    def describe(self, table: str) -> TableInfo | None:
        """Return its content."""

    def read(self, table: str) -> Any:
        """Return all of it, as an Arrow table, in any order, without the columns that the storage added."""

    def drop(self, table: str) -> bool:
        """Take it away."""


def check_table(name: str) -> str:
    """Check the name of a table, with an optional schema."""
    if not _TABLE.fullmatch(name):
        raise _invalid(
            f"{name[:100]!r} is no name of a table: letters, digits and '_', at most {MAX_IDENTIFIER}, not a digit"
            " first, and perhaps a schema before it, as in geo.countries"
        )
    return name


def check_chunk(name: str) -> str:
    """Check the name of a chunk: it may become a file name."""
    if not _CHUNK.fullmatch(name):
        raise _invalid(f"{name[:100]!r} is no name of a chunk: letters, digits, '_' and '-', at most 100")
    return name


def check_column(name: str) -> str:
    """Any text names a column that PostgreSQL would not cut or take for its own."""
    if not name or len(name.encode(errors="replace")) > MAX_IDENTIFIER or not name.isprintable():
        raise _invalid(f"{name[:100]!r} is no name of a column: 1 to {MAX_IDENTIFIER} bytes, all printable")
    if name in (CHUNK_COLUMN, *SYSTEM_COLUMNS):
        raise _invalid(f"the name {name!r} is taken: every table has a column of that name already")
    return name


SYSTEM_COLUMNS: Final = ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "oid")
"""PostgreSQL's own, in every table."""


def _invalid(message: str) -> PermanentError:
    return PermanentError(message, kind="invalid_input")
