"""Who sees and does what on the web page: every route with every scope, from other sites, and without a token."""

from __future__ import annotations

import asyncio

import pytest
from fastapi.routing import APIRoute

from dagmaster.application.api_keys import allows, revoke_key
from dagmaster.http import auth
from dagmaster.http.auth import SESSION_COOKIE
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ui.sessions import safe_target, token_of
from dagmaster.ui.site import GROUPS, page_scopes
from tests.unit.ui.page_client import OWN, opened_pages

OPEN = {
    ("GET", "/"),
    ("GET", "/ui"),
    ("GET", "/ui/static/{version}/{path:path}"),
    ("GET", "/ui/offline"),
    ("GET", "/ui/login"),
    ("GET", "/ui/login/provider"),
    ("GET", "/ui/login/callback"),
    ("POST", "/ui/login"),
    ("POST", "/ui/logout"),
}
CHANGES = [path for method, path in page_scopes() if method == "POST"]


def url_of(path: str) -> str:
    return (
        path.replace("{job_id}", "1")
        .replace("{node_id}", "a")
        .replace("{path:path}", "x")
        .replace("{", "")
        .replace("}", "")
    )


def test_every_route_names_its_scope():
    served = {
        (method, route.path)
        for group in GROUPS
        for route in group.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert served == set(page_scopes())
    assert {route for route, scope in page_scopes().items() if scope is None} == OPEN


def test_every_page_and_change_needs_its_scope():
    async def main() -> None:
        async with opened_pages() as pages:
            # A key with submit also reads pages of its own jobs: tests/unit/http/test_reach.py.
            for granted in (Scope.READ, Scope.OPERATE, Scope.WORK, Scope.ADMIN):
                await pages.log_in(granted)
                for (method, path), needed in page_scopes().items():
                    if needed is None:
                        continue
                    url = url_of(path)
                    answer = await (pages.get(url) if method == "GET" else pages.post(url))
                    is_refused = answer.status_code == 403 and "Not allowed" in answer.text
                    assert is_refused is not allows({granted}, needed), (
                        granted,
                        method,
                        path,
                        answer.status_code,
                    )
                    assert answer.status_code != 500, (granted, method, path)

    asyncio.run(main())


def test_without_a_session_every_page_leads_to_the_login_and_back():
    async def main() -> None:
        async with opened_pages() as pages:
            pages.key = ""
            for (method, path), needed in page_scopes().items():
                if needed is None or method != "GET":
                    continue
                answer = await pages.get(url_of(path))
                assert (answer.status_code, answer.headers["location"][:9]) == (303, "/ui/login"), path
            assert (await pages.get("/ui/jobs?status=failed")).headers["location"] == (
                "/ui/login?next=%2Fui%2Fjobs%3Fstatus%3Dfailed"
            )

    asyncio.run(main())


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://test", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://test", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://test.evil.example"},
    ],
)
def test_a_page_of_another_site_cannot_change_anything(headers):
    async def main() -> None:
        async with opened_pages() as pages:
            for path in CHANGES:
                fields = {"token": token_of(pages.key), "key": pages.api_key}
                answer = await pages.api.http.post(
                    url_of(path), data=fields, headers={**pages.cookies, **headers}
                )
                assert answer.status_code == 403, path
                assert "set-cookie" not in answer.headers, path

    asyncio.run(main())


def test_a_form_without_an_origin_is_rejected():
    async def main() -> None:
        async with opened_pages() as pages:
            for path in CHANGES:
                answer = await pages.api.http.post(
                    url_of(path), data={"token": token_of(pages.key)}, headers=pages.cookies
                )
                assert answer.status_code == 403, path

    asyncio.run(main())


