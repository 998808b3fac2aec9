"""The audit trail on PostgreSQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dagmaster.ports.audit_trail import AuditEntry, AuditFilter, AuditRecord
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.read_store import Position

_SQL = queries("audit_trail")
APPEND = _SQL["append"]
"""The statement that stores entries, for a transaction with a change."""


def entry_columns(entries: Sequence[AuditEntry]) -> dict[str, list[str]]:
    """Return entries as the parameters of a statement."""
    return {
        "actors": [entry.actor for entry in entries],
        "actions": [entry.action for entry in entries],
        "object_kinds": [entry.object_kind for entry in entries],
        "object_ids": [entry.object_id for entry in entries],
        "request_ids": [entry.request_id or "" for entry in entries],
        "details": [json.dumps(dict(entry.details)) for entry in entries],
    }


class PostgresAuditTrail:
    """Entries in PostgreSQL, on a connection of their own."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._connection = Connection(config, "dagmaster audit trail")

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Store entries."""
        await self._connection.fetch(APPEND, entry_columns(entries))

    async def entries(
        self, audit_filter: AuditFilter, *, after: Position | None = None, limit: int = 100
    ) -> Sequence[AuditRecord]:
        """Return entries that match, newest first."""
        params = {
            "actor": audit_filter.actor,
            "action": audit_filter.action,
            "object_kind": audit_filter.object_kind,
            "object_id": audit_filter.object_id,
            "before": None if after is None else int(after[0]),
            "limit": limit,
        }
        return [_record(row) for row in await self._connection.fetch(_SQL["entries"], params)]


def _record(row: asyncpg.Record) -> AuditRecord:
    entry = AuditEntry(
        actor=row["actor"],
        action=row["action"],
        object_kind=row["object_kind"],
        object_id=row["object_id"],
        request_id=row["request_id"],
        details=json.loads(row["details"]),
    )
    return AuditRecord(entry_id=row["id"], at=row["at"], entry=entry)
