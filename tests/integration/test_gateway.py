"""A gateway on a real database: what its role may do, and what partners see of each other."""

from __future__ import annotations

import asyncio
import re
import time
from importlib import resources
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest
from asyncpg.exceptions import GeneratedAlwaysError, InsufficientPrivilegeError

from dagmaster.bootstrap.gateway import gateway_config, make_gateway
from dagmaster.http.gateway import startup
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.gateway import JobQueryRequest
from dagmaster.ports.result_links import result_link
from dagmaster.ports.tenants import ALL_TENANTS, GATEWAY_ROLE
from dagmaster.settings import load_settings
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.gateway_store import GatewayKeys, PostgresGatewayStore
from dagmaster.store.postgres.named_queries import FRAGMENTS, parts, queries
from dagmaster.store.postgres.tenant_policies import POLICIES
from tests.conformance.server import WORKER_LOGIN, dsn_as
from tests.integration.gateway_world import add_key, as_gateway, execute, opened_world
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

from tests.integration.gateway_world import GatewayWorld

SUBMIT = {"workflow_id": "hello", "input_params": {"name": "canary-input"}, "submitted_by": "portal"}
UNKNOWN = "00000000-0000-4000-8000-000000000000"
CHANGES = ("INSERT INTO {} DEFAULT VALUES", "UPDATE {} SET {} = {}", "DELETE FROM {}", "TRUNCATE {}")


def store_of(dsn: str) -> PostgresGatewayStore:
    return PostgresGatewayStore(
        DatabaseConfig(dsn=dsn, role=GATEWAY_ROLE),
        lease_seconds=PATIENCE_SECONDS,
        worker_lease_seconds=PATIENCE_SECONDS,
        statement_timeout_seconds=30.0,
    )


@pytest.fixture(autouse=True)
def _patient_checks(monkeypatch):
    monkeypatch.setattr(startup, "CHECK_SECONDS", PATIENCE_SECONDS)


# ── The role ──


def test_the_role_changes_no_table(dsn: str):
    tables = "SELECT c.relname, (SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 LIMIT 1) FROM pg_class c WHERE relnamespace = 'dagapp'::regnamespace AND relkind IN ('r', 'p')"  # fmt: skip

    async def scenario() -> None:
        names = await execute(dsn, tables)
        assert len(names) > 25
        connection = await asyncpg.connect(mine)
        try:
            await connection.execute("SET search_path = dagapp")
            for table, column in names:
                for change in CHANGES:
                    with pytest.raises((InsufficientPrivilegeError, GeneratedAlwaysError)):
                        await connection.execute(change.format(table, column, column))
                for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"):
                    asked = f"SELECT has_table_privilege('dagapp.{table}', '{right}')"
                    assert not await connection.fetchval(asked), (table, right)
            with pytest.raises(InsufficientPrivilegeError):
                await connection.execute("CREATE TABLE mine (id int)")
        finally:
            await connection.close()

    mine = as_gateway(dsn)
    asyncio.run(scenario())


def granted_columns(dsn: str) -> set[tuple[str, str]]:
    """Return the columns that the role may select."""
    rows = asyncio.run(
        execute(
            dsn,
            "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " WHERE c.relnamespace = 'dagapp'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0"
            " AND NOT a.attisdropped AND has_column_privilege('dagmaster_gateway', c.oid, a.attname, 'SELECT')",
        )
    )
    return {(row["relname"], row["attname"]) for row in rows}


def test_the_role_reads_no_inputs_outputs_keys_secrets_and_logs(dsn: str):
    granted = granted_columns(dsn)
    columns = {"inputs", "env", "params", "secrets", "payload", "hidden_hash", "output", "output_ref", "data", "digest", "text", "callback_url", "host", "pid"}  # fmt: skip
    assert {(table, column) for table, column in granted if column in columns} == set()
    tables = {"dag_api_keys", "dag_browser_sessions", "dag_checkpoints", "dag_task_logs", "dag_task_results", "dag_audit", "dag_inbox", "dag_task_attempts"}  # fmt: skip
    assert {table for table, _ in granted} & tables == set()
    assert not [table for table, _ in granted if "secret" in table]


