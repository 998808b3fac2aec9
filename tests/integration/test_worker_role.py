"""What a worker cannot do that connects with the role dagmaster_worker: anything about other workers and their tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg
import pytest
from asyncpg.exceptions import InsufficientPrivilegeError

from dagmaster.adapters.secret_keys import KeySource, new_key
from dagmaster.adapters.secret_vault import KeyVault
from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import SchemaVersionMismatch, SecretsKeyMissing, SecretsKeyWrong, StatementFailed
from dagmaster.ports.added_nodes import BatchKey, BatchRows, NodeRecord
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.handler_contracts import HandlerOffer
from dagmaster.ports.handler_definitions import HandlerDefinition
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.sdk.handler_definitions import define_handler, to_definition
from dagmaster.store.postgres import roles
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.secret_keys import PostgresSecretKeys
from dagmaster.store.postgres.worker_role import PREFIX, functions
from tests.conformance.jobs import Scene
from tests.conformance.server import FOLLOW_CLOCK, WORKER_LOGIN, dsn_as
from tests.conformance.stores import RoleWorld, in_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.store.postgres.worker_store import PostgresWorkerStore

DONE = AttemptStatus.COMPLETED
KEY = BatchKey("a", 0, "digest")
BATCHES = {"a": 1, "b": 2}
"""The batch that each node has reserved."""


def named(name: str, *aliases: str, version: str = "1", queue: str | None = None) -> HandlerDefinition:
    """Return the contract of a handler with other names."""
    document = json.loads(define_handler(name=name, version=version, queue=queue).document)
    return to_definition({**document, "aliases": [*aliases]})


@pytest.fixture
def world(postgres: str) -> RoleWorld:
    return RoleWorld(postgres)


async def rows_of(world: RoleWorld) -> dict[str, list[str]]:
    """Return every row of every table."""
    tables = await world._admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'dagapp'")
    return {
        name: sorted(row[0] for row in await world._admin.fetch(f"SELECT t::text FROM {name} AS t"))
        for (name,) in tables
    }


class Setting(NamedTuple):
    """A victim that holds a task and wrote about it, and an attacker that knows its ids and its lease token."""

    victim: PostgresWorkerStore
    task: ClaimedTask
    attacker: PostgresWorkerStore
    own: ClaimedTask


async def a_setting(world: RoleWorld) -> Setting:
    scene = await Scene.begin(world)
    await scene.dispatch("a")
    victim = await world.worker(handlers={"h": "1"})
    await victim.publish_handlers([HandlerDefinition("h", "1", "hash", '{"params": {}}')])
    (task,) = await victim.claim(1)
    await victim.append_logs([LogChunk(task.task_id, task.token, 1, "theirs")])
    await victim.checkpoint([CheckpointWrite(task.task_id, task.token, "p", "{}", ())])
    assert await victim.reserve_batch(task.task_id, task.token, KEY) == (1, False)
    await scene.dispatch("b")
    attacker = await world.worker(handlers={"h": "1"})
    (own,) = await attacker.claim(1)
    assert await attacker.reserve_batch(own.task_id, own.token, KEY._replace(node_id="b")) == (2, False)
    await scene.dispatch("c")
    return Setting(victim, task, attacker, own)


def a_batch(world: RoleWorld) -> BatchRows:
    return BatchRows([NodeRecord(int(world.ids.new()), "n", None, "{}")], [], [])


def a_growing_report(world: RoleWorld, task: ClaimedTask) -> TaskReport:
    report = TaskReport(task.task_id, task.token, DONE, output=JsonText("{}"))
    report.added_rows = lambda _number: a_batch(world)
    return report


# What a worker does about a task that it holds.
ABOUT_TASKS: dict[str, Callable[[PostgresWorkerStore, ClaimedTask, RoleWorld], Awaitable[Any]]] = {
    "report": lambda w, t, _: w.report([TaskReport(t.task_id, t.token, DONE, output=JsonText("1"))]),
    "report two": lambda w, t, _: w.report(
        [TaskReport(t.task_id, t.token, DONE), TaskReport("1", t.token, DONE)]
    ),
    "report with nodes": lambda w, t, world: w.report([a_growing_report(world, t)]),
    "release": lambda w, t, _: w.release([TaskReport(t.task_id, t.token, AttemptStatus.RELEASED)]),
    "log": lambda w, t, _: w.append_logs([LogChunk(t.task_id, t.token, 2, "forged")]),
    "checkpoint": lambda w, t, _: w.checkpoint([CheckpointWrite(t.task_id, t.token, "x", "1", ())]),
    "progress": lambda w, t, _: w.progress({t.task_id: (t.token, '{"done": 1}')}),
    "start": lambda w, t, _: w.mark_started({t.task_id: (t.token, 1.0)}),
    "reserve a batch": lambda w, t, _: w.reserve_batch(t.task_id, t.token, BatchKey(t.node_id, 1, "digest")),
    "add a batch": lambda w, t, world: w.add_batch(t.task_id, t.token, BATCHES[t.node_id], a_batch(world)),
}
# What a worker does about itself.
ABOUT_ITSELF: dict[str, Callable[[PostgresWorkerStore], Awaitable[Any]]] = {
    "heartbeat": lambda w: w._renew([], json.dumps({"forged": 1})),
    "claim": lambda w: w.claim(5),
    "claim exclusively": lambda w: w.claim_exclusive(),
    "stop": lambda w: w.release_all(),
    "publish": lambda w: w.publish_handlers([HandlerDefinition("h", "1", "other hash", '{"forged": 1}')]),
    "publish a version": lambda w: w.publish_handlers([HandlerDefinition("h", "2", "hash", "{}")]),
}


@pytest.mark.parametrize("deed", ABOUT_TASKS)
@in_world
async def test_a_worker_changes_nothing_of_a_task_that_another_one_holds(world, deed):
    setting = await a_setting(world)
    before = await rows_of(world)
    forged = setting.task
    await ABOUT_TASKS[deed](setting.attacker, forged, world)
    setting.attacker.worker_id = setting.attacker._role.worker_id = setting.victim.worker_id
    await ABOUT_TASKS[deed](setting.attacker, forged, world)
    assert await rows_of(world) == before


@pytest.mark.parametrize("deed", ABOUT_ITSELF)
@in_world
async def test_a_worker_with_the_id_of_another_one_changes_nothing(world, deed):
    setting = await a_setting(world)
    before = await rows_of(world)
    setting.attacker.worker_id = setting.attacker._role.worker_id = setting.victim.worker_id
    await ABOUT_ITSELF[deed](setting.attacker)
    assert await rows_of(world) == before


@pytest.mark.parametrize("deed", ABOUT_TASKS)
@in_world
async def test_every_deed_about_a_task_that_it_holds_works(world, deed):
    """Otherwise the tests above would show nothing."""
    setting = await a_setting(world)
    before = await rows_of(world)
    await ABOUT_TASKS[deed](setting.attacker, setting.own, world)
    assert await rows_of(world) != before


@pytest.mark.parametrize("deed", ["heartbeat", "claim", "stop"])
@in_world
async def test_every_deed_about_itself_works(world, deed):
    setting = await a_setting(world)
    before = await rows_of(world)
    await ABOUT_ITSELF[deed](setting.attacker)
    assert await rows_of(world) != before


@in_world
async def test_the_contract_of_a_handler_cannot_be_changed_nor_one_published_that_it_does_not_serve(world):
    setting = await a_setting(world)
    before = await rows_of(world)
    for name, version in (("h", "1"), ("h", "2"), ("other", "1")):
        await setting.attacker.publish_handlers([HandlerDefinition(name, version, "other", '{"forged": 1}')])
        assert await rows_of(world) == before, (name, version)
    honest = await world.worker(handlers={"new": "1"})
    await honest.publish_handlers([HandlerDefinition("new", "1", "hash", "{}")])
    assert (await rows_of(world))["dag_handlers"] != before["dag_handlers"]


@in_world
async def test_the_names_of_callers_and_aliases_of_other_handlers_are_not_taken_over(world):
    contracts = (await world.remote_workers()).contracts
    await contracts.offer(HandlerOffer("key:acme", (named("theirs"), named("proposed"))))
    await contracts.trust("theirs", "key:acme", by="anna")
    honest = await world.worker(handlers={"fathom_merge": "1"})
    await honest.publish_handlers([named("fathom_merge", "merge")])
    attacker = await world.worker(
        handlers={"theirs": "1", "proposed": "2", "merge": "1", "evil": "1", "fathom_merge": "2"}
    )
    before = (await rows_of(world))["dag_handlers"]
    for forged in (
        named("theirs", queue="evil"),
        named("proposed", version="2", queue="evil"),
        named("merge"),
        named("evil", "theirs"),
        named("evil", "merge"),
    ):
        await attacker.publish_handlers([forged])
        assert (await rows_of(world))["dag_handlers"] == before, forged
    assert await contracts.offer(HandlerOffer("key:acme", (named("theirs"),))) == {"theirs"}
    # A new version of a handler keeps its aliases.
    await attacker.publish_handlers([named("fathom_merge", "merge", "older", version="2")])
    assert (await rows_of(world))["dag_handlers"] != before


@in_world
async def test_batches_of_other_nodes_are_neither_read_nor_written(world):
    setting = await a_setting(world)
    task, own = setting.task, setting.own
    assert await setting.victim.add_batch(task.task_id, task.token, 1, a_batch(world))
    assert (await setting.victim.batch_rows(task.task_id, task.token, 1)).nodes
    assert await setting.attacker.batch_rows(own.task_id, own.token, 1) == BatchRows()
    assert await setting.victim.reserve_batch(task.task_id, task.token, KEY._replace(call_number=1)) == (
        3,
        False,
    )
    before = await rows_of(world)
    assert await setting.attacker.add_batch(own.task_id, own.token, 3, a_batch(world)) is False
    # A reservation under the name of the call of another node would become its batch.
    assert await setting.attacker.reserve_batch(own.task_id, own.token, KEY._replace(call_number=2)) is None
    assert await rows_of(world) == before


@in_world
async def test_the_leases_of_other_processes_stay_and_a_lease_is_short(world):
    setting = await a_setting(world)
    before = (await rows_of(world))["dag_leases"]
    session = setting.attacker._side
    lease = queries("orchestrator")
    name = setting.victim.identity._name
    for query in ("renew_machine", "release_machine"):
        await session.fetch(lease[query], {"name": name, "holder": 1, "seconds": 9.0})
    assert await session.fetch(lease["lease_machine"], {"holder": 1, "seconds": 1e9}) == []
    assert (await rows_of(world))["dag_leases"] == before


@in_world
async def test_a_worker_with_the_role_registers_only_itself_and_with_a_secret(world):
    worker = await world.worker()
    before = await rows_of(world)
    params = {
        "worker_id": 7, "host": "h", "pid": 1, "version": "1", "queues": [], "concurrency": 1, "handlers": "{}",
        "registered_by": "another key", "secret_digest": worker._role.digest, "previous_id": None, "offered": None,
    }  # fmt: skip
    await worker._side.fetch(queries("worker")["register"], params)
    await worker._side.fetch(
        queries("worker")["register"], {**params, "registered_by": None, "secret_digest": None}
    )
    assert await rows_of(world) == before
    # Nor in the place of another one.
    with pytest.raises(StatementFailed):
        await worker._side.fetch(
            queries("worker")["register"], {**params, "registered_by": None, "worker_id": worker.worker_id}
        )


@in_world
async def test_a_worker_that_has_no_secret_cannot_be_played(world):
    """One of the version before, or one that speaks HTTP."""
    setting = await a_setting(world)
    await world._admin.execute("UPDATE dag_workers SET secret_digest = NULL")
    before = await rows_of(world)
    setting.attacker.worker_id = setting.attacker._role.worker_id = setting.victim.worker_id
    for secret in ("", None, setting.victim._role.secret):
        setting.attacker._role.secret = secret  # type: ignore[assignment]
        for deed in ABOUT_ITSELF.values():
            await deed(setting.attacker)
        for about_task in ABOUT_TASKS.values():
            await about_task(setting.attacker, setting.task, world)
    assert await rows_of(world) == before


@in_world
async def test_the_role_has_no_right_but_its_functions(world):
    rights = await world._admin.fetch(
        """
        SELECT c.relname || ' ' || a.privilege_type AS right
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.relnamespace = 'dagapp'::regnamespace AND a.grantee = ANY($1::regrole[]::oid[])
        UNION ALL
        SELECT c.relname || '.' || t.attname || ' ' || a.privilege_type
        FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid CROSS JOIN LATERAL aclexplode(t.attacl) a
        WHERE c.relnamespace = 'dagapp'::regnamespace AND a.grantee = ANY($1::regrole[]::oid[])
        UNION ALL
        SELECT p.proname FROM pg_proc p WHERE p.prosecdef AND p.pronamespace = 'dagapp'::regnamespace
           AND has_function_privilege('dagmaster_worker', p.oid, 'EXECUTE')
        """,
        ["dagmaster_worker", WORKER_LOGIN],
    )
    assert sorted(row["right"] for row in rights) == sorted(
        ["alembic_version SELECT", *(function.name for function in functions().values())]
    )
    configs = await world._admin.fetch(
        "SELECT proconfig FROM pg_proc WHERE prosecdef AND pronamespace = 'dagapp'::regnamespace"
    )
    assert all(any("search_path=" in setting for setting in row["proconfig"]) for row in configs)


@pytest.mark.parametrize(
    "statement",
    [
        *(
            f"SELECT * FROM {table}"
            for table in ("dag_task_queue", "dag_workers", "dag_jobs", "dag_task_results")
        ),
        "UPDATE dag_workers SET stopped_at = now()",
        "UPDATE dag_workers SET drain_requested_at = now()",
        "DELETE FROM dag_task_queue",
        "DELETE FROM dag_task_logs",
        "DELETE FROM dag_leases",
        "INSERT INTO dag_handlers VALUES ('h', '1', '{}', 'x', 1, now())",
        "SELECT dag_send_batch(1, 1, 1)",
    ],
)
@in_world
async def test_the_role_cannot_touch_tables_directly(world, statement):
    connection = await asyncpg.connect(
        dsn_as(world.dsn, WORKER_LOGIN), server_settings={"search_path": "dagapp"}
    )
    try:
        with pytest.raises(InsufficientPrivilegeError):
            await connection.execute(statement)
    finally:
        await connection.close()


@in_world
async def test_a_worker_with_the_role_compares_its_key_for_secret_inputs_when_it_starts(world):
    text = new_key()
    own, owner = world.worker_config, DatabaseConfig(dsn=world.dsn)

    def vault(config: DatabaseConfig, key: str | None) -> KeyVault:
        return KeyVault(KeySource(text=key), PostgresSecretKeys(config))

    # Nobody had a secret input yet: nobody needs a key.
    await vault(own, None).check()
    await vault(owner, text).prepare()
    await vault(own, text).check()
    with pytest.raises(SecretsKeyWrong, match="secret inputs of this database are encrypted with key"):
        await vault(own, new_key()).check()
    with pytest.raises(SecretsKeyMissing):
        await vault(own, None).check()
    # It cannot become the one whose key counts.
    with pytest.raises(StatementFailed):
        await PostgresSecretKeys(own).register_first("mine", "x")


@in_world
async def test_neither_the_clock_nor_the_search_path_of_a_caller_counts(world):
    """As the functions are made; in other tests the clock of workers is moved, too."""
    connection = await asyncpg.connect(world.dsn)
    transaction = connection.transaction()
    await transaction.start()
    try:
        for function in functions().values():
            made = await connection.fetchval(
                "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = $1", function.name
            )
            await connection.execute(f"DROP FUNCTION {made}")
        await roles._make_functions(connection, PREFIX, functions(), is_exact=True)
        await connection.execute("SET LOCAL dagapp.clock_offset = '1e6'")
        await connection.execute(
            "CREATE TEMP TABLE dag_leases (name text, holder bigint, expires_at timestamptz)"
        )
        await connection.execute("SET LOCAL search_path = pg_temp, dagapp")
        call = functions()["orchestrator.lease_machine"].call
        row = await connection.fetchrow(call.sql, *call.arguments({"holder": 5, "seconds": 60.0}))
        assert row is not None
        leased = await connection.fetchval(
            "SELECT expires_at < clock_timestamp() + interval '61 s' FROM dagapp.dag_leases WHERE holder = 5"
        )
        assert leased is True
    finally:
        await transaction.rollback()
        await connection.close()


@in_world
async def test_a_worker_of_another_version_is_told_to_migrate(world):
    worker = await world.worker("q")
    name = functions()["worker.claim, ready"].name
    signature = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = $1"
    find = "SELECT count(*) FROM pg_proc WHERE proname IN ('dag_worker_claim_older', $1)"
    older = await world._admin.fetchval(signature, name)
    await world._admin.execute(f"ALTER FUNCTION {older} RENAME TO dag_worker_claim_older")
    try:
        with pytest.raises(SchemaVersionMismatch, match="run `dagmaster migrate`"):
            await worker.claim(1)
        # `migrate` makes it again, and leaves that of the other version; with --roles it is removed.
        await roles.apply_roles(world.dsn, is_exact=False)
        assert await worker.claim(1) == []
        assert await world._admin.fetchval(find, name) == 2
    finally:
        await roles.apply_roles(world.dsn, is_exact=True)
        await world._admin.execute(FOLLOW_CLOCK)
    assert await world._admin.fetchval(find, name) == 1


@pytest.mark.parametrize("deed", ["report", "report with nodes", "log", "start"])
def test_behind_a_pooler_a_worker_with_the_role_does_the_same(postgres, deed):
    @in_world
    async def work(*, world: RoleWorld) -> None:
        setting = await a_setting(world)
        before = await rows_of(world)
        await ABOUT_TASKS[deed](setting.attacker, setting.task, world)
        assert await rows_of(world) == before
        await ABOUT_TASKS[deed](setting.attacker, setting.own, world)
        assert await rows_of(world) != before

    work(world=RoleWorld(postgres, is_pooled=True))
