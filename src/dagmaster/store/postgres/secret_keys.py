"""The registry of keys for secret inputs on PostgreSQL, and the rows that are sealed with them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from asyncpg.exceptions import InsufficientPrivilegeError

from dagmaster.errors import StatementFailed
from dagmaster.ports.secret_vault import RegisteredKey, StoredSecrets
from dagmaster.ports.signing_secrets import NAME, owner_of
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.worker_role import WorkerRole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.named_queries import Query

_SQL = queries("secret_keys")


class PostgresSecretKeys:
    """Keys by their ids. A connection is open only while it is asked: most processes never ask twice."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config

    async def keys(self) -> Sequence[RegisteredKey]:
        async with contextlib.aclosing(PostgresSecretKeyAdmin(self._config)) as admin:
            return await admin.keys()

    async def allows_clear(self) -> bool:
        async with contextlib.aclosing(PostgresSecretKeyAdmin(self._config)) as admin:
            return await admin.allows_clear()

    async def register_first(self, key_id: str, verifier: str) -> None:
        async with contextlib.aclosing(PostgresSecretKeyAdmin(self._config)) as admin:
            await admin.register_first(key_id, verifier)


class PostgresSecretKeyAdmin:
    """Changes of the current key, and of the rows, on one connection."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._connection = Connection(config, "dagmaster secrets key")
        self._names: dict[str, frozenset[str]] = {}

    async def aclose(self) -> None:
        await self._connection.close()

    async def keys(self) -> Sequence[RegisteredKey]:
        try:
            rows = await self._connection.fetch(_SQL["registered_keys"], {})
        except StatementFailed as error:
            if not isinstance(error.__cause__, InsufficientPrivilegeError):
                raise
            # A worker with the role dagmaster_worker: it may ask a function.
            self._connection.role = WorkerRole()
            rows = await self._connection.fetch(_SQL["registered_keys"], {})
        return [RegisteredKey(row["key_id"], row["verifier"], row["is_current"]) for row in rows]

    async def allows_clear(self) -> bool:
        (row,) = await self._connection.fetch(_SQL["allows_clear"], {})
        return bool(row["allows_clear"])

    async def register_first(self, key_id: str, verifier: str) -> None:
        await self._connection.fetch(_SQL["register_first"], {"key_id": key_id, "verifier": verifier})

    async def make_current(self, key_id: str, verifier: str) -> None:
        await self._connection.execute_in_transaction(
            [
                (_SQL["retire"], {"key_id": key_id}),
                (_SQL["make_current"], {"key_id": key_id, "verifier": verifier}),
            ]
        )

    async def forget(self, key_id: str) -> None:
        await self._connection.fetch(_SQL["forget"], {"key_id": key_id})

    async def jobs(self, *, after: str | None, limit: int) -> Sequence[StoredSecrets]:
        if after is None:
            # Once for all batches: what is submitted meanwhile is sealed with the current key.
            rows = await self._connection.fetch(_SQL["graphs"], {})
            self._names = {row["content_hash"]: _names(row) for row in rows}
        params = {"after": int(after or 0), "limit": limit, "hashes": list(self._names)}
        rows = await self._connection.fetch(_SQL["jobs"], params)
        return [_row(row, self._names[row["content_hash"]]) for row in rows]

    async def tasks(self, *, after: str | None, limit: int) -> Sequence[StoredSecrets]:
        params = {"after": int(after or 0), "limit": limit}
        return [_row(row, _names(row)) for row in await self._connection.fetch(_SQL["tasks"], params)]

    async def signing_secrets(self, *, after: str | None, limit: int) -> Sequence[StoredSecrets]:
        rows = await self._connection.fetch(_SQL["signing_secrets"], {"after": after or "", "limit": limit})
        owners = [owner_of(row["id"]) for row in rows]
        return [
            StoredSecrets(row["id"], owner.job_id, owner.workflow_id, frozenset({NAME}), row["text"])
            for row, owner in zip(rows, owners, strict=True)
        ]

    async def rewrite_signing_secret(self, row: StoredSecrets, text: str) -> None:
        params = {"id": row.id, "text": text, "before": row.text}
        await self._connection.fetch(_SQL["rewrite_signing_secret"], params)

    async def rewrite_job(self, row: StoredSecrets, text: str) -> None:
        await self._rewrite(_SQL["rewrite_job"], row, text)

    async def rewrite_task(self, row: StoredSecrets, text: str) -> None:
        await self._rewrite(_SQL["rewrite_task"], row, text)

    async def _rewrite(self, query: Query, row: StoredSecrets, text: str) -> None:
        # One row a statement: a turn never waits for more than one of them, and none of them for two turns.
        await self._connection.fetch(query, {"id": int(row.id), "text": text, "before": row.text})


def _names(row: asyncpg.Record) -> frozenset[str]:
    return frozenset(filter(None, (row["names"] or "").split(",")))


def _row(row: asyncpg.Record, names: frozenset[str]) -> StoredSecrets:
    return StoredSecrets(row["id"], row["job_id"], row["workflow_id"], names, row["text"])
