"""Who sees which rows is decided by PostgreSQL: each table, asked without any filter, as by an author who forgot it."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import pytest
from asyncpg.exceptions import InsufficientPrivilegeError

from dagmaster.bootstrap.serving import serving_config
from dagmaster.errors import StatementFailed, TenantsNotIsolated
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.tenants import ALL_TENANTS, API_ROLE, DEFAULT_TENANT
from dagmaster.store.postgres import connection as connection_module
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.isolation import read_isolation
from dagmaster.store.postgres.job_list import JobQuery
from dagmaster.store.postgres.named_queries import compile_query
from dagmaster.store.postgres.request_store import requests_query
from dagmaster.store.postgres.tenant_policies import HIDDEN, POLICIES, SHARED, wanted
from dagmaster.store.postgres.tenant_session import set_tenant
from tests.conformance.server import TEMPLATE, dsn_as, dsn_of
from tests.integration.test_named_queries import QUERIES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

JOB: Final = 117
NEEDED: Final = """
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type
FROM pg_attribute a
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity = ''
  AND ((a.attnotnull AND NOT a.atthasdef) OR a.attname IN ('tenant', 'job_id', 'owner', 'actor'))
"""
VALUES: Final = {
    "bigint": str(JOB),
    "integer": "1",
    "smallint": "1",
    "boolean": "false",
    "double precision": "1",
    "timestamp with time zone": "now()",
    "date": "now()",
    "json": "'{}'",
    "jsonb": "'{}'",
    "text": "'x'",
    "text[]": "'{x}'",
    "uuid": "'11111111-1111-1111-1111-111111111111'",
    "bytea": "'x'",
}
SPECIAL: Final = {
    "tenant": "'globex'",
    "owner": "'globex/key:x'",
    "actor": "'globex/key:x'",
    "status": "'COMPLETED'",
    "platform_id": "'x'",
    "state": "'accepted'",
    "namespace": "'key'",
    "kind": "'signal'",
    "previous_type": "0",
    "next_type": "0",
    "day": "now()",
}


async def fill(owner: asyncpg.Connection[Any], table: str) -> None:
    """Insert a row of the tenant globex."""
    if table == "dag_tenants":
        return
    if table == "dag_platforms":
        await owner.execute("UPDATE dag_tenants SET platforms = '{ddh}' WHERE name = 'globex'")
        return
    columns = {
        row["name"]: SPECIAL.get(row["name"], VALUES[row["type"]]) for row in await owner.fetch(NEEDED, table)
    }
    if table == "dag_jobs":
        columns |= {"id": str(JOB), "status": "'PENDING'"}
    await owner.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")


NO_CHECKS: Final = """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', c.conrelid::regclass, c.conname) FROM pg_constraint c
WHERE c.contype = 'c' AND c.connamespace = 'dagapp'::regnamespace
"""


@pytest.fixture(scope="module")
def filled(postgres: str) -> Iterator[str]:
    """Provide a database with rows of the tenant globex in each table, and of nobody else."""
    name = f"policies_{os.getpid()}"

    async def make() -> None:
        await in_database(postgres, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        owner = await connect(dsn_of(postgres, name))
        await owner.execute("INSERT INTO dag_tenants (name) VALUES ('acme'), ('globex')")
        await owner.execute("SET session_replication_role = replica")
        for row in await owner.fetch(NO_CHECKS):
            await owner.execute(row[0])
        await owner.execute("INSERT INTO dag_graphs (content_hash, definition) VALUES ('g', '{}')")
        for table in POLICIES:
            await fill(owner, table)
        await owner.close()

    asyncio.run(make())
    yield dsn_of(postgres, name)
    asyncio.run(in_database(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


async def connect(dsn: str) -> asyncpg.Connection[Any]:
    return await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})


async def in_database(dsn: str, *statements: str) -> None:
    connection = await connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def on_database(dsn: str, work: Callable[[asyncpg.Connection[Any]], Awaitable[None]]) -> None:
    """Run something in a transaction of the owner that is rolled back."""

    async def main() -> None:
        connection = await connect(dsn)
        transaction = connection.transaction()
        await transaction.start()
        try:
            await work(connection)
        finally:
            await transaction.rollback()
            await connection.close()

    asyncio.run(main())


NOT_DELETED = {"dag_callbacks", "dag_external_services", "dag_signing_secrets"}
"""Tables of which a server deletes nothing."""


async def as_tenant(connection: asyncpg.Connection[Any], tenant: str | None, statement: str) -> str:
    """Run a statement as a server does for a tenant; return what PostgreSQL says of it."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL ROLE {API_ROLE}")
        await connection.execute("SET LOCAL dagapp.tenant = ''" if tenant is None else set_tenant(tenant))
        answer = await connection.execute(statement)
        await connection.execute("RESET ROLE")
    return str(answer)


