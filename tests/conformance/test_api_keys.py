"""Stores of API keys behave alike."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import asyncpg
import pytest

from dagmaster.application.browser_sessions import take_login_link
from dagmaster.cli.main import main
from dagmaster.errors import ApiKeyRejected
from dagmaster.ports.api_keys import ApiKeyRecord, BrowserSession, Caller, KeyLimits, Namespace, Scope
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


def test_a_server_of_an_older_version_does_not_find_a_narrowed_key(dsn):
    """Its query asks for the digest alone, and knows no limits."""

    async def main() -> None:
        store = PostgresApiKeyStore(DatabaseConfig(dsn=dsn))
        await store.add(key("wide"), "digest of wide")
        await store.add(replace(key("narrow"), limits=KeyLimits(queues=("gpu",))), "digest of narrow")
        connection = await asyncpg.connect(dsn)
        try:
            older = "SELECT key_id FROM dagapp.dag_api_keys WHERE digest = $1"
            assert await connection.fetchval(older, "digest of wide") == "wide"
            assert await connection.fetchval(older, "digest of narrow") is None
        finally:
            await connection.close()
        match = await store.find("digest of narrow")
        assert match is not None
        assert match[0].limits.queues == ("gpu",)
        await store.close()

    asyncio.run(main())


def test_the_link_that_logs_in_has_no_key_in_it_and_works_once(dsn, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", dsn)
    monkeypatch.setenv("DAGMASTER_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(SystemExit) as exited:
        main(["keys", "login-link"])
    assert not exited.value.code
    address, _, code = capsys.readouterr().out.strip().partition("#login=")
    assert address.endswith("/ui/")
    text = (tmp_path / "data-api-key").read_text(encoding="utf-8").strip()
    _, key_id, secret = text.split("_", 2)
    assert secret not in code
    assert code.startswith("dl_")

    async def take() -> None:
        store = PostgresApiKeyStore(DatabaseConfig(dsn=dsn))
        assert (await take_login_link(store, code)).key_id == key_id
        with pytest.raises(ApiKeyRejected, match="was used"):
            await take_login_link(store, code)
        await store.close()

    asyncio.run(take())


@pytest.mark.parametrize("kind", ["postgres", "memory"])
def test_sessions_and_links_are_found_by_digest_end_once_and_follow_their_key(kind, request):  # noqa: PLR0915 - one story
    store: ApiKeyStore = (
        MemoryApiKeyStore()
        if kind == "memory"
        else PostgresApiKeyStore(DatabaseConfig(dsn=request.getfixturevalue("dsn")))
    )
    narrowed = replace(
        key("one"),
        limits=KeyLimits(queues=("q",), handlers=("h",), workflows=("w",), is_own=True),
        namespace=Namespace.USER,
    )

    def session(
        session_id: str, key_id: str, *, is_link: bool = False, seconds: float = 60.0
    ) -> BrowserSession:
        caller = Caller(key_id=key_id, name="ci", scopes=frozenset({Scope.READ}), namespace=Namespace.OIDC)
        return BrowserSession(
            session_id=session_id,
            caller=caller,
            created_at=0.0,
            expires_at=time.time() + seconds,
            is_link=is_link,
        )

    async def main() -> None:  # noqa: PLR0915 - one story
        await store.add(narrowed, "digest one")
        found = await store.find("digest one")
        assert found is not None
        assert (found[0].limits, found[0].namespace, found[0].actor) == (
            narrowed.limits,
            Namespace.USER,
            "ci",
        )
        await store.start_session(session("s1", "one"), "d1")
        await store.start_session(session("s2", "oidc:anna"), "d2")
        await store.start_session(session("old", "one", seconds=-1.0), "d3")
        await store.start_session(session("l1", "one", is_link=True), "d4")
        await store.start_session(session("l2", "one", is_link=True, seconds=-1.0), "d5")
        match = await store.find_session("d1")
        assert match is not None
        stored, now = match
        assert stored.key is not None
        assert (stored.session_id, stored.key.key_id, stored.key.limits) == ("s1", "one", narrowed.limits)
        assert stored.is_valid(now)
        token = await store.find_session("d2")
        assert token is not None
        assert token[0].key is None
        assert (token[0].caller.actor, list(token[0].caller.scopes)) == ("oidc:ci", [Scope.READ])
        expired = await store.find_session("d3")
        assert expired is not None
        assert not expired[0].is_valid(expired[1])
        assert await store.find_session("d4") is None, "a link is no session"
        assert await store.find_session("none") is None
        link = await store.take_link("d4")
        assert link is not None
        assert link.key is not None
        assert (link.session_id, link.key.key_id) == ("l1", "one")
        for digest in ("d4", "d5", "d1", "none"):
            assert await store.take_link(digest) is None, digest
        assert {one.session_id for one in await store.sessions()} == {"s1", "s2"}
        ended = await store.end_session("s2")
        assert ended is not None
        again = await store.end_session("s2")
        assert again is not None
        assert again.ended_at == ended.ended_at is not None
        assert await store.end_session("l1") is None
        assert await store.end_session("none") is None
        assert [one.session_id for one in await store.sessions()] == ["s1"]
        await store.revoke("one")
        match = await store.find_session("d1")
        assert match is not None
        assert not match[0].is_valid(match[1]), "it ends with its key"
        if isinstance(store, PostgresApiKeyStore):
            await store.close()

    asyncio.run(main())
