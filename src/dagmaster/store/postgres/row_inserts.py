"""Many rows for a table with policies, to which PostgreSQL does not copy: as arrays, one for each column."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import asyncpg

_SQL = queries("isolation")
ROWS_AT_ONCE: Final = 20_000


async def insert_rows(
    connection: asyncpg.Connection[asyncpg.Record],
    table: str,
    columns: Sequence[str],
    records: Iterable[tuple[Any, ...]],
) -> None:
    """Insert rows, in the transaction that runs."""
    query = _SQL["column_types"]
    described = await connection.fetch(query.sql, *query.arguments({"table": table}))
    types = {row["name"]: row["type"] for row in described}
    arrays = ", ".join(f"${number}::{types[name]}[]" for number, name in enumerate(columns, 1))
    names = ", ".join(columns)
    # The names are of our tables.
    statement = f"INSERT INTO dagapp.{table} ({names}) SELECT {names} FROM unnest({arrays}) AS n ({names})"  # noqa: S608
    rows = iter(records)
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        await connection.execute(statement, *map(list, zip(*chunk, strict=True)))