def test_every_column_that_the_role_reads_is_needed(dsn: str):
    fragments = parts(FRAGMENTS)
    statements = [
        *parts("gateway").values(),
        parts("requests")["status"],
        *(query.sql for query in queries("read").values() if query.name == "read.schema_version"),
        fragments["gateway_jobs"],
        # Who sees which row depends on these.
        *(f"{policy.sees} {policy.writes}" for policy in POLICIES.values()),
    ]
    text = " ".join(statements)
    functions = "skip_reason source_count"  # Of dag_job_progress.
    unused = {pair for pair in granted_columns(dsn) if not re.search(rf"\b{pair[1]}\b", text + functions)}
    assert unused == set()
    grants = (resources.files("dagmaster.store.postgres.migrations") / "roles.sql").read_text(
        encoding="utf-8"
    )
    # No table as a whole but that with the version of the schema.
    assert re.findall(r"GRANT SELECT ON (\S+) TO dagmaster_gateway", grants) == ["dagapp.alembic_version"]


def test_a_key_is_found_by_its_digest_and_by_nobody_else(dsn: str):
    async def scenario() -> None:
        from dagmaster.application.api_keys import digest_of

        key = await add_key(dsn, "acme", Scope.SUBMIT)
        store = store_of(mine)
        keys = GatewayKeys(store.pool)
        found = await keys.find(digest_of(key))
        assert found is not None
        assert (found[0].tenant, found[0].actor) == ("acme", "acme/key:acme-submit")
        assert found[0].scopes == {Scope.SUBMIT}
        assert await keys.find("0" * 64) is None
        await store.close()
        (row,) = await execute(
            dsn,
            "SELECT oid::regprocedure::text AS name FROM pg_proc WHERE starts_with(proname, 'dag_gateway_')",
        )
        call = row["name"].partition("(")[0].removeprefix("dagapp.")
        connection = await asyncpg.connect(dsn_as(dsn, WORKER_LOGIN))
        with pytest.raises(InsufficientPrivilegeError):
            await connection.fetch(f"SELECT * FROM dagapp.{call}('x')")
        await connection.close()

    mine = as_gateway(dsn)
    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ("dagmaster", "the role bypasses row-level security"),
        ("gateway", ""),
        ("both", "the role may change tables"),
    ],
)
def test_a_gateway_starts_only_with_a_role_that_can_do_nothing_else(dsn: str, user: str, problem: str):
    mine = as_gateway(dsn)

    async def scenario() -> None:
        address = {"dagmaster": dsn, "gateway": mine, "both": mine}[user]
        if user == "both":
            await execute(dsn, "GRANT INSERT ON dag_callbacks TO dagmaster_gateway")
        role = None if user == "dagmaster" else GATEWAY_ROLE
        settings = load_settings().model_copy(update={"orchestrator_url": "http://127.0.0.1:9"})
        app = make_gateway(settings, DatabaseConfig(dsn=address, role=role))
        state = await app.services.checks.state()
        # Other tests get this database as well.
        await execute(dsn, "REVOKE INSERT ON dag_callbacks FROM dagmaster_gateway")
        details = {check.name: check.detail for check in state.checks}
        assert details["database"].startswith(problem)
        assert (details["database"] == "", details["env_vars"]) == (problem == "", "")
        assert details["orchestrator"] == "http://127.0.0.1:9/livez does not answer with 200"
        await app.services.close()

    asyncio.run(scenario())


def test_the_settings_of_a_service_bus_are_checked_where_there_are_any(dsn: str, monkeypatch):
    def checks() -> dict[str, str]:
        async def scenario() -> dict[str, str]:
            app = make_gateway(load_settings(), None)
            state = await app.services.checks.state()
            await app.services.close()
            return {check.name: check.detail for check in state.checks}

        return asyncio.run(scenario())

    assert "service_bus" not in checks()
    assert checks()["env_vars"] == "DAGMASTER_DATABASE_URL is not set"
    monkeypatch.setenv("SERVICE_BUS_NAMESPACE", "my-namespace.servicebus.windows.net")
    assert checks()["service_bus"] == ""
    monkeypatch.setenv("SERVICE_BUS_CONNECTION_STRING", "SharedAccessKey=secret")
    assert checks()["service_bus"].startswith("SERVICE_BUS_CONNECTION_STRING is not one")


# ── Partners ──


def in_world(dsn: str, folder: Path, work: Callable[[GatewayWorld], Awaitable[None]]) -> None:
    gateway_dsn = as_gateway(dsn)

    async def scenario() -> None:
        async with opened_world(dsn, gateway_dsn, folder) as world:
            await work(world)

    asyncio.run(scenario())


