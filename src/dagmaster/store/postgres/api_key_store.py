"""API keys on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.ports.api_keys import ApiKeyRecord, Scope
from dagmaster.store.postgres.audit_trail import APPEND, entry_columns
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.database_config import DatabaseConfig

_SQL = queries("api_keys")


class PostgresApiKeyStore:
    """Keys in PostgreSQL, on a dedicated connection."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._connection = Connection(config, "dagmaster keys")

    async def close(self) -> None:
        await self._connection.close()

    async def add(self, record: ApiKeyRecord, digest: str, *, audit: Sequence[AuditEntry] = ()) -> None:
        statements = [(_SQL["add"], _columns(record, digest)), (APPEND, entry_columns(audit))]
        await self._connection.execute_in_transaction(statements)

    async def rotate(
        self,
        old_id: str,
        expires_at: float,
        record: ApiKeyRecord,
        digest: str,
        *,
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        await self._connection.execute_in_transaction(
            [
                (_SQL["add"], _columns(record, digest)),
                (_SQL["expire"], {"key_id": old_id, "expires_at": expires_at}),
                (APPEND, entry_columns(audit)),
            ]
        )

    async def find(self, digest: str) -> tuple[ApiKeyRecord, float] | None:
        row = await self._connection.row(_SQL["find"], {"digest": digest})
        return None if row is None else (_record(row), row["now"])

    async def all(self) -> Sequence[ApiKeyRecord]:
        return [_record(row) for row in await self._connection.fetch(_SQL["all"], {})]

    async def revoke(self, key_id: str, *, audit: Sequence[AuditEntry] = ()) -> ApiKeyRecord | None:
        row = await self._connection.row(_SQL["revoke"], {"key_id": key_id, **entry_columns(audit)})
        return None if row is None else _record(row)

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        await self._connection.fetch(_SQL["mark_used"], {"key_ids": list(key_ids)})


def _columns(record: ApiKeyRecord, digest: str) -> dict[str, Any]:
    return {
        "key_id": record.key_id,
        "digest": digest,
        "name": record.name,
        "scopes": ",".join(sorted(record.scopes)),
        "created_by": record.created_by,
        "expires_at": record.expires_at,
    }


def _record(row: asyncpg.Record) -> ApiKeyRecord:
    return ApiKeyRecord(
        key_id=row["key_id"],
        name=row["name"],
        scopes=frozenset(map(Scope, row["scopes"].split(","))),
        created_at=row["created_at"],
        created_by=row["created_by"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        last_used_at=row["last_used_at"],
    )
