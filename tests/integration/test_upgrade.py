"""A database of the schema before, with open jobs: it is upgraded, its jobs complete, and it can be downgraded."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from dagmaster.adapters.secret_keys import KeySource, new_key
from dagmaster.adapters.secret_vault import KeyVault
from dagmaster.authoring.compiler.compile import compile_definition, compile_text
from dagmaster.errors import SecretsKeyMissing
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.secret_vault import InputOwner, read_sealed, seal_inputs
from dagmaster.store.memory.output_blobs import MemoryBlobs
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore
from dagmaster.store.postgres.read_store import PostgresReadStore
from dagmaster.store.postgres.secret_keys import PostgresSecretKeys
from dagmaster.store.postgres.worker_store import PostgresWorkerStore
from tests.conformance.jobs import Played
from tests.conformance.server import dsn_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

GRAPH = compile_text(
    "{name: old, nodes: {a: {handler: h, queue: q, next: b}, b: {handler: h, queue: q}}}"
).graph
# A job whose first task came back unfinished, as the code before wrote it: one such attempt was processed, one was not.
OLD_ROWS = """
INSERT INTO dag_graphs (content_hash, definition) VALUES ('{hash}', '{definition}');
INSERT INTO dag_jobs (id, workflow_id, version, content_hash, status, inputs, submitted_by, idempotency_key, event_seq,
                      created_at, started_at)
VALUES (1, 'old', 1, '{hash}', 'RUNNING', '{{}}', 'ada', 'k', 6, now(), now());
INSERT INTO dag_node_states (job_id, node_id, status, attempt, task_id, tries_used, lost_used)
VALUES (1, 'a', 'DISPATCHED', 2, 12, 0, 0);
INSERT INTO dag_task_attempts (job_id, node_id, attempt, task_id, queue, status, dispatched_at, completed_at)
VALUES (1, 'a', 1, 11, 'q', 'HANDED_BACK', now(), now());
INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)
VALUES (1, 'a', 2, 12, 'q', 'HANDED_BACK', now(), now());
INSERT INTO dag_job_events (job_id, seq, type, at, by, node_id, attempt, data) VALUES
    (1, 1, 'JobSubmitted', now(), 'ada', NULL, NULL, NULL), (1, 2, 'JobClaimed', now(), 'o', NULL, NULL, '{{"epoch": 1}}'),
    (1, 3, 'JobStarted', now(), 'o', NULL, NULL, NULL), (1, 4, 'CommandRefused', now(), 'o', NULL, NULL, '{{"why": "no"}}'),
    (1, 5, 'AttemptHandedBack', now(), 'o', 'a', 1, '{{"called_off": false}}'),
    (1, 6, 'NodeDispatched', now(), 'o', 'a', 2, NULL);
