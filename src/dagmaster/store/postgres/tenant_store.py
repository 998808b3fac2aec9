"""Tenants on PostgreSQL."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from dagmaster.records.tenants import TenantRecord
from dagmaster.store.postgres.audit_trail import entry_columns
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.tenant_session import Session

_SQL = queries("tenants")


class PostgresTenantStore:
    """Tenants, on a dedicated connection."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._connection = Connection(config, "dagmaster tenants")
        self.session: Session = self._connection

    def for_tenant(self, tenant: str) -> PostgresTenantStore:
        """Return the tenants that a tenant sees: itself, or all of them."""
        view = copy.copy(self)
        view.session = self._connection.for_tenant(tenant)
        return view

    async def close(self) -> None:
        await self._connection.close()

    async def all(self) -> Sequence[TenantRecord]:
        return [_record(row) for row in await self.session.fetch(_SQL["all"], {})]

    async def missing(
        self, platforms: Sequence[str], workflows: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        names = {"platforms": list(platforms), "workflows": list(workflows)}
        (row,) = await self.session.fetch(_SQL["missing"], names)
        return row["platforms"], row["workflows"]

    async def create(
        self, name: str, changes: Mapping[str, Any], *, created_by: str, audit: Sequence[AuditEntry] = ()
    ) -> TenantRecord | None:
        params = {"name": name, "changes": json.dumps(dict(changes)), "created_by": created_by}
        row = await self.session.row(_SQL["create"], params | entry_columns(audit))
        return None if row is None else _record(row)

    async def change(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        is_disabled: bool | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> TenantRecord | None:
        params = {"name": name, "changes": json.dumps(dict(changes)), "is_disabled": is_disabled}
        row = await self.session.row(_SQL["change"], params | entry_columns(audit))
        return None if row is None else _record(row)


def _record(row: asyncpg.Record) -> TenantRecord:
    fields = dict(row)
    fields["platforms"], fields["workflows"] = tuple(row["platforms"]), tuple(row["workflows"])
    return TenantRecord(**fields)