def test_a_partner_submits_asks_and_sees_nothing_of_another(dsn: str, tmp_path: Path):
    async def work(world: GatewayWorld) -> None:
        answer = await world.post("/platform/submit", {**SUBMIT, "idempotency_key": "k1", "priority": 0})
        assert answer.status_code == 202, answer.text
        request_id = answer.json()["request_id"]
        again = await world.post("/platform/submit", {**SUBMIT, "idempotency_key": "k1", "priority": 0})
        assert again.content == answer.content
        other_body = await world.post("/platform/submit", {**SUBMIT, "idempotency_key": "k1", "priority": 1})
        assert (other_body.status_code, other_body.json()["code"]) == (409, "idempotency_conflict")
        (row,) = await execute(dsn, "SELECT r.tenant, j.id::text AS job_id, j.priority, j.submitted_by FROM dag_api_requests r JOIN dag_jobs j ON j.id = r.job_id")  # fmt: skip
        assert (row["tenant"], row["priority"], row["submitted_by"]) == (
            "acme",
            0,
            "acme/key:acme-submit-read",
        )
        status = await world.get(f"/platform/status/{request_id}")
        assert (status.status_code, status.json()["status"]) == (200, "pending")
        # Nobody else finds a trace of it.
        answers = [await world.get(f"/platform/status/{one}", "other") for one in (request_id, UNKNOWN, "x")]
        assert len({(one.status_code, one.content) for one in answers}) == 1
        assert answers[0].status_code == 404
        bodies = "".join(one.text + str(one.headers) for one in (answer, again, other_body, status, *answers))
        for canary in (row["job_id"], "canary_node", "canary-input", "dag_", "orchestrator"):
            assert canary not in bodies
        # An administrator sees it with everything.
        found = (await world.get(f"/status/lookup?correlation_id={request_id}", "admin")).json()
        assert [one["job_id"] for one in found["jobs"]] == [row["job_id"]]
        for path in ("", "/nodes", "/events"):
            assert (await world.get(f"/status/job/{row['job_id']}{path}", "admin")).status_code == 200
        nodes = (await world.get(f"/status/job/{row['job_id']}/nodes", "admin")).json()["nodes"]
        assert [(one["node_id"], one["status"]) for one in nodes] == [("canary_node", "PENDING")]
        assert (await world.get("/status/stats", "admin")).json() == {"total": 1, "by_status": {"PENDING": 1}}
        assert (await world.get("/status/jobs", "acme")).status_code == 403

    in_world(dsn, tmp_path, work)


def test_a_request_that_cannot_be_carried_out_is_recorded_and_says_why(dsn: str, tmp_path: Path):
    async def work(world: GatewayWorld) -> None:
        wrong = {**SUBMIT, "input_params": {"name": 3}}
        answer = await world.post("/platform/submit", wrong)
        assert (answer.status_code, answer.json()["code"]) == (422, "request_rejected")
        assert answer.json()["errors"] == [{"path": "input_params.name", "message": "3 is not text"}]
        status = (await world.get(f"/platform/status/{answer.json()['request_id']}")).json()
        assert (status["status"], status["error_code"], status["result"]) == (
            "failed",
            "inputs_invalid",
            None,
        )
        batch = await world.post(
            "/gateway/submit/batch", {"jobs": [SUBMIT, wrong, {**SUBMIT, "workflow_id": "no"}]}
        )
        assert [one["status"] for one in batch.json()["results"]] == ["accepted", "rejected", "rejected"]
        assert batch.json()["results"][2]["problem"]["errors"] == [{"path": "workflow_id", "message": "No workflow has this id."}]  # fmt: skip
        await execute(
            dsn,
            "UPDATE dag_tenants SET requests_per_day = 1 WHERE name = 'acme'",
            "DELETE FROM dag_tenant_usage",
        )
        await world.post("/platform/submit", SUBMIT)
        full = await world.post("/platform/submit", SUBMIT)
        assert (full.status_code, full.json()["code"]) == (429, "request_quota_exceeded")
        assert int(full.headers["retry-after"]) > 0

    in_world(dsn, tmp_path, work)