def test_a_change_needs_the_token_of_its_session():
    async def main() -> None:
        async with opened_pages() as pages:
            other = token_of(await pages.log_in(Scope.ADMIN))
            await pages.log_in(Scope.ADMIN)
            for path in CHANGES:
                if page_scopes()["POST", path] is None:
                    continue
                for token in ("", "x", "é😀", other):
                    answer = await pages.post(url_of(path), token=token)
                    assert answer.status_code == 403, (path, token)
                    assert "not of this session" in answer.text

    asyncio.run(main())


def test_the_cookie_serves_the_api_for_reading_only_and_only_our_own_pages():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish()
            assert (await pages.get("/api/v1/jobs")).status_code == 200
            assert (await pages.get("/api/v1/jobs", **{"Sec-Fetch-Site": "same-origin"})).status_code == 200
            assert (await pages.get("/api/v1/jobs", **{"Sec-Fetch-Site": "cross-site"})).status_code == 401
            assert (await pages.get("/api/v1/jobs", **{"Sec-Fetch-Site": "same-site"})).status_code == 401
            answer = await pages.api.http.post(
                "/api/v1/jobs", json={"workflow_id": "hello"}, headers={**pages.cookies, **OWN}
            )
            assert answer.status_code == 401

    asyncio.run(main())


def test_a_login_keeps_a_session_where_scripts_cannot_read_it():
    async def main() -> None:
        async with opened_pages() as pages:
            answer = await pages.post(
                "/ui/login", {"key": f" {pages.api_key}\n", "next": "/ui/jobs?status=failed"}
            )
            assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs?status=failed")
            cookie = answer.headers["set-cookie"].lower()
            assert cookie.startswith(f"{SESSION_COOKIE}=ds_")
            assert pages.api_key.split("_", 2)[2].lower() not in cookie
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert "path=/" in cookie
            assert "secure" not in cookie
            wrong = await pages.post("/ui/login", {"key": "dm_nonsense"})
            assert wrong.status_code == 401
            assert SESSION_COOKIE not in wrong.headers.get("set-cookie", "")
            assert "dm_nonsense" not in wrong.text
            left = await pages.post("/ui/logout")
            assert f'{SESSION_COOKIE}=""' in left.headers["set-cookie"]

    asyncio.run(main())


def test_a_revoked_key_leads_to_the_login_and_ends_the_session(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)

    async def main() -> None:
        async with opened_pages() as pages:
            assert (await pages.get("/ui/")).status_code == 200
            await revoke_key(pages.api.keys, pages.api_key, origin=ChangeOrigin(actor="test"))
            answer = await pages.get("/ui/nowhere")
            assert answer.headers["location"] == "/ui/login?next=%2Fui%2Fnowhere"
            assert f'{SESSION_COOKIE}=""' in answer.headers["set-cookie"]
            # A script asks for a part of a page: it has to know, and a redirect would hide it.
            assert (await pages.get("/ui/", **{"X-Fragment": "1"})).status_code == 401

    asyncio.run(main())


def test_a_link_on_another_site_asks_for_the_page_again_from_here():
    async def main() -> None:
        async with opened_pages() as pages:
            answer = await pages.get("/ui/jobs?text=a%22b", **{"Sec-Fetch-Site": "cross-site"})
            assert answer.status_code == 200
            assert 'content="0;url=/ui/jobs?text=a%22b"' in answer.text

    asyncio.run(main())


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example",
        "//evil.example",
        "/ui/../\\evil",
        "/uix",
        "",
        "/ui/login",
        "/ui/login/provider",
        "/ui/\nx",
        "javascript:1",
    ],
)
def test_a_login_leads_only_to_our_own_pages(path):
    assert safe_target(path) == "/ui/"


def test_every_answer_has_the_headers_that_keep_other_sites_out():
    async def main() -> None:
        async with opened_pages() as pages:
            for path in ("/ui/", "/ui/login", "/ui/nowhere"):
                headers = (await pages.get(path)).headers
                assert headers["x-content-type-options"] == "nosniff"
                policy = headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy

    asyncio.run(main())
