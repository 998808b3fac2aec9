"""Queries of the doctor about a database in any state.

Driver errors are not translated: they are its findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    import asyncpg

    from dagmaster.store.postgres.named_queries import Query

    PgConnection = asyncpg.Connection[asyncpg.Record]

_SQL = queries("doctor")


async def server(connection: PgConnection) -> asyncpg.Record:
    """Return the version of the server, and the user with its rights."""
    return await _one_row(connection, _SQL["server"], {})


async def clock_time(connection: PgConnection) -> float:
    """Return the time of the server's clock, in seconds since the epoch."""
    seconds: float = await connection.fetchval(_SQL["clock_time"].sql)
    return seconds


async def live_services(
    connection: PgConnection, lease_seconds: float, worker_lease_seconds: float
) -> asyncpg.Record:
    """Count live orchestrators and workers, with the queues that the workers serve."""
    leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
    return await _one_row(connection, _SQL["live_services"], leases)


async def waiting_tasks(connection: PgConnection) -> list[tuple[str, int]]:
    return [(row["queue"], row["tasks"]) for row in await connection.fetch(_SQL["waiting_tasks"].sql)]


async def _one_row(connection: PgConnection, query: Query, params: dict[str, float]) -> asyncpg.Record:
    row = await connection.fetchrow(query.sql, *query.arguments(params))
    assert row is not None  # noqa: S101 - an aggregate always returns a row
    return row
