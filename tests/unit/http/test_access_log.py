"""The access log names each request once, without its query, and no line of it can be forged."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.http.access_log import clean_path
from dagmaster.ports.api_keys import Scope
from dagmaster.telemetry.logs import JsonFormatter, TextFormatter
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.http.api_client import Api

LINES = TextFormatter(lambda text: text)
JSON_LINES = JsonFormatter(lambda text: text)


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="dagmaster.access")
    return caplog


def with_api(work: Callable[[Api], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with opened_api(has_access_log=True, **options) as api:
            await work(api)

    asyncio.run(main())


def of_access(records: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in records.records if record.name == "dagmaster.access"]


def test_a_request_is_logged_with_its_caller_route_status_and_id(records):
    async def work(api: Api) -> None:
        await api.publish()
        key = await api.use_key(Scope.SUBMIT, name="portal")
        headers = {"X-Request-ID": "trace-1234"}
        job_id = (await api.post("/api/dag/submit", {"workflow_id": "hello"}, headers=headers)).json()[
            "job_id"
        ]
        await api.get(f"/api/v1/jobs/{job_id}", children=True, secret=key)
        await api.http.get("/api/v1/fleet")
        await api.http.get("/livez")
        await api.http.get("/no/such/path")

    with_api(work)
    _published, submitted, shown, unknown, probe, missing = of_access(records)
    assert (submitted.method, submitted.path, submitted.route) == ("POST", "/api/dag/submit", "/jobs")
    assert (submitted.status, submitted.actor, submitted.request_id) == (202, "key:portal", "trace-1234")
    assert submitted.seconds > 0
    assert (shown.route, shown.status) == ("/jobs/{job_id}", 422)
    assert (unknown.status, hasattr(unknown, "actor"), len(unknown.request_id)) == (401, False, 16)
    assert (probe.path, probe.status) == ("/livez", 200)
    assert (missing.status, hasattr(missing, "route")) == (404, False)
    for record in of_access(records):
        assert "?" not in LINES.format(record)
        assert "dm_" not in JSON_LINES.format(record)
    line = LINES.format(submitted)
    assert "INFO dagmaster.access: POST /api/dag/submit 202" in line
    assert "request_id=trace-1234" in line
    assert json.loads(JSON_LINES.format(submitted))["actor"] == "key:portal"


def test_nothing_is_logged_unless_it_is_turned_on(records):
    async def main() -> None:
        async with opened_api() as api:
            await api.get("/api/v1/jobs")

    asyncio.run(main())
    assert of_access(records) == []


def test_a_path_cannot_forge_a_line(records):
    async def work(api: Api) -> None:
        await api.get("/api/v1/jobs/7%0A2026-01-01T00:00:00Z%20INFO%20forged%1b[2J%22%20status=200")
        await api.get("/api/v1/jobs/%E2%80%A8%C2%85")

    with_api(work)
    assert len(of_access(records)) == 2
    for record in of_access(records):
        text = LINES.format(record)
        assert text.isascii()
        assert len(text.splitlines()) == 1
        assert (" INFO forged" in text, " status=200" in text) == (False, False)


def test_a_path_shows_the_id_of_a_key_and_not_its_secret():
    key = "dm_a1b2c3d4e5f6_S3cretS3cretS3cret-S3cret"
    assert clean_path(f"/api/v1/keys/{key}/revoke") == "/api/v1/keys/dm_a1b2c3d4e5f6/revoke"
    assert clean_path("/ui/login/dl_a1b2c3d4e5f6_code") == "/ui/login/dl_a1b2c3d4e5f6"
    assert len(clean_path("/" + "a" * 10_000)) <= 300
