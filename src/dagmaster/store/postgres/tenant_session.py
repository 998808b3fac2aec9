"""A connection, or a pool of readers, on behalf of one tenant: each transaction sees its rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from dagmaster.store.postgres.connection import Connection, Copy
    from dagmaster.store.postgres.connection_pool import ReadOnlyPool
    from dagmaster.store.postgres.named_queries import Query

    Statements = Sequence[tuple[Query, Mapping[str, Any]]]


class Reader(Protocol):
    """Runs queries: a pool, or one of a tenant."""

    async def fetch(self, query: Query, params: Mapping[str, Any]) -> list[asyncpg.Record]:
        """Run a query and return its rows."""

    async def row(self, query: Query, params: Mapping[str, Any]) -> asyncpg.Record | None:
        """Run a query and return its first row, if it has one."""


class TenantReader:
    """Queries of a pool that see the rows of one tenant."""

    def __init__(self, pool: ReadOnlyPool, tenant: str) -> None:
        self.tenant = tenant
        self._pool = pool

    async def fetch(self, query: Query, params: Mapping[str, Any]) -> list[asyncpg.Record]:
        return await self._pool.fetch(query, params, tenant=self.tenant)

    async def row(self, query: Query, params: Mapping[str, Any]) -> asyncpg.Record | None:
        return await self._pool.row(query, params, tenant=self.tenant)


class Session(Reader, Protocol):
    """Runs statements: a connection, or one on behalf of a tenant."""

    async def execute_in_transaction(
        self, statements: Statements, *, guards: int = 0
    ) -> list[asyncpg.Record]:
        """Run statements in one transaction; return the rows of the last. Raise `GuardFailed`."""

    async def copy_in_transaction(
        self,
        before: Statements,
        copies: Sequence[Copy],
        after: Statements = (),
        *,
        is_flushed: bool = False,
    ) -> list[asyncpg.Record]:
        """Run statements, copy rows, run further statements, all in one transaction."""


class TenantSession:
    """Statements of a connection that see, and write, the rows of one tenant."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self.tenant = tenant
        self._connection = connection

    async def fetch(self, query: Query, params: Mapping[str, Any]) -> list[asyncpg.Record]:
        return await self._connection.fetch(query, params, tenant=self.tenant)

    async def row(self, query: Query, params: Mapping[str, Any]) -> asyncpg.Record | None:
        return await self._connection.row(query, params, tenant=self.tenant)

    async def execute_in_transaction(
        self, statements: Statements, *, guards: int = 0
    ) -> list[asyncpg.Record]:
        return await self._connection.execute_in_transaction(statements, guards=guards, tenant=self.tenant)

    async def copy_in_transaction(
        self,
        before: Statements,
        copies: Sequence[Copy],
        after: Statements = (),
        *,
        is_flushed: bool = False,
    ) -> list[asyncpg.Record]:
        return await self._connection.copy_in_transaction(
            before, copies, after, is_flushed=is_flushed, tenant=self.tenant
        )