async def count(connection: asyncpg.Connection[Any], table: str, tenant: str | None) -> int:
    others = "WHERE name <> 'acme'" if table == "dag_tenants" else ""
    return int((await as_tenant(connection, tenant, f"SELECT FROM {table} {others}")).split()[1])


SHARED_BY_ALL: Final = frozenset({"dag_orchestrators"})
"""The services of the installation serve all tenants, which see that they live."""


@pytest.mark.parametrize("table", sorted(POLICIES.keys() - SHARED_BY_ALL))
def test_a_table_shows_and_gives_a_tenant_nothing_of_another(filled, table):
    """Asked without any filter. And a leak is noticed: with its policy opened, the same query shows the row."""

    async def work(connection: asyncpg.Connection[Any]) -> None:
        seen = [await count(connection, table, tenant) for tenant in (None, "acme", "globex", ALL_TENANTS)]
        assert seen[:2] == [0, 0]
        assert seen[2] >= 1
        assert seen[3] >= seen[2]
        if table != "dag_audit":
            where = "WHERE name <> 'acme'" if table == "dag_tenants" else ""
            if table in NOT_DELETED:
                with pytest.raises(InsufficientPrivilegeError):
                    await as_tenant(connection, "acme", f"DELETE FROM {table} {where}")
            else:
                assert await as_tenant(connection, "acme", f"DELETE FROM {table} {where}") == "DELETE 0"
        (name,) = [name for name, text in wanted(table, POLICIES[table]) if "FOR SELECT" in text]
        await connection.execute(f"ALTER POLICY {name} ON {table} USING (true)")
        assert await count(connection, table, "acme") >= 1

    on_database(filled, work)


def test_every_table_is_under_a_policy_or_has_no_rows_of_tenants(filled):
    async def work(connection: asyncpg.Connection[Any]) -> None:
        tables = {
            row["tablename"]
            for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'dagapp'")
        }
        assert tables == POLICIES.keys() | SHARED | HIDDEN
        for table in sorted(HIDDEN):
            with pytest.raises(InsufficientPrivilegeError):
                await as_tenant(connection, ALL_TENANTS, f"SELECT * FROM {table}")

    on_database(filled, work)


CONDITION: Final = re.compile(
    r"\b(?:\w+\.)?tenant (?:=|<>|IN) (?:\((?:[^()]|\([^()]*\))*\)|(?:dagapp\.)?\w+\((?:[^()]|\([^()]*\))*\)|[$\w.:']+)"
)
"""A condition of a statement that names a tenant: by a parameter, by a column, or by a function."""


def without_filters() -> Iterator[tuple[str, str]]:
    """Yield each statement as often as it has conditions on tenants, each time without one of them."""
    jobs = [JobQuery(JobFilter(tenant=tenant)) for tenant in ("acme", DEFAULT_TENANT)]
    lists = [query for job in jobs for query in (job.page(10)[0], job.counts()[0])]
    for query in [*QUERIES, *lists, requests_query(("tenant",)), requests_query(("tenant", "actor"))]:
        text = query.sql
        for condition in CONDITION.finditer(text):
            yield (
                f"{query.name}: {condition[0]}",
                f"{text[: condition.start()]}({condition[0]} OR true){text[condition.end() :]}",
            )


ARGUMENTS: Final = {"text": "x", "int8": JOB, "int4": 1, "float8": 1.0, "text[]": ["x"], "bool": True}
"""Which rows are asked for: those that `fill` made. Without arguments nothing filters, and nothing is limited."""
CHANGED: Final = """
SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) FROM pg_stat_xact_user_tables WHERE schemaname = 'dagapp' AND relname <> 'dag_tenants'
"""


