"""The server on a real database and socket: a database without tables, migration over HTTP, outages, stop."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

from dagmaster.bootstrap.http_server import ensure_local_key
from dagmaster.cli.commands.keys import keys
from dagmaster.http.app import route_scopes
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version
from tests.integration.server_on_socket import with_server
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESS_ROUTES = {"/health", "/metrics"}
"""What they answer is partly in the memory of the server. Streams wait for the database: see `test_streams`."""
TASK_LINE = '{"task": {"id": "1", "label": "f", "definition": {"handler": "m.f", "queue": "q"}}}\n'
LINES = '{"job": {"name": "n"}}\n' + TASK_LINE
QUERIES = {
    "/api/v1/workflows/{workflow_id}/diff": "?before=1&after=1",
    "/api/v1/lookup": "?correlation_id=x",
    "/api/v1/jobs/cancel": "?dry_run=true&workflow_id=w",
    "/api/v1/jobs/resume": "?dry_run=true&workflow_id=w",
}


def test_a_new_database_is_migrated_over_http_with_the_key_of_the_settings(dsn, tmp_path):
    schema_version.downgrade(dsn, "base")

    async def work(http: httpx.AsyncClient) -> None:
        other = await http.get("/api/v1/jobs", headers={"X-API-Key": "dm_000000000000_" + "a" * 43})
        assert (other.status_code, other.json()["code"]) == (503, "schema_version_mismatch")
        for method, path in (("GET", "invariants"), ("POST", "metrics/rebuild")):
            refused = await http.request(method, f"/api/v1/admin/{path}")
            assert (refused.status_code, refused.json()["code"]) == (503, "schema_version_mismatch")
        assert (await http.get("/readyz")).json()["failing"] == [
            *("schema", "tenants", "secrets_key", "orchestrators"),
        ]
        migrated = (await http.post("/api/v1/admin/migrate")).json()
        assert (migrated["version"], migrated["is_usable"]) == (schema_version.HEAD, True)
        key = (await http.post("/api/v1/keys", json={"name": "ci", "scopes": ["read"]})).json()["key"]
        assert (await http.get("/api/v1/jobs", headers={"X-API-Key": key})).json()["items"] == []
        entries = (await http.get("/api/v1/audit")).json()["items"]
        assert [entry["action"] for entry in entries] == ["key.create", "schema.migrate"]
        versions = (await http.get("/api/v1/admin/schema/versions")).json()
        assert [version["revision"] for version in versions if version["is_current"]] == [schema_version.HEAD]
        rebuilt = (await http.post("/api/v1/admin/metrics/rebuild")).json()
        assert rebuilt == {"counted_jobs": 0, "pending_jobs": 0, "next_cursor": None}
        batch = (await http.get("/api/v1/admin/invariants")).json()
        assert (batch["jobs_total"], batch["violations"], bool(batch["next_cursor"])) == (0, [], True)

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


def test_the_key_of_dev_is_kept_next_to_its_data_directory_for_its_user_alone(dsn, tmp_path):
    config, settings = DatabaseConfig(dsn=dsn), load_settings()

    def key_of(name: str) -> tuple[str, int]:
        path = asyncio.run(ensure_local_key(config, settings, tmp_path / name))
        assert path == tmp_path / f"{name}-api-key"
        return path.read_text(), path.stat().st_mode & 0o777

    first = key_of("data")
    assert first[1] == 0o600
    (tmp_path / "data-api-key").chmod(0o644)
    assert key_of("data") == first
    assert key_of("other")[0] != first[0]
    (tmp_path / "data-api-key").write_text("dm_000000000000_" + "a" * 43)
    assert key_of("data") not in (first, ("dm_000000000000_" + "a" * 43, 0o600))


def test_a_server_without_its_database_lives_and_answers_503(tmp_path):
    async def work(http: httpx.AsyncClient) -> None:
        answer = await http.get("/api/v1/jobs")
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert answer.headers["retry-after"]
        assert (await http.get("/livez")).status_code == 200
        health = await http.get("/health")
        assert (health.status_code, health.json()["parts"]["database"]["state"]) == (503, "UNHEALTHY")

    asyncio.run(with_server("postgresql://nothing@127.0.0.1:1/x", tmp_path, work))


@pytest.fixture
def own_postgres() -> Iterator[EmbeddedPostgres]:
    """Provide a server with tables that only one test uses; it is not started yet."""
    with server_folder() as folder:
        copy_migrated_cluster(folder / "data")
        embedded = EmbeddedPostgres(folder / "data")
        yield embedded
        embedded.stop()


def test_while_postgresql_is_stopped_requests_are_answered_with_503_and_then_they_work_again(
    tmp_path, own_postgres
):
    dsn = own_postgres.start().dsn
    flow = "{workflow_id: w, version: 1, nodes: {a: {handler: h, queue: q}}}"
    names = {
        "job_id": "1",
        "node_id": "a",
        "workflow_id": "w",
        "worker_id": "1",
        "signal": "context_hold_1",
        "task_id": "1",
        "callback_id": "00000000-0000-4000-8000-000000000000",
        "secret_id": "0123456789ab",
    }

    async def work(http: httpx.AsyncClient) -> None:
        key = (await http.post("/api/v1/keys", json={"name": "ci", "scopes": [*Scope]})).json()["key"]
        assert (await http.post("/api/v1/workflows", json={"text": flow})).status_code == 201
        http.headers = httpx.Headers({"X-API-Key": key})
        assert (await http.get("/api/v1/jobs")).status_code == 200
        await asyncio.to_thread(own_postgres.stop)
        assert (await http.get("/livez")).status_code == 200
        document = (await http.get("/openapi.json")).json()["paths"]
        for (method, route), scope in route_scopes().items():
            if method == "WS" or scope is None or route in PROCESS_ROUTES or route.endswith("/stream"):
                continue
            path = re.sub(r"{(\w+)[^}]*}", lambda match: names.get(match[1], "x"), route)
            content = document[route][method.lower()].get("requestBody", {}).get("content", {})
            body: dict[str, Any] = {"json": content.get("application/json", {}).get("example")}
            if route.endswith("/lines"):
                lines = LINES if "graph" in route else TASK_LINE
                body = {"content": lines, "headers": {"Content-Type": "application/x-ndjson"}}
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await http.request(method, path + QUERIES.get(route, ""), **body)
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "2"), (path, answer.text)
            assert answer.json()["code"] in ("database_unavailable", "embedded_postgres_unavailable"), (
                answer.text
            )
        rejected = await http.post(
            "/api/v1/jobs", json={"workflow_id": "w"}, headers={"Idempotency-Key": "k"}
        )
        assert rejected.status_code == 503
        unknown = await http.get("/api/v1/jobs", headers={"X-API-Key": "dm_000000000000_" + "a" * 43})
        assert unknown.status_code == 503, "whether a key is valid is not known"
        await asyncio.to_thread(own_postgres.start)
        accepted = await http.post(
            "/api/v1/jobs", json={"workflow_id": "w"}, headers={"Idempotency-Key": "k"}
        )
        assert (accepted.status_code, accepted.json()["is_new"]) == (202, True)
        listed = (await http.get("/api/v1/jobs")).json()["items"]
        assert [job["job_id"] for job in listed] == [accepted.json()["job_id"]]

    asyncio.run(with_server(dsn, tmp_path, work))
