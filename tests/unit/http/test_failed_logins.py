"""Credentials that are not valid: counted, and limited for each address."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from dagmaster.errors import TokenRejected, TooManyFailures
from dagmaster.http import failed_logins
from dagmaster.http.failed_logins import FailedLogins
from dagmaster.http.rate_limits import MAX_CALLERS
from dagmaster.ports.api_keys import Caller, Namespace, Scope
from dagmaster.telemetry.prometheus import ProcessMetrics
from tests.unit.http.api_client import opened_api
from tests.unit.ui.page_client import opened_pages

WRONG = {"Authorization": "Bearer dm_000000000000_" + "a" * 43}


def test_an_address_that_sends_wrong_keys_has_to_wait_and_valid_keys_and_others_do_not():
    async def main() -> None:
        async with opened_api(failed_logins=3) as api:
            assert (await api.get("/api/v1/jobs")).status_code == 200
            statuses = [(await api.http.get("/api/v1/jobs", headers=WRONG)).status_code for _ in range(5)]
            assert statuses == [401, 401, 401, 429, 429]
            rejected = await api.http.get("/api/v1/jobs", headers=WRONG)
            assert rejected.json()["code"] == "too_many_failures"
            assert 1 <= int(rejected.headers["retry-after"]) <= 60
            assert (await api.get("/api/v1/jobs")).status_code == 200, "a key that is known is no guess"
            assert (await api.http.get("/api/v1/jobs")).status_code == 401, (
                "without a key, nothing is guessed"
            )
            other = httpx.ASGITransport(api.app, raise_app_exceptions=False, client=("10.9.8.7", 1))
            async with httpx.AsyncClient(transport=other, base_url="http://test") as http:
                assert (await http.get("/api/v1/jobs", headers=WRONG)).status_code == 401
            text = (await api.get("/metrics")).text
            assert 'dagmaster_http_credentials_rejected_total{reason="invalid"} 4.0' in text
            assert 'dagmaster_http_credentials_rejected_total{reason="throttled"} 3.0' in text

    asyncio.run(main())


def test_wrong_keys_of_an_address_lock_out_neither_the_key_of_the_settings_nor_tokens_that_were_valid():
    async def main() -> None:
        issuer = Issuer()
        admin, token = {"X-API-Key": "the key of the settings"}, {"X-API-Key": "valid.token"}
        async with opened_api(failed_logins=2, admin_key=admin["X-API-Key"], tokens=issuer) as api:
            assert (await api.http.get("/api/v1/jobs", headers=token)).status_code == 200
            statuses = [(await api.http.get("/api/v1/jobs", headers=WRONG)).status_code for _ in range(3)]
            assert statuses == [401, 401, 429]
            assert (await api.http.get("/api/v1/jobs", headers=admin)).status_code == 200
            assert (await api.http.get("/api/v1/jobs", headers=token)).status_code == 200
            invented = {"X-API-Key": "invented.token"}
            assert (await api.http.get("/api/v1/jobs", headers=invented)).status_code == 429
            # A token that is not valid any more is a guess like others.
            issuer.valid = ""
            statuses = [(await api.http.get("/api/v1/jobs", headers=token)).status_code for _ in range(2)]
            assert statuses == [401, 429]

    asyncio.run(main())


class Issuer:
    """Accepts one token."""

    valid = "valid.token"

    async def find_caller(self, token: str) -> Caller:
        if token != self.valid:
            raise TokenRejected("not valid")
        scopes = frozenset({Scope.ADMIN})
        return Caller(key_id="oidc:anna", name="anna", scopes=scopes, namespace=Namespace.OIDC)


def test_the_login_form_is_limited_and_a_page_that_is_left_open_is_not():
    async def main() -> None:
        async with opened_pages(failed_logins=2) as pages:
            pages.key = "ds_of another day"
            for _ in range(5):
                assert (await pages.get("/ui/jobs")).status_code == 303
            good = pages.api_key
            assert (await pages.post("/ui/login", {"key": "dm_guess"})).status_code == 401
            # One failure was the session, the first time that it was looked up.
            assert (await pages.post("/ui/login", {"key": good})).status_code == 429

    asyncio.run(main())


def test_addresses_of_one_network_count_as_one_and_memory_is_bounded(monkeypatch):
    limits = FailedLogins(1, ProcessMetrics())
    limits.add("2001:db8::1")
    with pytest.raises(TooManyFailures):
        limits.check("2001:db8::ffff:2")
    limits.check("2001:db8:0:1::1")
    limits.check("192.0.2.1")
    # Addresses of IPv4 on a socket of IPv6 are not one network.
    limits.add("::ffff:192.0.2.1")
    limits.check("::ffff:192.0.2.2")
    with pytest.raises(TooManyFailures):
        limits.check("192.0.2.1")
    monkeypatch.setattr("dagmaster.http.rate_limits.MAX_CALLERS", 10)
    assert MAX_CALLERS > 10
    for number in range(100):
        limits.add(f"192.0.2.{number}")
    assert limits._limiter is not None
    assert len(limits._limiter._full_at) == 10
    assert failed_logins._network("not an address") == "not an address"
