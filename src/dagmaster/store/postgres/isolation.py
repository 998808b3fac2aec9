"""Whether the database keeps tenants apart: which role serves requests, and what it would see of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.ports.tenants import ALL_TENANTS, Isolation
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.tenant_policies import POLICIES

if TYPE_CHECKING:
    from dagmaster.ports.database_config import DatabaseConfig

_SQL = queries("isolation")


async def read_isolation(config: DatabaseConfig) -> Isolation:
    """Return what the role of connections with a configuration sees."""
    connection = Connection(config, "dagmaster roles")
    try:
        return await isolation_of(connection)
    finally:
        await connection.close()


async def isolation_of(connection: Connection) -> Isolation:
    row = await connection.row(_SQL["isolation"], {"tables": sorted(POLICIES)})
    tenants = await connection.row(_SQL["tenants"], {}, tenant=ALL_TENANTS)
    if row is None or tenants is None:
        return Isolation(open_tables=tuple(sorted(POLICIES)))
    fields = dict(row)
    fields["open_tables"] = tuple(dict.fromkeys(fields["open_tables"]))
    return Isolation(tenants=tenants["tenants"], **fields)
