"""A connection, or a pool of readers, on behalf of one tenant: each transaction sees its rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dagmaster.errors import TenantsNotIsolated
from dagmaster.ports.tenants import ALL_TENANTS, DEFAULT_TENANT, is_tenant
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from dagmaster.store.postgres.connection import Connection, Copy
    from dagmaster.store.postgres.connection_pool import ReadOnlyPool
    from dagmaster.store.postgres.named_queries import Query

    Statements = Sequence[tuple[Query, Mapping[str, Any]]]


CAN_TAKE_ROLE = queries("isolation")["can_take_role"].sql


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

    @property
    def losses(self) -> int:
        """Return how often the connection was lost and reopened."""
        return self._connection.losses

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


def set_tenant(tenant: str) -> str:
    """Return the statement that makes a transaction see the rows of a tenant, or of all tenants."""
    if tenant != ALL_TENANTS and not is_tenant(tenant):
        raise ValueError(f"not the name of a tenant: {tenant!r}")
    return f"SET LOCAL dagapp.tenant = '{tenant}'"


def check_role(needed: str | None, taken: str | None, tenant: str) -> None:
    """Raise if a connection could not take on its role, so that a tenant would see the rows of others."""
    if needed is not None and taken is None and tenant not in (ALL_TENANTS, DEFAULT_TENANT):
        raise TenantsNotIsolated(
            f"the database user of this server cannot take on {needed}, so that {tenant} would see other"
            " tenants: run `dagmaster migrate --roles`"
        )
