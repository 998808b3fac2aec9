"""Which hosts a request may name."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.bootstrap.access import allowed_hosts
from dagmaster.http.hosts import AllowedHosts
from dagmaster.settings import Settings
from tests.unit.http.api_client import opened_api

HOSTS = frozenset({"dagmaster.example.com"})


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8420", 200),
        ("LOCALHOST.", 200),
        ("127.0.0.1:8420", 200),
        ("[::1]:8420", 200),
        ("Dagmaster.Example.com", 200),
        # The address on which the request arrives: httpx calls it so.
        ("test", 200),
        ("evil.example", 421),
        ("dagmaster.example.com.evil.example", 421),
        ("evil.example:127.0.0.1", 421),
        ("10.0.0.7", 421),
        ("[::1].evil.example", 421),
        ("", 421),
    ],
)
def test_a_request_names_an_allowed_host(host, status):
    async def main() -> None:
        async with opened_api(allowed_hosts=HOSTS) as api:
            answer = await api.http.get("/api/v1/jobs", headers={**api.headers, "Host": host})
            assert answer.status_code == status
            if status == 421:
                assert answer.json()["code"] == "host_rejected"
                assert "DAGMASTER_ALLOWED_HOSTS" in answer.json()["detail"]
            for probe in ("/livez", "/readyz"):
                assert (await api.http.get(probe, headers={"Host": host})).status_code != 421

    asyncio.run(main())


def test_any_host_is_allowed_by_a_star():
    async def main() -> None:
        async with opened_api(allowed_hosts=frozenset({"*"})) as api:
            headers = {**api.headers, "Host": "anything.example"}
            assert (await api.http.get("/api/v1/jobs", headers=headers)).status_code == 200

    asyncio.run(main())


def test_a_socket_of_another_host_is_closed_before_it_is_accepted():
    async def main() -> None:
        sent = []

        async def send(message):
            sent.append(message)

        async def unused(*_):
            raise AssertionError("the application must not see it")

        scope = {"type": "websocket", "path": "/ws/jobs/1", "headers": [(b"host", b"evil.example")]}
        await AllowedHosts(unused, HOSTS)(scope, unused, send)
        assert sent == [{"type": "websocket.close", "code": 1008}]

    asyncio.run(main())


def test_the_settings_and_the_public_url_name_hosts():
    settings = Settings(allowed_hosts=("a.example", "10.0.0.7"), public_url="https://b.example")
    assert allowed_hosts(settings) == {"a.example", "10.0.0.7", "b.example"}
    assert allowed_hosts(Settings()) == frozenset()
