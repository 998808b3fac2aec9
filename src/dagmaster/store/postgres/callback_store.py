"""Callbacks, endpoints and signing secrets on PostgreSQL, as operators see and change them."""

from __future__ import annotations

import copy
import uuid
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.callbacks import ID_PREFIX, MAX_LEFT, MAX_SECRETS, PublicKey, ReplayBatch, ResumeBatch
from dagmaster.records.callbacks import (
    CallbackRecord,
    CallbackState,
    DeliveryStatus,
    EndpointRecord,
    SecretKind,
    SigningSecretRecord,
)
from dagmaster.store.postgres.audit_trail import entry_columns
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.connection_pool import STATEMENT_TIMEOUT_SECONDS, ReadOnlyPool
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.callbacks import CallbackFilter, NewSecret
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.records.page import Position
    from dagmaster.store.postgres.named_queries import Query

_SQL: Final = queries("callbacks")
_FILTERS: Final = ("endpoint", "tenant", "subject", "since", "until")


class PostgresCallbackStore:
    """Changes on one connection, reads on another, which has a time limit. A tenant sees its rows alone."""

    def __init__(
        self, config: DatabaseConfig, *, statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS
    ) -> None:
        self._connection = Connection(config, "dagmaster callbacks")
        self._pool = ReadOnlyPool(
            config,
            "dagmaster callbacks, reader",
            statement_timeout_seconds=statement_timeout_seconds,
            max_connections=1,
        )
        self._tenant: str | None = None

    def for_tenant(self, tenant: str) -> PostgresCallbackStore:
        same = copy.copy(self)
        same._tenant = tenant  # noqa: SLF001 - its own
        return same

    async def close(self) -> None:
        await self._connection.close()
        await self._pool.close()

    async def callbacks(
        self, callback_filter: CallbackFilter, *, after: Position | None, limit: int
    ) -> Sequence[tuple[int, CallbackRecord]]:
        params = _filter_columns(callback_filter)
        before = None if after is None else int(after[0])
        rows = await self._read(_SQL["list"], {**params, "before": before, "limit": limit})
        return [(row["seq"], _record(row)) for row in rows]

    async def find(self, callback_id: str) -> CallbackRecord | None:
        key = _uuid(callback_id)
        rows = [] if key is None else await self._read(_SQL["find"], {"id": key})
        return _record(rows[0]) if rows else None

    async def endpoints(
        self, *, is_paused: bool | None = None, endpoint: str | None = None, tenant: str | None = None
    ) -> Sequence[EndpointRecord]:
        params = {"is_paused": is_paused, "endpoint": endpoint, "tenant": tenant}
        rows = await self._read(_SQL["endpoints"], params)
        return [EndpointRecord(**dict(row)) for row in rows]

    async def replay(
        self,
        callback_filter: CallbackFilter,
        callback_id: str | None = None,
        *,
        after: Position | None = None,
        limit: int = 1,
        audit: Sequence[AuditEntry],
    ) -> ReplayBatch:
        key = None if callback_id is None else _uuid(callback_id)
        if callback_id is not None and key is None:
            return ReplayBatch(0, None, 0)
        params = {
            **_filter_columns(callback_filter),
            "id": key,
            "after": None if after is None else int(after[0]),
            "limit": limit,
            "max_left": MAX_LEFT,
        }
        (row,) = await self._change(_SQL["replay"], params, audit)
        return ReplayBatch(row["changed"], row["position"], row["left"])

    async def pause(self, endpoint: str, tenant: str | None, by: str, *, audit: Sequence[AuditEntry]) -> int:
        params = {"endpoint": endpoint, "tenant": tenant, "by": by}
        (row,) = await self._change(_SQL["pause"], params, audit)
        return int(row["changed"])

    async def resume(
        self, endpoint: str, tenant: str | None, *, limit: int, audit: Sequence[AuditEntry]
    ) -> ResumeBatch | None:
        params = {"endpoint": endpoint, "tenant": tenant, "limit": limit, "max_left": MAX_LEFT}
        rows = await self._change(_SQL["resume"], params, audit)
        return ResumeBatch(rows[0]["changed"], rows[0]["recovered"], rows[0]["left"]) if rows else None

    async def secrets(self, tenant: str | None = None) -> Sequence[SigningSecretRecord]:
        return [_secret(row) for row in await self._read(_SQL["secrets"], {"tenant": tenant})]

    async def add_secret(
        self, secret: NewSecret, *, overlap_seconds: float, audit: Sequence[AuditEntry]
    ) -> SigningSecretRecord | None:
        limits = {"overlap_seconds": overlap_seconds, "max_secrets": MAX_SECRETS}
        rows = await self._connection.execute_in_transaction(
            [
                (_SQL["lock_secrets"], {"tenant": secret.tenant}),
                (_SQL["add_secret"], {**_secret_columns(secret), **limits, **entry_columns(audit)}),
            ],
            tenant=self._tenant,
        )
        return _secret(rows[0]) if rows else None

    async def ensure_key_pair(self, secret: NewSecret) -> None:
        await self._connection.execute_in_transaction(
            [
                (_SQL["lock_secrets"], {"tenant": secret.tenant}),
                (_SQL["ensure_key_pair"], _secret_columns(secret)),
            ],
            tenant=self._tenant,
        )

    async def revoke_secret(
        self, secret_id: str, *, audit: Sequence[AuditEntry]
    ) -> SigningSecretRecord | None:
        rows = await self._fetch(_SQL["revoke_secret"], {"secret_id": secret_id, **entry_columns(audit)})
        return _secret(rows[0]) if rows else None

    async def public_keys(self, key_set: str | None) -> Sequence[PublicKey]:
        rows = await self._read(_SQL["public_keys"], {"key_set": key_set})
        return [PublicKey(row["secret_id"], row["public_key"], row["expires_at"]) for row in rows]

    async def _read(self, query: Query, params: dict[str, Any]) -> list[asyncpg.Record]:
        return await self._pool.fetch(query, params, tenant=self._tenant)

    async def _fetch(self, query: Query, params: dict[str, Any]) -> list[asyncpg.Record]:
        return await self._connection.fetch(query, params, tenant=self._tenant)

    async def _change(
        self, query: Query, params: dict[str, Any], audit: Sequence[AuditEntry]
    ) -> list[asyncpg.Record]:
        return await self._fetch(query, {**params, **entry_columns(audit)})


