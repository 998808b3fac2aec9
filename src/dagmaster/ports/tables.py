"""Feature tables for vector data, written in chunks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, Self

from dagmaster.ports.table_schemas import TableSpec

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo(TableSpec):
    """A table and its content. The bbox is in its own coordinate system."""

    href: str
    rows: int
    chunks: tuple[str, ...] = ()
    bbox: tuple[float, float, float, float] | None = None
    media_type: str = ""

    @classmethod
    def of(cls, spec: TableSpec, **content: Any) -> Self:
        """Return the table of a spec with its content."""
        return cls(**{one.name: getattr(spec, one.name) for one in fields(spec)}, **content)


class Tables(Protocol):
    """Feature tables. Its methods block. A chunk is replaced atomically, so writing it again is idempotent.

    `rows` is an Arrow table whose geometry column is WKB. Methods raise `TablesUnavailable` if the storage
    does not respond: a retry may help; and `PermanentError` of kind `invalid_input` if rows do not fit the
    table, or a name is invalid.
    """

    def create(self, spec: TableSpec, *, replace: bool = False) -> bool:
        """Create a table, unless it exists; return whether it was created.

        Raise PermanentError if it exists with other columns, or from another source without `replace`.
        """

    def replace_chunk(self, table: str, chunk: str, rows: Any) -> int:
        """Replace the rows of a chunk; return how many it has."""

    def keep_only(self, table: str, chunks: Sequence[str]) -> int:
        """Remove the chunks of earlier runs; return how many rows were removed."""

    def describe(self, table: str) -> TableInfo | None:
        """Describe a table."""

    def read(self, table: str) -> Any:
        """Return all rows as an Arrow table, in any order, without internal columns."""

    def drop(self, table: str) -> bool:
        """Drop a table."""
