"""Reads of one tenant that follow each other share a transaction; no other read is part of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dagmaster.errors import StatementFailed
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.tenants import API_ROLE
from dagmaster.store.postgres import read_transactions
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import compile_query
from tests.conformance.stores import PostgresWorld, in_world
from tests.patience import PATIENCE_SECONDS

BEGAN = compile_query(
    "began", "SELECT now() AS at, dag_tenant() AS tenant, (SELECT count(*) FROM dag_tenants) AS tenants"
)
BROKEN = compile_query("broken", "SELECT 1 / (SELECT count(*) FROM dag_tenants WHERE name = '')")


@pytest.fixture
def world(postgres: str) -> PostgresWorld:
    return PostgresWorld(postgres)


def reader(world: PostgresWorld) -> Connection:
    return Connection(DatabaseConfig(dsn=world.dsn, role=API_ROLE), "reader", reads=True)


async def began(reads: Connection, tenant: str) -> Any:
    return await reads.row(BEGAN, {}, tenant=tenant)


@in_world
async def test_reads_that_follow_each_other_share_a_transaction_and_see_what_is_committed(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_transactions, "LINGER_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(read_transactions, "MAX_SECONDS", PATIENCE_SECONDS)
    reads = reader(world)
    first = await began(reads, "*")
    await world._admin.execute("INSERT INTO dag_tenants (name) VALUES ('acme')")
    second = await began(reads, "*")
    assert second["at"] == first["at"]
    assert second["tenants"] == first["tenants"] + 1
    await reads.close()


@in_world
async def test_a_read_of_another_tenant_has_its_own_transaction(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_transactions, "LINGER_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(read_transactions, "MAX_SECONDS", PATIENCE_SECONDS)
    await world._admin.execute("INSERT INTO dag_tenants (name) VALUES ('acme'), ('globex')")
    reads = reader(world)
    names = ["acme", "globex", "acme", "*"]
    rows = [await began(reads, name) for name in names]
    assert [row["tenant"] for row in rows] == names
    assert [row["tenants"] for row in rows] == [1, 1, 1, 3]
    assert len({row["at"] for row in rows}) == 4
    await reads.close()


@in_world
async def test_a_transaction_that_is_old_is_not_continued_and_one_without_a_further_read_ends(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_transactions, "LINGER_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(read_transactions, "MAX_SECONDS", -1.0)
    reads = reader(world)
    first = await began(reads, "*")
    driver: Any = reads._connection
    committed = asyncio.Event()
    monkeypatch.setattr(read_transactions, "LINGER_SECONDS", 0.0)
    second = await began(reads, "*")
    assert second["at"] > first["at"]
    driver.add_query_logger(lambda record: committed.set() if record.query == "COMMIT" else None)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await committed.wait()
    assert not driver.is_in_transaction()
    await reads.close()


@in_world
async def test_a_read_that_fails_in_a_shared_transaction_leaves_a_usable_connection(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_transactions, "LINGER_SECONDS", PATIENCE_SECONDS)
    reads = reader(world)
    first = await began(reads, "*")
    with pytest.raises(StatementFailed):
        await reads.fetch(BROKEN, {}, tenant="*")
    assert (await began(reads, "*"))["at"] > first["at"]
    await reads.close()


@in_world
async def test_a_connection_that_is_lost_with_an_open_transaction_is_opened_again(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(read_transactions, "LINGER_SECONDS", PATIENCE_SECONDS)
    reads = reader(world)
    await began(reads, "*")
    driver: Any = reads._connection
    closed = asyncio.Event()
    driver.add_termination_listener(lambda _connection: closed.set())
    await world._admin.execute("SELECT pg_terminate_backend($1)", driver.get_server_pid())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await closed.wait()
    assert (await began(reads, "*"))["tenant"] == "*"
    await reads.close()