def _filter_columns(callback_filter: CallbackFilter) -> dict[str, Any]:
    status = callback_filter.status
    return {
        **{name: getattr(callback_filter, name) for name in _FILTERS},
        "status": None if status is None else status.value,
    }


def _uuid(text: str) -> str | None:
    try:
        return str(uuid.UUID(text.removeprefix(ID_PREFIX)))
    except ValueError:
        return None


def _record(row: asyncpg.Record) -> CallbackRecord:
    status = DeliveryStatus.WAITING
    if row["delivered_at"] is not None:
        status = DeliveryStatus.DELIVERED
    elif row["dead_at"] is not None:
        status = DeliveryStatus.DEAD
    columns = dict(row)
    columns |= {
        "callback_id": f"{ID_PREFIX}{columns.pop('id').replace('-', '')}",
        "state": CallbackState(row["state"]),
        "url": row["url"].partition("?")[0],
        "next_attempt_at": row["next_attempt_at"] if status is DeliveryStatus.WAITING else None,
    }
    del columns["seq"]
    return CallbackRecord(**columns, status=status)


def _secret_columns(secret: NewSecret) -> dict[str, Any]:
    return {
        "secret_id": secret.secret_id,
        "tenant": secret.tenant,
        "kind": secret.kind.value,
        "sealed": secret.sealed,
        "public_key": secret.public_key,
        "created_by": secret.created_by,
    }


def _secret(row: asyncpg.Record) -> SigningSecretRecord:
    return SigningSecretRecord(**{**dict(row), "kind": SecretKind(row["kind"])})
