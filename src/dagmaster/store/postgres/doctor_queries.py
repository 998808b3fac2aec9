"""What the doctor asks of a database, whatever state it is in. Errors of the driver are the doctor's to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    import asyncpg

_SQL = queries("doctor")


async def server(connection: asyncpg.Connection[asyncpg.Record]) -> asyncpg.Record | None:
    """The server, who we are, and what we may do."""
    return await connection.fetchrow(_SQL["server"].sql)


async def wall(connection: asyncpg.Connection[asyncpg.Record]) -> Any:
    """The server's own clock, in seconds since the epoch."""
    return await connection.fetchval(_SQL["wall"].sql)


async def living(
    connection: asyncpg.Connection[asyncpg.Record], lease_seconds: float, worker_lease_seconds: float
) -> asyncpg.Record | None:
    """Who lives, and which queues are served."""
    query = _SQL["living"]
    given = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
    return await connection.fetchrow(query.sql, *query.arguments(given))


async def waiting(connection: asyncpg.Connection[asyncpg.Record]) -> list[tuple[str, int]]:
    """What waits in each queue."""
    return [(row["queue"], row["tasks"]) for row in await connection.fetch(_SQL["waiting"].sql)]
