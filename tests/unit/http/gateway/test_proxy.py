"""The proxy reaches its targets and nothing else, passes on few headers, and does not wait for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from dagmaster.http.gateway import proxy
from dagmaster.http.gateway.proxy import METHODS, target_url
from tests.unit.http.gateway.gateway_client import SERVER, WORKER, opened_gateway

ESCAPES = (
    *(
        "../admin",
        "a/../../b",
        "..",
        "./x",
        "a/./b",
        "a\\b",
        "\\\\evil.test",
        "a b",
        "a\nb",
        "a\x00b",
        "a\tb",
        "\x7f",
    ),
)
"""Paths that are refused."""
HOSTILE = (
    *(
        "//evil.test/x",
        "@evil.test",
        "http://evil.test/",
        ":80@evil.test/",
        "%2e%2e/admin",
        "%2F%2Fevil.test",
        ".%2e/x",
    ),
    *(
        "#@evil.test",
        "?@evil.test",
        ";@evil.test",
        "evil.test:99",
        "[::1]",
        "169.254.169.254/latest",
        "…",
        "a%00b",
        "%",
    ),
)
"""Paths that are strange, and stay below the target."""


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("base", [SERVER, WORKER])
def test_a_path_that_could_leave_its_target_is_refused(base, path):
    assert target_url(base, path, "") is None


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("base", [SERVER, WORKER])
def test_a_strange_path_stays_below_its_target(base, path):
    url, expected = target_url(base, path, "a=b"), httpx.URL(base)
    assert url is not None
    assert (url.scheme, url.host, url.port, url.userinfo) == (
        expected.scheme,
        expected.host,
        expected.port,
        b"",
    )
    assert url.raw_path.startswith(expected.raw_path.rstrip(b"/") + b"/")
    assert b"/../" not in url.raw_path


def test_a_request_is_forwarded_with_few_headers_and_answered_with_few():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            sent = {"Content-Type": "application/json", "X-Correlation-ID": "c-1", "Cookie": "a=b", "X-Forwarded-For": "1.2.3.4", "X-API-Key": "other", "Host": "localhost", "Forwarded": "for=x"}  # fmt: skip
            returned = {"ETag": '"1"', "X-Correlation-ID": "c-1", "Set-Cookie": "s=1", "Server": "x", "Server-Timing": "a", "Location": "http://evil", "X-Secret": "1"}  # fmt: skip
            gateway.server = lambda _: httpx.Response(201, json={"job_id": "1"}, headers=returned)
            for method in METHODS:
                answer = await gateway.request(method, "/proxy/worker/a/b%20c?x=1&y=%2F", "admin", headers=sent, content=b"{}")  # fmt: skip
                if method == "GET":
                    assert answer.status_code == 400, "a space is refused"
                answer = await gateway.request(method, "/proxy/worker/a/b?x=1&y=%2F", "admin", headers=sent, content=b"{}")  # fmt: skip
                assert answer.status_code == 201
                forwarded = gateway.sent[-1]
                assert (forwarded.method, str(forwarded.url)) == (method, f"{WORKER}/a/b?x=1&y=%2F")
                names = set(forwarded.headers) - {
                    "host",
                    "content-length",
                    "accept",
                    "connection",
                    "user-agent",
                }
                assert names == {
                    "authorization",
                    "content-type",
                    "x-correlation-id",
                    "x-request-id",
                    "accept-encoding",
                }
                assert forwarded.headers["authorization"] == gateway.key("admin")["Authorization"]
                assert forwarded.headers["host"] == "worker.internal:9000"
                assert answer.headers["etag"] == '"1"'
                assert answer.headers["x-correlation-id"] == "c-1"
                assert not answer.headers.keys() & {
                    "set-cookie",
                    "server",
                    "server-timing",
                    "location",
                    "x-secret",
                }
                if method != "HEAD":
                    assert answer.json() == {"job_id": "1"}

    asyncio.run(scenario())


def test_what_is_no_target_and_what_redirects_is_refused():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            for target in ("evil.test", "Orchestrator", "http:", "worker.internal", "localhost"):
                answer = await gateway.get(f"/proxy/{target}/livez", "admin")
                assert (answer.status_code, answer.json()["code"]) == (404, "target_not_found")
            assert gateway.sent == []
            gateway.server = lambda _: httpx.Response(302, headers={"Location": "http://169.254.169.254/"})
            answer = await gateway.get("/proxy/orchestrator/livez", "admin")
            assert (answer.status_code, answer.json()["code"], len(gateway.sent)) == (
                502,
                "target_redirects",
                1,
            )
            await gateway.get(
                "/proxy/orchestrator/livez", "admin", headers={"X-Correlation-ID": "a b\x01"[:3]}
            )
            assert "x-correlation-id" not in gateway.sent[-1].headers

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(httpx.ConnectError, 502, "target_unreachable"), (httpx.ReadTimeout, 504, "target_timed_out"), (httpx.RemoteProtocolError, 502, "target_unreachable")],
)  # fmt: skip
def test_a_target_that_does_not_answer_is_a_problem_without_its_address(error, status, code):
    def fail(request: httpx.Request) -> Any:
        raise error("server.internal", request=request)

    async def scenario() -> None:
        async with opened_gateway() as gateway:
            gateway.server = fail
            answer = await gateway.get("/proxy/orchestrator/livez", "admin")
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert "internal" not in answer.text
            health = (await gateway.get("/proxy/health", "admin")).json()
            assert (health["status"], [one["is_reachable"] for one in health["targets"]]) == (
                "unhealthy",
                [False, False],
            )

    asyncio.run(scenario())


def test_a_target_has_bounded_time_for_its_answer(monkeypatch):
    monkeypatch.setattr(proxy, "PROXY_SECONDS", 0.01)

    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario() -> None:
        async with (
            opened_gateway() as gateway,
            httpx.AsyncClient(transport=httpx.MockTransport(hang)) as client,
        ):
            object.__setattr__(gateway.app.services, "client", client)
            answer = await gateway.get("/proxy/orchestrator/livez", "admin")
            assert (answer.status_code, answer.json()["code"]) == (504, "target_timed_out")

    asyncio.run(scenario())


def test_the_health_of_the_proxy_is_that_of_its_targets():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            gateway.server = lambda request: httpx.Response(200 if "server" in request.url.host else 503)
            view = (await gateway.get("/proxy/health", "admin")).json()
            assert view["status"] == "healthy"
            assert [(one["target"], one["status_code"]) for one in view["targets"]] == [("orchestrator", 200), ("worker", 503)]  # fmt: skip
            assert [str(request.url) for request in gateway.sent] == [f"{SERVER}/livez", f"{WORKER}/livez"]

    asyncio.run(scenario())