def test_a_link_of_a_callback_is_for_its_partner_and_for_a_while(dsn: str, tmp_path: Path):
    async def work(world: GatewayWorld) -> None:
        sandbox = {**SUBMIT, "sandbox": {"outcome": "failed"}}
        world.keys["sandbox"] = await add_key(dsn, "acme", Scope.SUBMIT, is_sandbox=True)
        request_id = result_key = ""
        for name, body in (("acme", SUBMIT), ("sandbox", sandbox)):
            accepted = await world.post("/platform/submit", body, name)
            assert accepted.status_code == 202, accepted.text
            request_id = accepted.json()["request_id"]
            query = f"SELECT result_key::text FROM dag_api_requests WHERE request_id = '{request_id}'"
            ((result_key,),) = await execute(dsn, query)
            valid, expired = (
                result_link("", result_key, request_id, int(time.time()) + seconds) for seconds in (3_600, -1)
            )
            status = await world.get(f"/platform/status/{request_id}", name)
            answer = await world.get(valid, name)
            assert (answer.status_code, answer.json()) == (200, status.json())
            assert result_key not in answer.text
            tampered = valid.replace("signature=", "signature=0")[:-1]
            unknown = result_link("", result_key, UNKNOWN, int(time.time()) + 3_600)
            asked = [(tampered, name), (unknown, name), (valid, "other"), (expired, "other")]
            answers = [await world.get(*one) for one in asked]
            answers.append(await world.get(f"/platform/status/{UNKNOWN}", name))
            assert {(one.status_code, one.content) for one in answers} == {(404, answers[0].content)}
            late = await world.get(expired, name)
            assert (late.status_code, late.json()["code"]) == (410, "result_link_expired")
        # A key that only submits sees what it sent itself.
        store = store_of(as_gateway_dsn)
        assert await store.result_key("acme", request_id, actor="acme/sandbox:acme-submit") == result_key
        assert await store.result_key("acme", request_id, actor="acme/key:another") is None
        await store.close()

    as_gateway_dsn = as_gateway(dsn)
    in_world(dsn, tmp_path, work)


def test_a_revoked_key_is_rejected_and_a_server_that_is_down_is_503(dsn: str, tmp_path: Path):
    async def work(world: GatewayWorld) -> None:
        await execute(dsn, "UPDATE dag_api_keys SET revoked_at = now() WHERE tenant = 'other'")
        await execute(dsn, "UPDATE dag_tenants SET disabled_at = now() WHERE name = 'acme'")
        disabled = await world.get(f"/platform/status/{UNKNOWN}")
        assert (disabled.status_code, disabled.json()["code"]) == (401, "api_key_rejected")
        await execute(dsn, "UPDATE dag_tenants SET disabled_at = NULL WHERE name = 'acme'")
        world.app.services.keys._guard._known = None  # type: ignore[union-attr]
        for key in ("other", None):
            answer = await world.get(f"/platform/status/{UNKNOWN}", key)
            assert (answer.status_code, answer.json()["code"]) == (401, "api_key_rejected")
        assert (await world.get(f"/platform/status/{UNKNOWN}")).status_code == 404
        object.__setattr__(world.app.services.upstream, "_base_url", "http://127.0.0.1:9")
        answer = await world.post("/platform/submit", SUBMIT)
        assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
        assert answer.headers["retry-after"] == "2"

    in_world(dsn, tmp_path, work)


def test_an_administrator_reaches_the_server_through_the_proxy(dsn: str, tmp_path: Path):
    async def work(world: GatewayWorld) -> None:
        answer = await world.get("/proxy/orchestrator/api/v1/workflows?limit=1", "admin")
        assert (answer.status_code, answer.json()["items"][0]["workflow_id"]) == (200, "hello")
        assert (await world.get("/proxy/orchestrator/api/v1/workflows", "acme")).status_code == 403
        health = (await world.get("/proxy/health", "admin")).json()
        assert [(one["target"], one["status_code"]) for one in health["targets"]] == [("orchestrator", 200)]
        config = await world.get("/admin/config", "admin")
        assert config.status_code == 200

    in_world(dsn, tmp_path, work)


def test_everybody_reads_public_keys_by_the_name_of_their_set(dsn: str, tmp_path: Path):
    async def work(world: GatewayWorld) -> None:
        ours, acmes = "0123456789aa", "0123456789bb"
        rows = ", ".join(
            f"('{name}', '{tenant}', 'ed25519', '{{}}', 'whpk_{tenant}', '{key_set}')"
            for name, tenant, key_set in ((ours, "default", str(uuid4())), (acmes, "acme", key_set_of_acme))
        )
        columns = "secret_id, tenant, kind, sealed, public_key, key_set"
        await execute(dsn, f"INSERT INTO dag_signing_secrets ({columns}) VALUES {rows}")
        for path, names in (("", [ours]), (f"/{key_set_of_acme}", [acmes]), (f"/{UNKNOWN}", [])):
            answer = await world.get(f"/.well-known/webhook-keys{path}", None)
            assert (answer.status_code, [one["key_id"] for one in answer.json()["keys"]]) == (200, names)

    key_set_of_acme = str(uuid4())
    in_world(dsn, tmp_path, work)


