"""API keys on PostgreSQL."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asyncpg.exceptions import ForeignKeyViolationError

from dagmaster.errors import StatementFailed, TenantNotFound
from dagmaster.ports.api_keys import ApiKeyRecord, BrowserSession, Caller, KeyLimits, Namespace, Scope
from dagmaster.store.postgres.audit_trail import APPEND, entry_columns
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.tenant_session import Session

_SQL = queries("api_keys")


class PostgresApiKeyStore:
    """Keys in PostgreSQL, on a dedicated connection."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._connection = Connection(config, "dagmaster keys")
        self.session: Session = self._connection

    def for_tenant(self, tenant: str) -> PostgresApiKeyStore:
        view = copy.copy(self)
        view.session = self._connection.for_tenant(tenant)
        return view

    async def close(self) -> None:
        await self._connection.close()

    async def add(self, record: ApiKeyRecord, digest: str, *, audit: Sequence[AuditEntry] = ()) -> None:
        statements = [(_SQL["add"], _columns(record, digest)), (APPEND, entry_columns(audit))]
        try:
            await self.session.execute_in_transaction(statements)
        except StatementFailed as error:
            if isinstance(error.__cause__, ForeignKeyViolationError):
                raise TenantNotFound(f"there is no tenant {record.tenant!r}") from error
            raise

    async def rotate(
        self,
        old_id: str,
        expires_at: float,
        record: ApiKeyRecord,
        digest: str,
        *,
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        await self.session.execute_in_transaction(
            [
                (_SQL["add"], _columns(record, digest)),
                (_SQL["expire"], {"key_id": old_id, "expires_at": expires_at}),
                (APPEND, entry_columns(audit)),
            ]
        )

    async def find(self, digest: str) -> tuple[ApiKeyRecord, float] | None:
        row = await self.session.row(_SQL["find"], {"digest": digest})
        return None if row is None else (key_record(row), row["now"])

    async def all(self) -> Sequence[ApiKeyRecord]:
        return [key_record(row) for row in await self.session.fetch(_SQL["all"], {})]

    async def revoke(self, key_id: str, *, audit: Sequence[AuditEntry] = ()) -> ApiKeyRecord | None:
        row = await self.session.row(_SQL["revoke"], {"key_id": key_id, **entry_columns(audit)})
        return None if row is None else key_record(row)

    async def start_session(self, session: BrowserSession, digest: str) -> None:
        """Store a session or a link."""
        caller = session.caller
        params = {
            "session_id": session.session_id, "digest": digest, "is_link": session.is_link,
            "key_id": caller.key_id, "name": caller.name, "namespace": caller.namespace.value,
            "scopes": ",".join(sorted(caller.scopes)), "expires_at": session.expires_at,
            "tenant": caller.tenant,
        }  # fmt: skip
        await self.session.fetch(_SQL["start_session"], params)

    async def find_session(self, digest: str) -> tuple[BrowserSession, float] | None:
        row = await self.session.row(_SQL["find_session"], {"digest": digest})
        return None if row is None else (_session(row), row["now"])

    async def take_link(self, digest: str) -> BrowserSession | None:
        row = await self.session.row(_SQL["take_link"], {"digest": digest})
        # The link as it was when it was taken: the statement has just ended it.
        return None if row is None else replace(_session(row), ended_at=None)

    async def sessions(self) -> Sequence[BrowserSession]:
        return [_session(row) for row in await self.session.fetch(_SQL["sessions"], {})]

    async def end_session(
        self, session_id: str, *, audit: Sequence[AuditEntry] = ()
    ) -> BrowserSession | None:
        row = await self.session.row(_SQL["end_session"], {"session_id": session_id, **entry_columns(audit)})
        return None if row is None else _session(row)

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        await self.session.fetch(_SQL["mark_used"], {"key_ids": list(key_ids)})


def _columns(record: ApiKeyRecord, digest: str) -> dict[str, Any]:
    limits = record.limits
    return {
        "key_id": record.key_id,
        # Servers of earlier versions know no limits: they look for the bare digest, and do not find the key.
        "digest": _stored_digest(record, digest),
        "name": record.name,
        "scopes": ",".join(sorted(record.scopes)),
        "created_by": record.created_by,
        "expires_at": record.expires_at,
        "queues": list(limits.queues),
        "handlers": list(limits.handlers),
        "workflows": list(limits.workflows),
        "is_own": limits.is_own,
        "is_local": record.namespace is Namespace.USER,
        "is_sandbox": record.is_sandbox,
        "tenant": record.tenant,
    }


def _stored_digest(record: ApiKeyRecord, digest: str) -> str:
    """Return a digest as it is stored. Servers that know no sandbox do not find a key of one."""
    if record.is_sandbox:
        return f"sandbox:{digest}"
    return f"narrowed:{digest}" if record.limits else digest


def _namespace(row: Mapping[str, Any] | asyncpg.Record) -> Namespace:
    if row["is_sandbox"]:
        return Namespace.SANDBOX
    return Namespace.USER if row["is_local"] else Namespace.KEY


def key_record(row: Mapping[str, Any] | asyncpg.Record) -> ApiKeyRecord:
    return ApiKeyRecord(
        key_id=row["key_id"],
        name=row["name"],
        scopes=frozenset(map(Scope, row["scopes"].split(","))),
        namespace=_namespace(row),
        limits=KeyLimits(
            queues=tuple(row["queues"]),
            handlers=tuple(row["handlers"]),
            workflows=tuple(row["workflows"]),
            is_own=row["is_own"],
        ),
        tenant=row["tenant"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        last_used_at=row["last_used_at"],
    )


def _session(row: asyncpg.Record) -> BrowserSession:
    return BrowserSession(
        session_id=row["session_id"],
        caller=Caller(
            key_id=row["key_id"],
            name=row["name"],
            scopes=frozenset(map(Scope, row["scopes"].split(","))),
            namespace=Namespace(row["namespace"]),
            tenant=row["tenant"],
        ),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        is_link=row["is_link"],
        key=None if row["key"] is None else key_record(json.loads(row["key"])),
        ended_at=row["ended_at"],
    )
