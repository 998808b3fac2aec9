"""A small pool of read-only connections, opened when they are needed.

Each query is a separate transaction.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.tenant_session import TenantReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import asyncpg

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.named_queries import Query

MAX_CONNECTIONS: Final = 4
STATEMENT_TIMEOUT_SECONDS: Final = 30.0


class ReadOnlyPool:
    """Runs queries in parallel, up to `max_connections`; further ones wait for a free connection."""

    def __init__(
        self,
        config: DatabaseConfig,
        name: str,
        *,
        statement_timeout_seconds: float,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._config = config
        self._name = name
        self._statement_timeout_seconds = statement_timeout_seconds
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[Connection] = []
        self.connections: list[Connection] = []

    async def fetch(
        self, query: Query, params: Mapping[str, Any], *, tenant: str | None = None
    ) -> list[asyncpg.Record]:
        async with self._connection() as connection:
            return await connection.fetch(query, params, tenant=tenant)

    async def row(
        self, query: Query, params: Mapping[str, Any], *, tenant: str | None = None
    ) -> asyncpg.Record | None:
        rows = await self.fetch(query, params, tenant=tenant)
        return rows[0] if rows else None

    def for_tenant(self, tenant: str) -> TenantReader:
        """Return the pool on behalf of a tenant, or of all tenants."""
        return TenantReader(self, tenant)

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        async with self._slots:
            # The last one used comes first, so that a single reader needs a single connection.
            connection = self._idle.pop() if self._idle else self._new_connection()
            try:
                yield connection
            finally:
                self._idle.append(connection)

    def _new_connection(self) -> Connection:
        connection = Connection(
            self._config, self._name, reads=True, statement_timeout_seconds=self._statement_timeout_seconds
        )
        self.connections.append(connection)
        return connection
