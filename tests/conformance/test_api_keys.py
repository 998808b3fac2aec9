"""Stores of API keys behave alike."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from dagmaster.ports.api_keys import ApiKeyRecord, Scope
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore

if TYPE_CHECKING:
    from dagmaster.ports.api_keys import ApiKeyStore


def key(key_id: str, *, expires_at: float | None = None) -> ApiKeyRecord:
    scopes = frozenset({Scope.READ, Scope.SUBMIT})
    return ApiKeyRecord(
        key_id=key_id, name="ci", scopes=scopes, created_at=0.0, created_by="ada", expires_at=expires_at
    )


@pytest.mark.parametrize("kind", ["postgres", "memory"])
def test_keys_are_stored_found_by_digest_revoked_once_and_marked_as_used(kind, request):
    store: ApiKeyStore = (
        MemoryApiKeyStore()
        if kind == "memory"
        else PostgresApiKeyStore(DatabaseConfig(dsn=request.getfixturevalue("dsn")))
    )

    async def main() -> None:
        await store.add(key("one"), "digest one")
        await store.add(key("two", expires_at=1.0), "digest two")
        match = await store.find("digest one")
        assert match is not None
        record, now = match
        assert (record.name, record.scopes, record.created_by) == (
            "ci",
            frozenset({Scope.READ, Scope.SUBMIT}),
            "ada",
        )
        assert abs(record.created_at - now) < 60
        assert record.is_valid(now)
        expired = await store.find("digest two")
        assert expired is not None
        assert not expired[0].is_valid(expired[1])
        assert await store.find("digest") is None
        assert [record.key_id for record in await store.all()] == ["two", "one"]
        await store.rotate("one", now + 60, key("three"), "digest three")
        await store.rotate("one", now + 120, key("four"), "digest four")
        expiring = await store.find("digest one")
        assert expiring is not None
        assert expiring[0].expires_at == pytest.approx(now + 60)
        await store.mark_used(["one", "unknown"])
        revoked = await store.revoke("one")
        assert revoked is not None
        assert revoked.last_used_at is not None
        assert not revoked.is_valid(now)
        again = await store.revoke("one")
        assert again is not None
        assert again.revoked_at == revoked.revoked_at
        assert await store.revoke("none") is None
        if isinstance(store, PostgresApiKeyStore):
            await store.close()

    asyncio.run(main())
