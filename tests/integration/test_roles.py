"""`dagmaster migrate` and the roles: who creates them, and what becomes of workers of the version before."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from asyncpg.exceptions import InsufficientPrivilegeError
from click.testing import CliRunner

from dagmaster.cli.main import cli
from dagmaster.ports.schema_admin import ROLES
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import roles, schema_version
from tests.conformance.server import dsn_as, dsn_of
from tests.server_folders import server_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Provide a server for this module: roles belong to all databases of a server."""
    with server_folder() as folder, EmbeddedPostgres(folder / "data") as running:
        do(running.dsn, "CREATE ROLE app LOGIN")
        yield running.dsn


@pytest.fixture
def database(server: str) -> Iterator[str]:
    """Provide a database of an owner who may not create roles, on a server without the roles."""
    name = f"roles{next(_NUMBERS)}"
    do(server, f"CREATE DATABASE {name} OWNER app")
    dsn = dsn_of(server, name)
    try:
        yield dsn
    finally:
        do(server, f"DROP DATABASE {name} WITH (FORCE)")
        for row in do(
            server, "SELECT rolname FROM pg_roles WHERE rolname LIKE 'dagmaster\\_%' OR rolname LIKE 'my\\_%'"
        ):
            do(server, f"DROP OWNED BY {row['rolname']}", f"DROP ROLE {row['rolname']}")


def do(dsn: str, *statements: str) -> Any:
    async def work() -> Any:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        try:
            return [await connection.fetch(statement) for statement in statements][-1]
        finally:
            await connection.close()

    return asyncio.run(work())


def migrate(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["migrate", *arguments], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output


def test_an_owner_who_may_not_create_roles_is_told_what_an_administrator_runs(database, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", dsn_as(database, "app"))
    code, output = migrate()
    assert code == 0
    assert "and app may not create roles" in output
    code, _ = migrate("--roles")
    assert code == 1
    # The printed statements are what the administrator needs, and all of it.
    printed = [line.strip() for line in output.splitlines() if line.startswith("    ")]
    assert len(printed) == len(ROLES)
    do(database, *printed, "CREATE ROLE my_worker LOGIN", "GRANT dagmaster_worker TO my_worker")
    assert migrate("--roles")[0] == 0
    mine = dsn_as(database, "my_worker")
    assert do(mine, "SELECT version_num FROM alembic_version")[0][0] == schema_version.HEAD
    with pytest.raises(InsufficientPrivilegeError):
        do(mine, "SELECT * FROM dag_workers")
    assert "nothing to do" in migrate()[1]
    (entry,) = do(database, "SELECT action FROM dag_audit WHERE action = 'schema.roles'")
    assert entry["action"] == "schema.roles"


def test_roles_that_are_made_later_get_what_a_migration_with_roles_gives(database):
    def rights() -> set[str]:
        grants = """
            SELECT c.relname || ' ' || a.grantee::regrole || ' ' || a.privilege_type AS text
            FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
            WHERE c.relnamespace = 'dagapp'::regnamespace AND a.grantee <> c.relowner
            UNION ALL SELECT c.relname || '.' || t.attname || ' ' || a.grantee::regrole || ' ' || a.privilege_type
            FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid CROSS JOIN LATERAL aclexplode(t.attacl) a
            WHERE c.relnamespace = 'dagapp'::regnamespace
            UNION ALL SELECT p.proname || ' ' || p.proacl::text FROM pg_proc p
            WHERE p.pronamespace = 'dagapp'::regnamespace AND p.proacl IS NOT NULL
        """
        return {
            row["text"].replace("dagmaster=", "app=").replace("/dagmaster", "/app")
            for row in do(database, grants)
        }

    # An administrator's migration creates the roles in its first version.
    schema_version.upgrade(database)
    asyncio.run(roles.apply_roles(database, is_exact=True))
    at_once = rights()
    assert len(at_once) > 100
    schema_version.downgrade(database, "base")
    do(database, *(f"DROP OWNED BY {role}" for role in ROLES), *(f"DROP ROLE {role}" for role in ROLES))
    schema_version.upgrade(database)
    asyncio.run(roles.apply_roles(database, is_exact=True))
    assert rights() == at_once


def test_a_worker_of_the_version_before_keeps_its_rights_until_all_are_replaced(database, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", database)
    schema_version.upgrade(database, "0009")
    do(database, "CREATE ROLE my_worker LOGIN", "GRANT dagmaster_worker TO my_worker")
    heartbeat = "UPDATE dag_workers SET heartbeat_at = now() WHERE worker_id = 1"
    code, output = migrate()
    assert (code, "run `dagmaster migrate --roles`" in output) == (0, True)
    do(dsn_as(database, "my_worker"), heartbeat)
    code, output = migrate("--roles")
    assert (code, "have the rights of this version" in output) == (0, True)
    with pytest.raises(InsufficientPrivilegeError):
        do(dsn_as(database, "my_worker"), heartbeat)
    # Back to the version before, whose workers need these rights.
    assert migrate("downgrade", "0009", "--yes")[0] == 0
    do(dsn_as(database, "my_worker"), heartbeat)


def test_a_role_that_nobody_has_loses_its_rights_on_tables_at_once(database, monkeypatch):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", database)
    schema_version.upgrade(database, "0009")
    assert "roles" not in migrate()[1]
    ask = "SELECT has_table_privilege('dagmaster_worker', 'dag_task_queue', 'DELETE')"
    assert do(database, ask)[0][0] is False


def test_who_does_not_own_the_schema_is_told_who_does(database, monkeypatch):
    schema_version.upgrade(database)
    do(database, "CREATE ROLE my_service LOGIN", "GRANT dagmaster_orchestrator TO my_service")
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", dsn_as(database, "my_service"))
    assert migrate()[0] == 0
    code, output = migrate("--roles")
    assert (code, "The schema belongs to dagmaster" in output) == (1, True)