"""


@pytest.fixture
def old_database(postgres: str) -> Iterator[str]:
    """Provide a database of schema 0001 with an open job."""
    name = f"old_schema_{os.getpid()}"
    asyncio.run(execute(postgres, f"CREATE DATABASE {name}"))
    dsn = dsn_of(postgres, name)
    try:
        schema_version.upgrade(dsn, "0001")
        definition = json.dumps(GRAPH.definition).replace("'", "''")
        asyncio.run(execute(dsn, OLD_ROWS.format(hash=GRAPH.content_hash, definition=definition)))
        yield dsn
    finally:
        asyncio.run(execute(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


async def execute(dsn: str, script: str) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
    try:
        await connection.execute(script)
    finally:
        await connection.close()


def rows(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    async def fetch() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(fetch())


EVENTS = "SELECT type, data::text FROM dag_job_events WHERE seq IN (4, 5) ORDER BY seq"


def test_stored_values_are_renamed_and_jobs_have_names_and_update_times(old_database):
    schema_version.upgrade(old_database)
    assert rows(
        old_database, "SELECT status FROM dag_task_attempts UNION ALL SELECT status FROM dag_task_results"
    ) == [
        ("RELEASED",),
        ("RELEASED",),
    ]
    (rejected, released) = rows(old_database, EVENTS)
    assert (rejected[0], released[0], json.loads(released[1])) == (
        "CommandRejected",
        "AttemptReleased",
        {"cancelled": False},
    )
    (job,) = rows(old_database, "SELECT name, updated_at = started_at FROM dag_jobs")
    assert job == ("old", True)
    assert rows(
        old_database, "SELECT failed_attempts, lost_attempts, updated_at IS NULL FROM dag_node_states"
    ) == [(0, 0, False)]


@pytest.mark.parametrize("has_secrets", [False, True])
def test_secret_inputs_are_stored_in_clear_until_there_is_a_key_where_they_were_before(
    old_database: str, has_secrets: bool
):
    if has_secrets:
        text = "{name: s, inputs: {key: {type: string, secret: true}}, nodes: {a: {handler: h, queue: q}}}"
        graph = compile_text(text).graph
        values = f"('{graph.content_hash}', '{json.dumps(graph.definition)}')"
        asyncio.run(
            execute(old_database, f"INSERT INTO dag_graphs (content_hash, definition) VALUES {values}")
        )
    schema_version.upgrade(old_database)
    owner = InputOwner(job_id="1", workflow_id="s")

    async def seal(key: str | None) -> Any:
        vault = KeyVault(KeySource(text=key), PostgresSecretKeys(DatabaseConfig(dsn=old_database)))
        return (await seal_inputs(vault, owner, frozenset({"key"}), {"key": "hunter2"}))["key"]

    if has_secrets:
        assert asyncio.run(seal(None)) == "hunter2"
    else:
        with pytest.raises(SecretsKeyMissing):
            asyncio.run(seal(None))
    assert read_sealed(asyncio.run(seal(new_key())))
    with pytest.raises(SecretsKeyMissing, match="encrypted with key"):
        asyncio.run(seal(None))


def test_an_open_job_of_the_schema_before_completes(old_database):
    schema_version.upgrade(old_database)

    async def complete() -> None:
        config = DatabaseConfig(dsn=old_database)
        world: Any = type("World", (), {"blobs": MemoryBlobs()})
        orchestrator, worker = (
            PostgresOrchestratorStore(config, blobs=world.blobs),
            PostgresWorkerStore(config),
        )
        reader = PostgresReadStore(config)
        try:
            await orchestrator.register()
            await worker.register([], 4)
            (claimed,) = await orchestrator.claim(10)
            played = Played(world, orchestrator, worker, OwnedJob(claimed, graph_of(claimed), orchestrator))
            await played.gather()
            await played.work({"a": 1})
            await played.work({"b": 2})
            (record,) = await reader.jobs(JobFilter())
            assert (record.job_id, record.status, record.nodes_finished) == ("1", "COMPLETED", 2)
            attempts = await reader.attempts("1", "a")
            assert [each.status for each in attempts] == ["COMPLETED", "RELEASED", "RELEASED"]
        finally:
            await reader.close()
            await worker.deregister()
            await orchestrator.deregister()
            for session in (*worker.sessions, *orchestrator.sessions):
                await session.close()

    asyncio.run(complete())


def graph_of(claimed: Any) -> Any:
    assert claimed.new.content_hash == GRAPH.content_hash
    return compile_definition(GRAPH.definition)


def test_a_downgrade_restores_the_values_of_the_previous_schema(old_database):
    before = rows(old_database, EVENTS)
    schema_version.upgrade(old_database)
    schema_version.downgrade(old_database, "0001")
    assert rows(
        old_database, "SELECT status FROM dag_task_attempts UNION ALL SELECT status FROM dag_task_results"
    ) == [
        ("HANDED_BACK",),
        ("HANDED_BACK",),
    ]
    after = rows(old_database, EVENTS)
    assert [(kind, json.loads(data)) for kind, data in after] == [
        (kind, json.loads(data)) for kind, data in before
    ]
    assert rows(old_database, "SELECT tries_used, lost_used FROM dag_node_states") == [(0, 0)]
    schema_version.upgrade(old_database)
    assert rows(old_database, "SELECT name FROM dag_jobs") == [("old",)]


def test_jobs_with_long_submitters_can_be_changed_after_a_downgrade(old_database):
    schema_version.upgrade(old_database)
    submitter = "key:" + "a" * 64
    asyncio.run(execute(old_database, f"UPDATE dag_jobs SET submitted_by = '{submitter}'"))
    schema_version.downgrade(old_database, "0010")
    asyncio.run(execute(old_database, "UPDATE dag_jobs SET status = 'CANCELLED', finished_at = now()"))
    schema_version.upgrade(old_database)
    assert rows(old_database, "SELECT submitted_by, status FROM dag_jobs") == [(submitter, "CANCELLED")]


BEFORE_OWNERS = """
INSERT INTO dag_api_keys (key_id, digest, name, scopes, created_at, created_by)
VALUES ('k1', 'd1', 'far', '{work}', now(), 'ada'), ('k2', 'd2', 'ada', '{work}', now(), 'dagmaster dev');
INSERT INTO dag_workers (worker_id, host, pid, version, queues, concurrency, handlers, registered_by, started_at, heartbeat_at)
VALUES (1, 'h', 1, '1', '{}', 1, '{"far": "1"}', 'k1', now(), now()), (2, 'h', 2, '1', '{}', 1, '{"mine": "1"}', 'k2', now(), now());
INSERT INTO dag_handlers (name, version, definition, content_hash, worker_id, published_at)
VALUES ('far', '1', '{}', 'x', 1, now()), ('mine', '1', '{}', 'x', 2, now()), ('own', '1', '{}', 'x', 3, now());
"""


def test_contracts_of_before_belong_to_the_keys_that_published_them_else_to_the_installation(old_database):
    async def owners() -> dict[str, str]:
        connection = await asyncpg.connect(old_database, server_settings={"search_path": "dagapp"})
        try:
            rows = await connection.fetch("SELECT name, owner FROM dag_handlers")
            # What a worker of the version before publishes now.
            await connection.execute(
                "INSERT INTO dag_handlers (name, version, definition, content_hash, worker_id, published_at)"
                " VALUES ('new', '1', '{}', 'x', 3, now())"
            )
            new = await connection.fetchval("SELECT owner FROM dag_handlers WHERE name = 'new'")
            assert new == "installation"
            local = await connection.fetchval("SELECT is_local FROM dag_api_keys WHERE key_id = 'k2'")
            assert local
        finally:
            await connection.close()
        return {row["name"]: row["owner"] for row in rows}

    schema_version.upgrade(old_database, "0009")
    asyncio.run(execute(old_database, f"SET search_path TO dagapp; {BEFORE_OWNERS}"))
    schema_version.upgrade(old_database)
    assert asyncio.run(owners()) == {"far": "key:far", "mine": "ada", "own": "installation"}
