"""Tables of features: where vector data goes, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a table holds. `columns` maps a name to text, integer, number, boolean, date, timestamp or json."""

    name: str
    columns: Mapping[str, str]
    geometry_type: str = "Geometry"
    """One of the simple features' names, or Geometry for any."""
    srid: int = 4326
    geometry_column: str = "geometry"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """What is in a table."""

    name: str
    href: str
    rows: int
    chunks: tuple[str, ...] = ()
    srid: int = 4326
    bbox: tuple[float, float, float, float] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


class Tables(Protocol):
    """Tables of features. It blocks. A chunk is replaced as a whole, in one step: twice is once.

    `rows` is an Arrow table whose geometry column is WKB. `TablesUnavailable`: it does not answer, and trying again may
    help. `PermanentError` of kind `invalid_input`: these rows do not fit this table.
    """

    def create(self, spec: TableSpec) -> bool:
        """Have this table. True: it was made. One that is there and differs is a PermanentError."""

    def replace_chunk(self, table: str, chunk: str, rows: Any) -> int:
        """Put these rows in the place of those that this chunk had; how many."""

    def keep_only(self, table: str, chunks: Sequence[str]) -> int:
        """Take away the chunks of earlier runs; how many rows went."""

    def describe(self, table: str) -> TableInfo | None:
        """What is in it."""

    def read(self, table: str) -> Any:
        """All of it, as an Arrow table, without the columns that the storage added."""

    def drop(self, table: str) -> bool:
        """Take it away."""
