"""The server on a real database and socket: a database without tables, migration over HTTP, outages, stop."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from dagmaster.bootstrap.http_server import ServerService
from dagmaster.cli.commands.keys import keys
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from dagmaster.store.postgres import schema_version
from tests.conformance.server import dsn_of, release_database, shared_server, take_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMIN_KEY = "an-admin-key-of-the-settings-0123456789"


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with shared_server() as server:
        name = asyncio.run(take_database(server))
        yield dsn_of(server, name)
        asyncio.run(release_database(server, name))


async def with_server(dsn: str, folder: Path, work) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    settings = load_settings().model_copy(update={"admin_key": SecretStr(ADMIN_KEY)})
    service = ServerService(DatabaseConfig(dsn=dsn), settings, folder, listener)
    running = asyncio.create_task(service.run())
    await asyncio.wait_for(service.ready.wait(), 30)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=url, headers={"X-API-Key": ADMIN_KEY}, timeout=60) as http:
            await work(http)
    finally:
        service.stop()
        await asyncio.wait_for(running, 30)


def test_a_new_database_is_migrated_over_http_with_the_key_of_the_settings(dsn, tmp_path):
    schema_version.downgrade(dsn, "base")

    async def work(http: httpx.AsyncClient) -> None:
        other = await http.get("/api/v1/jobs", headers={"X-API-Key": "dm_000000000000_" + "a" * 43})
        assert (other.status_code, other.json()["code"]) == (503, "schema_version_mismatch")
        assert (await http.get("/readyz")).json()["failing"] == ["schema", "orchestrators"]
        migrated = (await http.post("/api/v1/admin/migrate")).json()
        assert (migrated["version"], migrated["is_usable"]) == (schema_version.HEAD, True)
        key = (await http.post("/api/v1/keys", json={"name": "ci", "scopes": ["read"]})).json()["key"]
        assert (await http.get("/api/v1/jobs", headers={"X-API-Key": key})).json()["items"] == []
        entries = (await http.get("/api/v1/audit")).json()["items"]
        assert [entry["action"] for entry in entries] == ["key.create", "schema.migrate"]

    asyncio.run(with_server(dsn, tmp_path, work))


def test_keys_are_created_rotated_and_revoked_at_the_command_line_with_a_trail(dsn, tmp_path, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", dsn)

    def run(*words: str) -> str:
        result = CliRunner().invoke(keys, list(words))
        assert result.exit_code == 0, result.output
        return result.stdout

    created = json.loads(run("create", "cli", "--scope", "read", "--days", "30", "--json"))
    rotated = json.loads(run("rotate", created["key_id"], "--overlap-hours", "0", "--json"))
    assert (rotated["name"], rotated["scopes"]) == ("cli", ["read"])
    run("revoke", rotated["key_id"])
    assert rotated["key_id"] in run("list")

    async def work(http: httpx.AsyncClient) -> None:
        for key in (created["key"], rotated["key"]):
            assert (await http.get("/api/v1/jobs", headers={"X-API-Key": key})).status_code == 401
        entries = (await http.get("/api/v1/audit?limit=3")).json()["items"]
        assert [entry["action"] for entry in entries] == ["key.revoke", "key.rotate", "key.create"]

    asyncio.run(with_server(dsn, tmp_path, work))


def test_a_server_without_its_database_lives_and_answers_503(tmp_path):
    async def work(http: httpx.AsyncClient) -> None:
        answer = await http.get("/api/v1/jobs")
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert answer.headers["retry-after"]
        assert (await http.get("/livez")).status_code == 200
        health = await http.get("/health")
        assert (health.status_code, health.json()["parts"]["database"]["state"]) == (503, "UNHEALTHY")

    asyncio.run(with_server("postgresql://nothing@127.0.0.1:1/x", tmp_path, work))
