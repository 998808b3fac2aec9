"""Sessions of browsers: opaque, stored, revocable, valid on every server; and links that start one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dagmaster.application import browser_sessions
from dagmaster.application.api_keys import digest_of, find_caller, revoke_key
from dagmaster.application.browser_sessions import create_login_link, start_session
from dagmaster.errors import ApiKeyRejected
from dagmaster.http import auth
from dagmaster.http.auth import KeyChecker
from dagmaster.ports.api_keys import Namespace, Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from tests.unit.ui.page_client import opened_pages

if TYPE_CHECKING:
    from tests.unit.ui.page_client import Pages

ORIGIN = ChangeOrigin(actor="test")


async def log_in(pages: Pages, text: str) -> str:
    answer = await pages.post("/ui/login", {"key": text})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["set-cookie"].split(";")[0].partition("=")[2])


def test_a_link_logs_in_once_and_the_key_is_nowhere():
    async def main() -> None:
        async with opened_pages() as pages:
            caller = await find_caller(pages.api.keys, pages.api_key)
            code = await create_login_link(pages.api.keys, caller)
            pages.key = await log_in(pages, code)
            assert pages.key.startswith("ds_")
            assert pages.key != code
            assert (await pages.get("/ui/keys")).status_code == 200
            again = await pages.post("/ui/login", {"key": code})
            assert (again.status_code, "was used, or has expired" in again.text) == (401, True)
            answer = await pages.api.http.get("/api/v1/jobs", headers={"Authorization": f"Bearer {code}"})
            assert answer.status_code == 401, "a link is not a key"

    asyncio.run(main())


def test_a_link_expires_and_ends_with_its_key(monkeypatch):
    async def main() -> None:
        async with opened_pages() as pages:
            caller = await find_caller(pages.api.keys, pages.api_key)
            monkeypatch.setattr(browser_sessions, "LINK_SECONDS", -1)
            expired = await create_login_link(pages.api.keys, caller)
            monkeypatch.setattr(browser_sessions, "LINK_SECONDS", 60)
            revoked = await create_login_link(pages.api.keys, caller)
            await revoke_key(pages.api.keys, caller.key_id, origin=ORIGIN)
            for code in (expired, revoked):
                assert (await pages.post("/ui/login", {"key": code})).status_code == 401

    asyncio.run(main())


def test_a_session_is_valid_on_every_server_until_it_is_revoked_or_its_browser_logs_out(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)

    async def main() -> None:
        async with opened_pages() as pages:
            keys, key = pages.api.keys, pages.api_key
            first, second = await log_in(pages, key), await log_in(pages, key)
            another = KeyChecker(keys)
            for session in (first, second):
                assert (await another.session_caller(session)).name == "ada"
            pages.key = first
            listed = (await pages.get("/ui/keys")).text
            records = await keys.sessions()
            assert all(record.session_id in listed for record in records)
            assert first not in listed
            match = await keys.find_session(digest_of(second))
            assert match is not None
            answer = await pages.post(f"/ui/keys/sessions/{match[0].session_id}/revoke")
            assert answer.status_code == 303
            with pytest.raises(ApiKeyRejected):
                await another.session_caller(second)
            pages.key = first
            await pages.post("/ui/logout")
            with pytest.raises(ApiKeyRejected):
                await another.session_caller(first)

    asyncio.run(main())


def test_a_revoked_key_ends_its_sessions_and_a_session_is_no_key(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)

    async def main() -> None:
        async with opened_pages() as pages:
            session, checker = pages.key, KeyChecker(pages.api.keys)
            headers = {"Authorization": f"Bearer {session}"}
            assert (await pages.api.http.get("/api/v1/jobs", headers=headers)).status_code == 401
            assert (await checker.session_caller(session)).scopes == {Scope.ADMIN}
            await revoke_key(pages.api.keys, pages.api_key, origin=ORIGIN)
            with pytest.raises(ApiKeyRejected):
                await checker.session_caller(session)

    asyncio.run(main())


def test_a_session_of_the_key_of_the_settings_ends_when_that_key_changes():
    async def main() -> None:
        keys = MemoryApiKeyStore()
        first = KeyChecker(keys, admin_key="a" * 40)
        session = await start_session(keys, await first.caller("a" * 40))
        assert (await first.session_caller(session)).actor == "settings:admin"
        for other in (KeyChecker(keys, admin_key="b" * 40), KeyChecker(keys)):
            with pytest.raises(ApiKeyRejected):
                await other.session_caller(session)

    asyncio.run(main())


def test_a_session_of_a_token_ends_when_the_issuer_is_not_accepted_any_more():
    async def main() -> None:
        keys = MemoryApiKeyStore()
        caller = replace(
            await KeyChecker(keys, admin_key="a" * 40).caller("a" * 40),
            key_id="oidc:anna",
            namespace=Namespace.OIDC,
        )
        session = await start_session(keys, caller)
        with pytest.raises(ApiKeyRejected):
            await KeyChecker(keys).session_caller(session)

    asyncio.run(main())


def test_sessions_are_listed_and_revoked_over_the_api():
    async def main() -> None:
        async with opened_pages() as pages:
            api = pages.api
            (listed,) = (await api.get("/api/v1/keys/sessions")).json()
            assert (listed["caller"], listed["ended_at"]) == ("key:ada", None)
            ended = await api.post(f"/api/v1/keys/sessions/{listed['session_id']}/revoke")
            assert ended.json()["ended_at"] is not None
            assert (await api.get("/api/v1/keys/sessions")).json() == []
            missing = await api.post("/api/v1/keys/sessions/none/revoke")
            assert (missing.status_code, missing.json()["code"]) == (404, "browser_session_not_found")
            (entry,) = (await api.get("/api/v1/audit", action="session.revoke")).json()["items"]
            assert (entry["object_id"], entry["details"]["name"]) == (listed["session_id"], "ada")

    asyncio.run(main())
