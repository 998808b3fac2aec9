"""The schema on a real server: versions, invariants that the database itself keeps, and who may do what."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import Any

import asyncpg
import pytest
from asyncpg.exceptions import CheckViolationError, InsufficientPrivilegeError, UniqueViolationError
from click.testing import CliRunner

from dagmaster.application.health import HealthMonitor
from dagmaster.cli.commands.services import warn_about_versions
from dagmaster.cli.main import cli
from dagmaster.errors import DatabaseReadOnly, DatabaseUnavailable, SchemaVersionMismatch
from dagmaster.local.memory_services import memory_services
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.job_columns import Use, column_names
from dagmaster.ports.tenants import Isolation
from dagmaster.sdk.handler_registry import Registry
from dagmaster.settings import load_settings
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import roles, schema_version
from dagmaster.store.postgres.schema_admin import PostgresSchemaAdmin
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import server_folder


@pytest.fixture(scope="module")
def server():
    with server_folder() as folder, EmbeddedPostgres(folder / "data") as running:
        yield running.dsn


@pytest.fixture
def empty(server):
    """Provide a database of its own."""
    name = f"t{next(_names)}"
    do(server, f"CREATE DATABASE {name}")
    yield server.replace("/dagmaster?", f"/{name}?")
    do(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def migrated(server):
    schema_version.upgrade(server)
    asyncio.run(roles.apply_roles(server, is_exact=True))
    return server


_names = iter(range(1, 1000))


def do(dsn: str, *statements: str) -> Any:
    async def work() -> Any:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        try:
            rows = None
            for statement in statements:
                rows = await connection.fetch(statement)
            return rows
        finally:
            await connection.close()

    return asyncio.run(work())


def described(dsn: str) -> list[str]:
    """Every column, constraint and index of the schema, as text."""
    rows = do(
        dsn,
        """
        SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable AS description
        FROM information_schema.columns WHERE table_schema = 'dagapp'
        UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'dagapp'::regnamespace
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'dagapp' ORDER BY 1
        """,
    )
    return [row["description"] for row in rows]


def test_an_empty_database_has_no_version_and_is_refused_with_what_to_do(empty):
    assert asyncio.run(schema_version.current(empty)) is None
    with pytest.raises(SchemaVersionMismatch, match="run `dagmaster migrate`"):
        asyncio.run(schema_version.require_current(empty))


def test_a_migrated_database_is_current(empty):
    schema_version.upgrade(empty)
    assert asyncio.run(schema_version.current(empty)) == schema_version.HEAD
    asyncio.run(schema_version.require_current(empty))


def test_the_newest_version_in_the_code_is_the_newest_file():
    assert [version.revision for version in schema_version.history(None)][-1] == schema_version.HEAD


def test_a_downgrade_and_an_upgrade_restore_the_same_schema(empty):
    schema_version.upgrade(empty)
    before = described(empty)
    schema_version.downgrade(empty, "base")
    assert [line for line in described(empty) if "alembic_version" not in line] == []
    schema_version.upgrade(empty)
    assert described(empty) == before


def test_the_command_migrates_to_a_revision_and_shows_where_it_is(empty, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", empty)

    def migrate(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["migrate", *arguments])
        return result.exit_code, result.output.strip()

    done = subprocess.run(
        [sys.executable, "-m", "dagmaster", "migrate", "upgrade", "0002"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "schema version: none -> 0002"
    assert migrate("current") == (0, f"0002 (this code needs {schema_version.HEAD})")
    _, history = migrate("history")
    assert [line.split()[:2] for line in history.splitlines()][:2] == [["0001", "The"], ["*", "0002"]]
    assert migrate() == (0, f"schema version: 0002 -> {schema_version.HEAD}")
    assert migrate() == (0, f"schema version: {schema_version.HEAD}; nothing to do")
    # It asks first, and there is no answer.
    assert migrate("downgrade", "0002")[0] != 0
    assert migrate("downgrade", "0002", "--yes") == (0, f"schema version: {schema_version.HEAD} -> 0002")
    code, message = migrate("upgrade", "nonsense")
    assert code != 0
    assert "'nonsense': the schema versions are base, 0001, 0002" in message


def test_a_newer_schema_that_is_compatible_with_this_code_is_accepted(empty):
    schema_version.upgrade(empty)
    do(empty, "UPDATE alembic_version SET version_num = '9999'")
    asyncio.run(schema_version.require_current(empty))


@pytest.mark.parametrize(
    ("version", "message"), [("0000", "run `dagmaster migrate`"), ("9999", "upgrade dagmaster")]
)
def test_an_older_or_newer_schema_is_refused_with_what_to_do(empty, version, message):
    schema_version.upgrade(empty)
    do(empty, f"UPDATE alembic_version SET version_num = '{version}'")
    do(
        empty,
        f"CREATE OR REPLACE FUNCTION dag_compatible_from() RETURNS text LANGUAGE sql AS $$ SELECT '{version}' $$",
    )
    with pytest.raises(SchemaVersionMismatch, match=message):
        asyncio.run(schema_version.require_current(empty))


def test_an_unknown_version_is_answered_with_the_known_ones(empty):
    with pytest.raises(SchemaVersionMismatch, match="base, 0001"):
        schema_version.upgrade(empty, "nope")


def test_a_server_that_is_not_there_is_one_sentence():
    with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
        asyncio.run(schema_version.current("postgresql://nobody@127.0.0.1:1/x"))


def test_services_that_start_at_once_migrate_once(empty):
    code = (
        "import sys; from dagmaster.store.postgres import schema_version; schema_version.upgrade(sys.argv[1])"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, empty], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    message = [process.communicate(timeout=PATIENCE_SECONDS)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0], message
    assert asyncio.run(schema_version.current(empty)) == schema_version.HEAD


SHOWN = ", ".join(column_names(Use.SHOW))
ENTRY, VALUES = "actor, action, object_kind, object_id", "'ada', 'job.cancel', 'job', '1'"
GRAPH = "INSERT INTO dag_graphs VALUES ('h', '{}') ON CONFLICT DO NOTHING"


def a_job(**columns: str) -> str:
    row = {
        "id": "1",
        "name": "'w'",
        "workflow_id": "'w'",
        "version": "1",
        "content_hash": "'h'",
        "inputs": "'{}'",
        "created_at": "now()",
    }
    row |= columns
    return f"INSERT INTO dag_jobs ({', '.join(row)}) VALUES ({', '.join(row.values())})"


def a_node(**columns: str) -> str:
    row = {"job_id": "1", "node_id": "'n'", "status": "'PENDING'"} | columns
    return f"INSERT INTO dag_node_states ({', '.join(row)}) VALUES ({', '.join(row.values())})"


@contextlib.contextmanager
def refused(*errors: type[Exception]):
    with pytest.raises(errors):
        yield


@pytest.mark.parametrize(
    "statement",
    [
        a_job(status="'COMPLETED'"),
        a_job(finished_at="now()"),
        a_job(status="'DONE'"),
        a_job(priority="11"),
        a_job(depth="8"),
        a_job(parent_node_id="'n'"),
        a_node(status="'COMPLETED'"),
        a_node(finished_seq="1"),
        a_node(status="'SKIPPED'", finished_seq="1"),
        a_node(skip_reason="'not_taken'"),
        a_node(failed_attempts="1"),
        a_node(wake_at="now()"),
        a_node(output="'{}'", output_ref="'x'"),
        *(
            f"INSERT INTO {table} ({key}, host, pid, version, {more} started_at, heartbeat_at, {column})"
            f" VALUES (1, 'h', 1, '1', {values} now(), now(), now())"
            for table, key, more, values, column in (
                ("dag_orchestrators", "owner_id", "", "", "drain_seen_at"),
                ("dag_workers", "worker_id", "queues, concurrency,", "'{}', 1,", "drain_seen_at"),
                ("dag_workers", "worker_id", "queues, concurrency,", "'{}', 1,", "drain_deadline_at"),
            )
        ),
        "INSERT INTO dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params, timeout_seconds, dispatched_at, worker_id) VALUES (1, 1, 'n', 1, 'q', 5, 'h', '{}', 1, now(), 7)",
    ],
)
def test_the_database_itself_refuses_what_must_never_be(migrated, statement):
    with refused(CheckViolationError):
        do(migrated, "BEGIN", GRAPH, a_job(id="1") if "dag_jobs" not in statement else "SELECT 1", statement)


def test_one_version_of_a_workflow_is_active(migrated):
    with refused(UniqueViolationError):
        do(
            migrated,
            "BEGIN",
            GRAPH,
            "INSERT INTO dag_workflows (workflow_id, version, content_hash, is_active) VALUES ('w', 1, 'h', true), ('w', 2, 'h', true)",
        )


def test_a_key_makes_one_job_for_one_submitter(migrated):
    mine = {"idempotency_key": "'k'", "submitted_by": "'ada'"}
    with refused(UniqueViolationError):
        do(migrated, "BEGIN", GRAPH, a_job(**mine), a_job(id="2", **mine))
    do(
        migrated,
        "BEGIN",
        GRAPH,
        a_job(**mine),
        a_job(id="2", idempotency_key="'k'", submitted_by="'bob'"),
        "ROLLBACK",
    )


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("dagmaster_gateway", "DELETE FROM dag_jobs"),
        ("dagmaster_gateway", "UPDATE dag_jobs SET priority = 1"),
        (
            "dagmaster_gateway",
            "INSERT INTO dag_inbox (job_id, kind, body, created_at) VALUES (1, 'cancel', '{}', now())",
        ),
        ("dagmaster_gateway", "SELECT inputs FROM dag_jobs"),
        ("dagmaster_gateway", "SELECT * FROM dag_secret_keys"),
        ("dagmaster_worker", "SELECT inputs FROM dag_jobs"),
        ("dagmaster_worker", "SELECT * FROM dag_secret_keys"),
        ("dagmaster_gateway", "SELECT * FROM dag_task_queue"),
        ("dagmaster_gateway", "SELECT * FROM dag_checkpoints"),
        ("dagmaster_worker", "DELETE FROM dag_task_queue"),
        ("dagmaster_worker", "UPDATE dag_workers SET stopped_at = now()"),
        ("dagmaster_worker", "UPDATE dag_node_states SET status = 'COMPLETED'"),
        (
            "dagmaster_worker",
            "INSERT INTO dag_job_events (job_id, seq, type, at, by) VALUES (1, 1, 'x', now(), 'x')",
        ),
        ("dagmaster_worker", "SELECT * FROM dag_jobs"),
        ("dagmaster_orchestrator", "UPDATE alembic_version SET version_num = 'x'"),
        ("dagmaster_orchestrator", "DROP TABLE dag_jobs"),
        ("dagmaster_orchestrator", "UPDATE dag_audit SET actor = 'mallory'"),
        ("dagmaster_orchestrator", "DELETE FROM dag_audit"),
        ("dagmaster_orchestrator", "TRUNCATE dag_audit"),
        ("dagmaster_orchestrator", "ALTER TABLE dag_audit DISABLE TRIGGER ALL"),
        (
            "dagmaster_orchestrator",
            f"INSERT INTO dag_audit (id, at, {ENTRY}) OVERRIDING SYSTEM VALUE VALUES (1, now(), {VALUES})",
        ),
        ("dagmaster_worker", f"INSERT INTO dag_audit ({ENTRY}) VALUES ({VALUES})"),
        ("dagmaster_worker", "SELECT * FROM dag_audit"),
        ("dagmaster_worker", "SELECT * FROM dag_api_keys"),
        ("dagmaster_gateway", f"INSERT INTO dag_audit ({ENTRY}) VALUES ({VALUES})"),
        ("dagmaster_gateway", "SELECT * FROM dag_audit"),
        ("dagmaster_gateway", "SELECT * FROM dag_api_keys"),
    ],
)
def test_a_role_cannot_do_what_it_must_not(migrated, role, statement):
    with refused(InsufficientPrivilegeError):
        do(migrated, "BEGIN", f"SET LOCAL ROLE {role}", statement)


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("dagmaster_api", f"SELECT {SHOWN} FROM dag_jobs"),
        ("dagmaster_gateway", "SELECT id, workflow_id, status, error FROM dag_jobs"),
        ("dagmaster_orchestrator", "SELECT inputs FROM dag_jobs"),
        ("dagmaster_worker", "SELECT * FROM alembic_version"),
        ("dagmaster_orchestrator", "DELETE FROM dag_task_results"),
        ("dagmaster_orchestrator", f"INSERT INTO dag_audit ({ENTRY}) VALUES ({VALUES})"),
        ("dagmaster_orchestrator", "SELECT * FROM dag_audit"),
    ],
)
def test_a_role_can_do_what_it_is_for(migrated, role, statement):
    do(migrated, "BEGIN", f"SET LOCAL ROLE {role}", statement, "ROLLBACK")


@pytest.mark.parametrize(
    "statement", ["UPDATE dag_audit SET actor = 'mallory'", "DELETE FROM dag_audit", "TRUNCATE dag_audit"]
)
def test_the_audit_trail_is_append_only_even_for_the_owner_of_the_database(migrated, statement):
    with pytest.raises(InsufficientPrivilegeError, match="append-only"):
        do(migrated, "BEGIN", f"INSERT INTO dag_audit ({ENTRY}) VALUES ({VALUES})", statement)


def test_sql_asks_one_function_for_the_time_and_a_test_can_set_it(migrated):
    rows = do(
        migrated,
        "SET dagapp.clock_offset = '3600'",
        "SELECT extract(epoch FROM clock() - clock_timestamp())::int AS ahead",
    )
    assert rows[0]["ahead"] in (3599, 3600)


def test_a_database_that_accepts_no_changes_is_called_a_standby(empty):
    """Services do not start on it, it is not ready, and a statement that meets it says so."""
    schema_version.upgrade(empty)
    name = asyncio.run(_current_database(empty))
    do(empty, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(DatabaseReadOnly, match=r"this is a standby, .* promote this one"):
        asyncio.run(schema_version.require_current(empty))
    state = asyncio.run(PostgresSchemaAdmin(DatabaseConfig(dsn=empty)).state())
    assert (state.is_usable, state.is_read_only) == (True, True)

    class Schema:
        async def state(self) -> Any:
            return state

        async def isolation(self) -> Isolation:
            return Isolation()

    view = asyncio.run(HealthMonitor(memory_services(Registry()).application, Schema()).check_readiness())  # type: ignore[arg-type]
    assert (view.is_ready, "database" in view.failing) == (False, True)


async def _current_database(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval("SELECT current_database()"))
    finally:
        await connection.close()


def test_a_migration_that_live_services_could_not_follow_is_refused_and_names_them(empty, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", empty)

    def migrate(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["migrate", *arguments])
        return result.exit_code, result.output.strip()

    assert migrate()[0] == 0
    do(
        empty,
        "INSERT INTO dag_orchestrators (owner_id, host, pid, version, started_at, heartbeat_at)"
        " VALUES (1, 'here', 7, '0.1.9', now(), now())",
    )
    code, message = migrate("downgrade", "0002", "--yes")
    assert code != 0
    assert "1 service could not use the schema 0002: orchestrator here:7 (0.1.9). Stop them first" in message
    # An upgrade keeps them working, and a dead one does not count.
    assert migrate()[0] == 0
    do(empty, "UPDATE dag_orchestrators SET heartbeat_at = now() - interval '1 hour'")
    assert migrate("downgrade", "0002", "--yes")[0] == 0
    do(empty, "UPDATE dag_orchestrators SET heartbeat_at = now()")
    assert migrate("downgrade", "base", "--yes")[0] != 0
    assert migrate("downgrade", "base", "--yes", "--force")[0] == 0


def test_which_migrations_break_services(migrated):
    (row,) = do(migrated, "SELECT dag_compatible_from() AS revision")
    assert row["revision"] == schema_version.COMPATIBLE_FROM
    before = [None, "0001", "0002", schema_version.HEAD]
    assert [schema_version.breaks_services(one, "head") for one in before] == [False, True, False, False]
    assert [schema_version.breaks_services(one, "0002") for one in before] == [False, True, False, True]


def test_a_service_that_starts_names_live_ones_of_other_versions(empty, caplog):
    schema_version.upgrade(empty)
    config, settings = DatabaseConfig(dsn=empty), load_settings()
    asyncio.run(warn_about_versions(config, settings))
    assert caplog.messages == []
    do(
        empty,
        "INSERT INTO dag_orchestrators (owner_id, host, pid, version, started_at, heartbeat_at)"
        " VALUES (1, 'old', 7, '0.0.1', now(), now())",
    )
    asyncio.run(warn_about_versions(config, settings))
    (message,) = caplog.messages
    assert message.endswith("; other versions are alive: orchestrator old:7 (0.0.1)")
