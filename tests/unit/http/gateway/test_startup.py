"""A gateway serves its probes at once, and everything else once its checks have passed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.errors import DatabaseUnavailable
from dagmaster.http.gateway import startup
from dagmaster.http.gateway.startup import FRESH_SECONDS, RETRY_SECONDS, StartupChecks
from tests.unit.http.gateway.gateway_client import REQUEST_ID, opened_gateway
from tests.unit.http.test_rate_limits import Hand

if TYPE_CHECKING:
    import pytest


def test_a_gateway_that_starts_before_its_database_becomes_ready():
    async def scenario() -> None:
        hand = Hand()
        failure = ["the database cannot be reached: canary-host"]

        async def database() -> str:
            return failure[0]

        checks = StartupChecks({"database": database}, monotonic=hand)
        async with opened_gateway(checks=checks) as gateway:
            assert (await gateway.get("/livez", None)).json() == {"alive": True}
            for path in (
                "/platform/status/x",
                "/status/jobs",
                "/gateway/health",
                "/nothing",
                "/openapi.json",
            ):
                answer = await gateway.get(path)
                assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
                assert answer.json()["failed_check"] == "database"
                assert "canary" not in answer.text
                assert "x-request-id" in answer.headers
            assert not gateway.app.is_open
            answer = await gateway.get("/readyz", None)
            assert (answer.status_code, answer.json()) == (503, {"ready": False, "failed_check": "database"})
            assert answer.headers["retry-after"] == "2"
            failure[0] = ""
            hand.now += RETRY_SECONDS
            assert (await gateway.get(f"/platform/status/{REQUEST_ID}")).status_code == 200
            assert (await gateway.get("/readyz", None)).json() == {"ready": True}
            health = (await gateway.get("/gateway/health", None)).json()
            assert health == {"status": "healthy", "checks": {"database": "ok"}}
            # Later it is ready or not, and its routes stay.
            failure[0] = "lost"
            hand.now += FRESH_SECONDS
            assert (await gateway.get("/readyz", None)).status_code == 503
            answer = await gateway.get("/gateway/health", None)
            assert (answer.status_code, answer.json()["checks"]) == (503, {"database": "failed"})
            assert (await gateway.get(f"/platform/status/{REQUEST_ID}")).status_code == 200

    asyncio.run(scenario())


def test_all_who_ask_at_the_same_time_share_one_run_of_the_checks(caplog: pytest.LogCaptureFixture):
    calls = []

    async def check() -> str:
        calls.append(1)
        await asyncio.sleep(0)
        raise DatabaseUnavailable("lost")

    async def scenario() -> None:
        hand = Hand()
        checks = StartupChecks({"database": check}, monotonic=hand)
        states = await asyncio.gather(*(checks.state() for _ in range(50)))
        assert {state.failed_check for state in states} == {"database"}
        await checks.state()
        assert len(calls) == 1, "the result is used for a moment"
        hand.now += RETRY_SECONDS
        await checks.state()
        assert len(calls) == 2
        assert caplog.text.count("check database failed: lost") == 1, "the same failure is logged once"

    asyncio.run(scenario())


def test_a_check_that_hangs_has_failed(monkeypatch):
    monkeypatch.setattr(startup, "CHECK_SECONDS", 0.01)

    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    async def scenario() -> None:
        state = await StartupChecks({"orchestrator": hang}).state()
        assert (state.failed_check, state.checks[0].detail) == ("orchestrator", "no answer within 0.01 s")

    asyncio.run(scenario())
