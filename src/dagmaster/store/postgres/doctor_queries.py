"""Queries of the doctor about a database in whatever state. Driver errors are not translated: the doctor reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    import asyncpg

_SQL = queries("doctor")


async def server(connection: asyncpg.Connection[asyncpg.Record]) -> asyncpg.Record | None:
    """Return the version of the server, our user and its rights."""
    return await connection.fetchrow(_SQL["server"].sql)


async def wall(connection: asyncpg.Connection[asyncpg.Record]) -> Any:
    """Return the server's own clock, in seconds since the epoch."""
    return await connection.fetchval(_SQL["wall"].sql)


async def living(
    connection: asyncpg.Connection[asyncpg.Record], lease_seconds: float, worker_lease_seconds: float
) -> asyncpg.Record | None:
    """Count live orchestrators and workers, with the queues that these serve."""
    query = _SQL["living"]
    given = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
    return await connection.fetchrow(query.sql, *query.arguments(given))


async def waiting(connection: asyncpg.Connection[asyncpg.Record]) -> list[tuple[str, int]]:
    """Return the number of waiting tasks by queue."""
    return [(row["queue"], row["tasks"]) for row in await connection.fetch(_SQL["waiting"].sql)]