def test_no_statement_shows_or_changes_a_row_of_another_tenant_when_a_filter_is_removed(filled):
    """All rows are those of globex. The same statements find and change them as the owner, for whom there are no policies."""

    async def work(connection: asyncpg.Connection[Any]) -> None:
        count, shown, changed = 0, 0, 0
        for (name, text), arguments in itertools.product(without_filters(), ({}, ARGUMENTS)):
            count += 1
            seen = await traces_of_globex(connection, text, arguments, is_owner=False)
            assert seen == ("", 0), (name, arguments)
            trace, changes = await traces_of_globex(connection, text, arguments, is_owner=True)
            shown, changed = shown + bool(trace), changed + bool(changes)
        assert min(count // 80, shown // 10, changed) > 0, (count, shown, changed)

    on_database(filled, work)


async def traces_of_globex(
    connection: asyncpg.Connection[Any], text: str, arguments: Mapping[str, Any], *, is_owner: bool
) -> tuple[str, int]:
    """Run a statement as a server does for acme, or as the owner; return what it shows of globex and how much it changed."""
    transaction = connection.transaction()
    await transaction.start()
    before = await connection.fetchval(CHANGED)
    try:
        await connection.execute("SET LOCAL statement_timeout = '5s'")
        if not is_owner:
            await connection.execute(f"SET LOCAL ROLE {API_ROLE}")
            await connection.execute(set_tenant("acme"))
        statement = await connection.prepare(text)
        values = [arguments.get(parameter.name) for parameter in statement.get_parameters()]
        shown = str(await statement.fetch(*values))
        changes = int(await connection.fetchval(CHANGED) - before)
    except asyncpg.PostgresError as error:
        shown, changes = str(error), 0
    finally:
        await transaction.rollback()
    return (shown if "globex" in shown else ""), changes


WORKFLOW: Final = (
    "INSERT INTO dag_workflows (workflow_id, tenant, version, content_hash, is_active)"
    " VALUES ('w', '{}', 2, 'g', false)"
)
COMMAND: Final = "INSERT INTO dag_inbox (job_id, kind, body, sent_by) VALUES (117, 'signal', '{}', 'x')"


@pytest.mark.parametrize(
    "statement",
    [
        COMMAND,
        WORKFLOW.format("globex"),
        WORKFLOW.format("default"),
        "INSERT INTO dag_tenants (name) VALUES ('other')",
    ],
)
def test_a_tenant_inserts_no_row_of_another(filled, statement):
    async def work(connection: asyncpg.Connection[Any]) -> None:
        with pytest.raises(InsufficientPrivilegeError, match="row-level security"):
            await as_tenant(connection, "acme", statement)
        await as_tenant(connection, "acme", WORKFLOW.format("acme"))

    on_database(filled, work)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dag_jobs SET tenant = 'acme'",
        "UPDATE dag_api_keys SET scopes = '{admin}'",
        "UPDATE dag_tenants SET max_open_jobs = NULL",
        "UPDATE dag_orchestrators SET drain_requested_at = now()",
        "UPDATE dag_workers SET drain_requested_at = now()",
    ],
)
def test_a_tenant_changes_no_row_of_another(filled, statement):
    async def work(connection: asyncpg.Connection[Any]) -> None:
        assert await as_tenant(connection, "acme", statement) == "UPDATE 0"

    on_database(filled, work)


JOBS: Final = compile_query("test.jobs", "SELECT id FROM dag_jobs")
WRONG: Final = compile_query("test.wrong", "SELECT id / 0 FROM dag_jobs")


@pytest.mark.parametrize("reads", [True, False])
def test_the_tenant_of_a_transaction_is_not_that_of_the_next_one(filled, reads):
    """Also after an error, and whether the end of the transaction was waited for or not."""

    async def main() -> None:
        connection = Connection(DatabaseConfig(dsn=filled, role=API_ROLE), "test", reads=reads)
        try:
            for tenant, expected in (("globex", 1), (None, 0), ("acme", 0), ("*", 1), (None, 0)):
                assert len(await connection.fetch(JOBS, {}, tenant=tenant)) == expected
            with pytest.raises(StatementFailed):
                await connection.fetch(WRONG, {}, tenant="globex")
            assert await connection.fetch(JOBS, {}) == []
            rows = await connection.execute_in_transaction([(JOBS, {})], tenant="globex")
            assert (len(rows), await connection.execute_in_transaction([(JOBS, {})])) == (1, [])
        finally:
            await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("reads", [True, False])
