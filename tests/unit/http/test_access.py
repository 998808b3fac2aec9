"""Who may do what: every route with every scope, with none, and with bad keys."""

from __future__ import annotations

import asyncio

import pytest
from starlette.routing import WebSocketRoute

from dagmaster.application.access import OWN_READS
from dagmaster.application.api_keys import allows, create_key, revoke_key
from dagmaster.errors import DatabaseUnavailable
from dagmaster.http import auth, job_socket
from dagmaster.http.app import create_app, route_reaches, route_scopes
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from tests.unit.application.memory_application import memory_application
from tests.unit.http.api_client import memory_services, opened_api

OPEN = {
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/.well-known/webhook-keys"),
    ("GET", "/.well-known/webhook-keys/{key_set}"),
}


def url_of(path: str) -> str:
    return (
        path.replace("{job_id}", "1")
        .replace("{node_id}", "a")
        .replace("{answer}", "approve")
        # A stream of all jobs has no end: with this limit it does not begin.
        .replace("v1/stream", "v1/stream?limit=0")
        .replace("{", "")
        .replace("}", "")
    )


def test_every_route_names_its_scope_and_no_other_route_exists():
    app = create_app(memory_services(memory_application()))
    declared = set(route_scopes())
    served = {
        (method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods
    }
    served |= {("WS", route.path) for route in job_socket.router.routes if isinstance(route, WebSocketRoute)}
    assert served == declared
    assert {route for route, scope in route_scopes().items() if scope is None} == OPEN


@pytest.mark.slow
def test_every_route_rejects_callers_without_its_scope():
    async def main() -> None:
        async with opened_api() as api:
            for granted in (None, *Scope):
                if granted is None:
                    api.headers = {}
                else:
                    await api.use_key(granted)
                for (method, path), needed in route_scopes().items():
                    if method == "WS":
                        continue
                    answer = await api.http.request(method, url_of(path), headers=api.headers)
                    if needed is None:
                        expected = answer.status_code not in (401, 403)
                    elif granted is None:
                        expected = answer.status_code == 401 and "www-authenticate" in answer.headers
                    elif allows({granted}, needed) or (
                        # Of its own jobs, a key with submit may read: test_reach.py.
                        (granted, needed) == (Scope.SUBMIT, Scope.READ)
                        and route_reaches()[method, path] in OWN_READS
                    ):
                        expected = answer.status_code not in (401, 403, 500)
                    else:
                        expected = (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
                    assert expected, (granted, method, path, answer.status_code, answer.text)

    asyncio.run(main())


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Basic dm_000000000000_" + "a" * 43},
        {"Authorization": "Bearer dm_000000000000_" + "a" * 43},
        {"X-API-Key": "dm_000000000000_" + "b" * 43},
    ],
)
def test_a_request_without_a_known_key_is_rejected(header):
    async def main() -> None:
        async with opened_api() as api:
            answer = await api.http.get("/api/v1/jobs", headers=header)
            assert (answer.status_code, answer.json()["code"]) == (401, "api_key_rejected")

    asyncio.run(main())


def test_an_expired_or_revoked_key_is_rejected(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)

    async def main() -> None:
        async with opened_api() as api:
            expired = await create_key(
                api.keys, "old", [Scope.READ], origin=ChangeOrigin(actor="test"), now=0.0, days=1
            )
            key = await api.use_key(Scope.READ)
            assert (await api.get("/api/v1/jobs")).status_code == 200
            await revoke_key(api.keys, key, origin=ChangeOrigin(actor="test"))
            assert (await api.get("/api/v1/jobs")).status_code == 401
            api.headers = {"Authorization": f"Bearer {expired.key}"}
            assert (await api.get("/api/v1/jobs")).status_code == 401

    asyncio.run(main())


def test_keys_are_listed_page_by_page():
    async def main() -> None:
        async with opened_api() as api:
            for number in range(4):
                await api.post("/api/v1/keys", {"name": f"key {number}", "scopes": ["read"]})
            everything = (await api.get("/api/v1/keys")).json()
            first = (await api.get("/api/v1/keys", limit=3)).json()
            rest = (await api.get("/api/v1/keys", limit=3, cursor=first["next_cursor"])).json()
            assert first["items"] + rest["items"] == everything["items"]
            # The key of the client is the oldest.
            assert len(rest["items"]) == 2
            assert rest["next_cursor"] is everything["next_cursor"] is None

    asyncio.run(main())


def test_a_key_is_shown_once_and_its_use_is_recorded():
    async def main() -> None:
        async with opened_api() as api:
            created = (await api.post("/api/v1/keys", {"name": "ci", "scopes": ["read"]})).json()
            listed = (await api.get("/api/v1/keys")).text
            assert created["key"].startswith("dm_")
            assert created["key"].split("_", 2)[2] not in listed
            api.headers = {"X-API-Key": created["key"]}
            assert (await api.get("/api/v1/jobs")).status_code == 200
            await api.app.state.keys.mark_used()
            (record,) = [record for record in await api.keys.all() if record.name == "ci"]
            assert record.last_used_at is not None
            await api.use_key(Scope.ADMIN)
            wrong = await api.post("/api/v1/keys", {"name": "x", "scopes": ["root"]})
            assert (wrong.status_code, wrong.json()["code"]) == (400, "api_key_invalid")

    asyncio.run(main())


def test_the_use_of_keys_is_stored_in_one_statement_at_most_once_a_minute(monkeypatch):
    stored: list[list[str]] = []

    class Keys(MemoryApiKeyStore):
        async def mark_used(self, key_ids):
            stored.append(list(key_ids))
            await super().mark_used(key_ids)

    async def main() -> None:
        async with opened_api(keys=(keys := Keys())) as api:
            ids = []
            for number in range(3):
                ids.append((await api.use_key(Scope.READ, name=f"caller {number}")).split("_")[1])
                for _ in range(5):
                    assert (await api.get("/api/v1/jobs")).status_code == 200
                    # A request in memory is answered without a turn of the loop for others.
                    await asyncio.sleep(0)
            assert stored == [[ids[0]]], "the first use at once, the others within a minute"
            await api.app.state.keys.mark_used()
            assert stored == [[ids[0]], sorted(ids)]
            assert all(record.last_used_at for record in await keys.all() if record.key_id in ids)

    asyncio.run(main())


def test_the_database_may_be_down_when_the_use_of_a_key_is_stored():
    class Keys(MemoryApiKeyStore):
        async def mark_used(self, key_ids):
            raise DatabaseUnavailable("the database cannot be reached")

    async def main() -> None:
        async with opened_api(keys=Keys()) as api:
            assert (await api.get("/api/v1/jobs")).status_code == 200
            await api.app.state.keys.mark_used()
            assert (await api.get("/api/v1/jobs")).status_code == 200

    asyncio.run(main())


def test_the_file_with_the_key_of_dev_is_for_its_user_alone(tmp_path):
    from dagmaster.host.atomic_files import write_private

    file = tmp_path / "key"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o600)
