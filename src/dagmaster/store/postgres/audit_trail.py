"""The audit trail on PostgreSQL."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.audit_trail import AuditEntry, AuditFilter, AuditRecord
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.connection_pool import STATEMENT_TIMEOUT_SECONDS, ReadOnlyPool
from dagmaster.store.postgres.job_list import MAX_BIGINT, is_storable
from dagmaster.store.postgres.named_queries import Query, compile_query, parts, queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.records.page import Position
    from dagmaster.store.postgres.tenant_session import Reader, Session

_FILTERS: Final = ("actor", "action", "object_kind", "object_id")
APPEND = queries("audit_trail")["append"]
"""The statement that stores entries, for a transaction with a change."""


def entry_columns(entries: Sequence[AuditEntry]) -> dict[str, list[str]]:
    return {
        "audit_actor": [entry.actor for entry in entries],
        "audit_action": [entry.action for entry in entries],
        "audit_object_kind": [entry.object_kind for entry in entries],
        "audit_object_id": [entry.object_id for entry in entries],
        "audit_request_id": [entry.request_id or "" for entry in entries],
        "audit_details": [json.dumps(dict(entry.details)) for entry in entries],
    }


class PostgresAuditTrail:
    """Entries in PostgreSQL.

    They are stored on one connection and read on another, which has a time limit.
    """

    def __init__(
        self, config: DatabaseConfig, *, statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS
    ) -> None:
        self._connection = Connection(config, "dagmaster audit trail")
        self.session: Session = self._connection
        self.connections = ReadOnlyPool(
            config,
            "dagmaster audit trail, reader",
            statement_timeout_seconds=statement_timeout_seconds,
            max_connections=1,
        )
        self.pool: Reader = self.connections

    def for_tenant(self, tenant: str) -> PostgresAuditTrail:
        view = copy.copy(self)
        view.session, view.pool = self._connection.for_tenant(tenant), self.connections.for_tenant(tenant)
        return view

    async def close(self) -> None:
        await self._connection.close()
        await self.connections.close()

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        await self.session.fetch(APPEND, entry_columns(entries))

    async def entries(
        self, audit_filter: AuditFilter, *, after: Position | None = None, limit: int = 100
    ) -> Sequence[AuditRecord]:
        params: dict[str, Any] = {
            name: value for name in _FILTERS if (value := getattr(audit_filter, name)) is not None
        }
        if not all(map(is_storable, params.values())):
            return []
        if after is not None:
            params["before"] = min(int(after[0]), MAX_BIGINT)
        rows = await self.pool.fetch(entries_query(tuple(params)), {**params, "limit": limit})
        return [_record(row) for row in rows]


@cache
def entries_query(conditions: tuple[str, ...]) -> Query:
    texts = parts("audit_list")
    met = " AND ".join(texts[name] for name in conditions) or "true"
    return compile_query("audit_list.page", texts["page"].replace("{conditions}", met))


def _record(row: asyncpg.Record) -> AuditRecord:
    entry = AuditEntry(
        actor=row["actor"],
        action=row["action"],
        object_kind=row["object_kind"],
        object_id=row["object_id"],
        request_id=row["request_id"],
        details=json.loads(row["details"]),
    )
    return AuditRecord.of_entry(entry, entry_id=row["id"], at=row["at"])