# ── The store ──


def test_the_reads_of_a_gateway_see_one_tenant(dsn: str):
    mine = as_gateway(dsn)
    jobs = ", ".join(
        f"({number}, 'w', 1, 'h', '{{}}', '{tenant}', '{status}', 'c', now(), {finished})"
        for number, tenant, status, finished in (
            (11, "acme", "PENDING", "NULL"),
            (12, "acme", "COMPLETED", "now()"),
            (13, "other", "FAILED", "now()"),
        )
    )

    async def scenario() -> None:
        await execute(
            dsn,
            "INSERT INTO dag_tenants (name) VALUES ('acme'), ('other')",
            """INSERT INTO dag_graphs (content_hash, definition) VALUES ('h', '{"nodes": {"b": {}, "a": {}}}')""",
            "INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, tenant, status, correlation_id,"
            f" created_at, finished_at) VALUES {jobs}",
            "INSERT INTO dag_node_states (job_id, node_id, status, attempt) VALUES (11, 'a', 'RUNNING', 1), (13, 'a', 'RUNNING', 1)",
            "INSERT INTO dag_job_events (job_id, seq, type, at, by) VALUES (11, 1, 'JobSubmitted', now(), 'x')",
        )
        store = store_of(mine)
        pages: dict[str, tuple[JobQueryRequest, list[str]]] = {
            "": (JobQueryRequest(limit=9), ["12", "11"]),
            "status": (JobQueryRequest(limit=9, status="COMPLETED"), ["12"]),
            "workflow": (JobQueryRequest(limit=9, workflow_id="w", offset=1), ["11"]),
            "both": (JobQueryRequest(limit=9, workflow_id="w", status="PENDING"), ["11"]),
            "neither": (JobQueryRequest(limit=9, workflow_id="w\0"), []),
            "open": (JobQueryRequest(limit=9, is_open=True), ["11"]),
        }
        for name, (query, expected) in pages.items():
            assert [one.job_id for one in await store.jobs("acme", query)] == expected, name
        assert [one.job_id for one in await store.jobs(ALL_TENANTS, JobQueryRequest(limit=2))] == ["13", "12"]
        assert await store.counts("acme") == {"PENDING": 1, "COMPLETED": 1}
        assert await store.counts("other") == {"FAILED": 1}
        assert await store.job("acme", "13") is None
        assert (await store.job("other", "13")) is not None
        assert await store.job("acme", "x") is None
        found = await store.find_jobs("acme", correlation_id="c", idempotency_key=None, limit=9)
        assert [one.job_id for one in found] == ["12", "11"]
        started = await store.started_nodes("acme", ["11", "12", "13"], limit=9)
        assert {job_id: [one.node_id for one in nodes] for job_id, nodes in started.items()} == {"11": ["a"], "12": [], "13": []}  # fmt: skip
        nodes = await store.nodes("acme", "11", after="", limit=9)
        assert nodes is not None
        assert [(one.node_id, one.status, one.attempt) for one in nodes] == [
            ("a", "RUNNING", 1),
            ("b", "PENDING", 0),
        ]
        nodes = await store.nodes("acme", "11", after="a", limit=9)
        assert [one.node_id for one in nodes or ()] == ["b"]
        assert await store.nodes("acme", "13", after="", limit=9) is None
        assert len(await store.events("acme", "11", after=0, limit=9) or ()) == 1
        assert await store.events("other", "11", after=0, limit=9) is None
        alive = await store.alive_services()
        assert (alive.orchestrators, alive.workers) == (0, 0)
        await store.close()

    asyncio.run(scenario())


def test_a_database_that_is_not_migrated_is_named(dsn: str):
    async def scenario() -> Any:
        await execute(dsn, "UPDATE alembic_version SET version_num = '0002'")
        settings = load_settings().model_copy(update={"orchestrator_url": "http://127.0.0.1:9"})
        app = make_gateway(settings, gateway_config(DatabaseConfig(dsn=mine)))
        state = await app.services.checks.state()
        await app.services.close()
        await execute(dsn, f"UPDATE alembic_version SET version_num = '{schema_version.HEAD}'")
        return {check.name: check.detail for check in state.checks}

    mine = as_gateway(dsn)
    assert "run `dagmaster migrate`" in asyncio.run(scenario())["database"]
