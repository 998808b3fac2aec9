"""Health, keys and the audit trail: what an operator sees, and what only an administrator may change."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from dagmaster.application.api_keys import find_caller
from dagmaster.application.browser_sessions import start_session
from dagmaster.application.views import (
    ApiKeyView,
    AuditRecord,
    HealthPartView,
    HealthState,
    HealthView,
    Page,
    SchemaView,
)
from dagmaster.errors import DatabaseUnavailable
from dagmaster.store.memory.schema_admin import MemorySchemaAdmin
from dagmaster.ui.pages.audit import AuditQuery, audit_page
from dagmaster.ui.pages.health import health_page
from dagmaster.ui.pages.keys import keys_page
from tests.unit.ui.page_client import opened_pages, text_of

if TYPE_CHECKING:
    from tests.unit.ui.page_client import Pages

KEY = re.compile(r"dm_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")


def test_health_names_what_is_wrong_and_what_to_do():
    parts = {
        "database": HealthPartView(state=HealthState.HEALTHY, since=100.0, detail="reachable"),
        "workers": HealthPartView(state=HealthState.UNHEALTHY, since=160.0, detail="0 alive"),
    }
    health = HealthView(status=HealthState.UNHEALTHY, version="1.0", database_seconds=0.0021, parts=parts)
    schema = SchemaView(version="0003", newest_version="0004", is_usable=True)
    page = health_page(health, schema=schema, fleet=None, pending=7, now=220.0)
    assert (page.headline, page.tone, page.database, page.pending) == (
        "Workers: not healthy",
        "failed",
        "2.1 ms",
        "7",
    )
    database, workers = page.parts
    assert (database.advice, workers.advice) == ("", "Start one: dagmaster worker")
    assert workers.since is not None
    assert workers.since.relative == "1 min ago"
    assert page.versions == (
        ("This server", "1.0"),
        ("Schema of the database", "0003 (this server knows 0004)"),
    )


def test_health_is_shown_without_the_database(monkeypatch):
    async def fail(_: object) -> None:
        raise DatabaseUnavailable("the database cannot be reached")

    async def main() -> None:
        async with opened_pages() as pages:
            text = text_of((await pages.get("/ui/health")).text)
            assert "Everything is healthy" in text
            assert re.search(r"system healthy load \d", text)
            monkeypatch.setattr(MemorySchemaAdmin, "state", fail)
            text = text_of((await pages.get("/ui/health")).text)
            assert (
                "Database, schema, tenants, orchestrators, workers, queues, stale tasks, secrets key: not healthy"
                in text
            )
            assert "dagmaster doctor" in text

    asyncio.run(main())


def test_a_key_is_shown_once_and_works():
    async def main() -> None:
        async with opened_pages() as pages:
            answer = await pages.post("/ui/keys", {"name": "ci", "scope": ["read", "submit"], "days": "30"})
            (key,) = set(KEY.findall(answer.text))
            assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
            listed = await pages.get("/ui/keys")
            assert key not in listed.text
            assert "ci dm_" in text_of(listed.text)
            assert "read, submit" in listed.text
            pages.key = await start_session(pages.api.keys, await find_caller(pages.api.keys, key))
            assert (await pages.get("/ui/jobs")).status_code == 200
            assert (await pages.get("/ui/keys")).status_code == 403

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "", "scope": "read"}, "1 to 64 printable characters"),
        ({"name": "<b>ci</b>"}, "at least one scope"),
        ({"name": "ci", "scope": "root"}, "unknown scope"),
        ({"name": "ci", "scope": "read", "days": "-1"}, "a number of days"),
        ({"name": "ci", "scope": "read", "days": "99999999"}, "at most"),
    ],
)
def test_a_wrong_key_is_explained_and_what_was_typed_stays(fields, problem):
    async def main() -> None:
        async with opened_pages() as pages:
            answer = await pages.post("/ui/keys", fields)
            assert answer.status_code == 400
            assert problem in answer.text
            assert fields["name"].replace("<", "&lt;").replace(">", "&gt;") in answer.text

    asyncio.run(main())


async def _make_key(pages: Pages) -> str:
    answer = await pages.post("/ui/keys", {"name": "ci", "scope": "read"})
    return str(KEY.findall(answer.text)[0]).split("_")[1]


def test_a_key_is_rotated_and_revoked():
    async def main() -> None:
        async with opened_pages() as pages:
            key_id = await _make_key(pages)
            answer = await pages.post(f"/ui/keys/{key_id}/rotate", {"overlap_hours": "24"})
            assert answer.status_code == 201
            assert f"It replaces dm_{key_id}, which works for 24 more hours." in answer.text
            assert len(set(KEY.findall(answer.text))) == 1
            assert (await pages.post(f"/ui/keys/{key_id}/rotate", {"overlap_hours": "5"})).status_code == 400
            assert (await pages.post(f"/ui/keys/{key_id}/revoke")).headers["location"] == "/ui/keys"
            assert "revoked" in text_of((await pages.get("/ui/keys")).text)
            assert (await pages.post("/ui/keys/0123456789ab/revoke")).status_code == 404
            changes = text_of((await pages.get("/ui/audit?object_kind=key")).text)
            for action in ("key.create", "key.rotate", "key.revoke"):
                assert action in changes
            assert "No change matches" in (await pages.get("/ui/audit?actor=eve")).text

    asyncio.run(main())


def test_the_state_of_a_key_follows_its_times():
    ages = [(None, None), (50.0, None), (None, 20.0)]
    keys = [
        ApiKeyView(
            key_id=str(number), name="ci", scopes=("read",), created_at=1.0, created_by="ada", expires_at=expires,
            revoked_at=revoked, last_used_at=None,
        )
        for number, (expires, revoked) in enumerate(ages)
    ]  # fmt: skip
    page = keys_page(Page(items=tuple(keys), next_cursor="abc"), own_id="0", now=100.0, cursor=None)
    assert [(row.state, row.is_valid, row.is_own) for row in page.rows] == [
        ("valid", True, True),
        ("expired", False, False),
        ("revoked", False, False),
    ]
    assert (page.first, page.next) == ("", "/ui/keys?cursor=abc")


def test_an_entry_links_to_its_object_and_to_others_like_it():
    entry = AuditRecord(
        entry_id="1", at=100.0, actor="ada & co", key_id="k1", action="job.cancel", object_kind="job", object_id="7",
        request_id="r1", details={"wait": True, "scopes": ["read"], "none": None, "expires_at": 3600.0},
    )  # fmt: skip
    query = AuditQuery(object_kind="job")
    page = audit_page(query, Page(items=(entry,), next_cursor="abc"), now=160.0, cursor="x")
    (row,) = page.rows
    assert (row.object_href, row.actor_href) == ("/ui/jobs/7", "/ui/audit?actor=ada+%26+co&object_kind=job")
    assert row.details == (("wait", "yes"), ("scopes", "read"), ("expires_at", "1970-01-01 01:00:00 UTC"))
    assert (page.first, page.next) == ("/ui/audit?object_kind=job", "/ui/audit?object_kind=job&cursor=abc")