def test_a_transaction_that_cannot_begin_is_rolled_back_and_its_connection_is_used_again(
    filled, reads, monkeypatch
):
    async def main() -> None:
        connection = Connection(DatabaseConfig(dsn=filled, role=API_ROLE), "test", reads=reads)
        try:
            assert len(await connection.fetch(JOBS, {}, tenant="globex")) == 1
            with monkeypatch.context() as patch:
                # The first statement is done, so a transaction is open when the second one fails.
                patch.setattr(
                    connection_module,
                    "set_tenant",
                    lambda _tenant: "SET LOCAL dagapp.tenant = 'globex'; SELECT 1 / 0",
                )
                with pytest.raises(StatementFailed):
                    await connection.fetch(JOBS, {}, tenant="acme")
            assert connection.losses == 0
            for tenant, expected in ((None, 0), ("acme", 0), ("globex", 1)):
                assert len(await connection.fetch(JOBS, {}, tenant=tenant)) == expected
        finally:
            await connection.close()

    asyncio.run(main())


def test_a_name_that_is_no_tenant_is_not_written_into_a_statement():
    for name in ("", "a'; SELECT 1", "A", "x" * 33, "*;"):
        with pytest.raises(ValueError, match="not the name of a tenant"):
            set_tenant(name)


@pytest.fixture
def user(filled: str) -> Iterator[Callable[[str], str]]:
    """Provide a function that makes a user of the database with some rights, and returns its DSN."""
    made: list[str] = []

    def make(rights: str) -> str:
        made.append(f"tenant_user_{os.getpid()}_{len(made)}")
        asyncio.run(in_database(filled, f"CREATE ROLE {made[-1]} LOGIN {rights}"))
        return dsn_as(filled, made[-1])

    yield make
    for name in made:
        asyncio.run(in_database(filled, f"DROP OWNED BY {name}", f"DROP ROLE {name}"))


@pytest.mark.parametrize(
    ("rights", "reason"),
    [
        ("SUPERUSER", "is a superuser"),
        ("BYPASSRLS IN ROLE dagmaster_api", "has BYPASSRLS"),
        ("IN ROLE dagmaster", "owns the tables"),
        ("IN ROLE dagmaster_orchestrator", "serves all tenants as an orchestrator or a worker"),
        (
            "IN ROLE dagmaster_orchestrator, dagmaster_api",
            "serves all tenants as an orchestrator or a worker",
        ),
    ],
)
def test_a_user_who_would_see_all_tenants_is_noticed(user, rights, reason):
    isolation = asyncio.run(read_isolation(DatabaseConfig(dsn=user(rights))))
    assert (isolation.is_enforced, isolation.is_safe, isolation.tenants) == (False, False, 3)
    assert reason in isolation.problem


def test_a_server_that_cannot_keep_tenants_apart_does_not_start(user, dsn):
    refused = DatabaseConfig(dsn=user("IN ROLE dagmaster_orchestrator"))
    with pytest.raises(TenantsNotIsolated, match="run `dagmaster migrate --roles`"):
        asyncio.run(serving_config(refused))
    # With the role of servers, it takes that one on.
    both = DatabaseConfig(dsn=user("IN ROLE dagmaster_orchestrator, dagmaster_api"))
    assert asyncio.run(read_isolation(asyncio.run(serving_config(both)))).user == API_ROLE
    # One tenant alone needs no roles.
    name = refused.dsn.rpartition("user=")[2]
    assert asyncio.run(serving_config(DatabaseConfig(dsn=dsn_as(dsn, name)))).role == API_ROLE


def test_a_connection_that_cannot_take_on_the_role_runs_no_statement_of_a_tenant(user):
    async def main(config: DatabaseConfig) -> None:
        connection = Connection(config, "test")
        try:
            with pytest.raises(TenantsNotIsolated):
                await connection.fetch(JOBS, {}, tenant="acme")
            assert len(await connection.fetch(JOBS, {}, tenant=ALL_TENANTS)) == 1
        finally:
            await connection.close()

    asyncio.run(main(DatabaseConfig(dsn=user("IN ROLE dagmaster_orchestrator"), role=API_ROLE)))
