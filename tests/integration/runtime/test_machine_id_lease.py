"""The machine id of a client is leased once, renewed while it is used, and replaced when it was lost."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.store.postgres.client_store import PostgresClientStore
from dagmaster.store.postgres.machine_id_lease import LEASE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.runtime.runtime_world import World


@contextlib.asynccontextmanager
async def a_client(world: World) -> AsyncIterator[PostgresClientStore]:
    client = PostgresClientStore(world.address)
    await client.open()
    try:
        yield client
    finally:
        await client.close()


async def lease_of(world: World, client: PostgresClientStore) -> tuple[str, float] | None:
    """Return the name of a client's lease, and in how many seconds it expires."""
    sql = "SELECT name, extract(epoch FROM expires_at - clock())::float8 FROM dag_leases WHERE holder = $1"
    rows = await world.rows(sql, client.identity._holder)
    return (rows[0][0], rows[0][1]) if rows else None


async def let_pass(world: World, client: PostgresClientStore, seconds: float) -> None:
    """Let a lease be older, in the client and in the database."""
    client.identity._renewed_at -= seconds
    sql = "UPDATE dag_leases SET expires_at = expires_at - make_interval(secs => $2) WHERE holder = $1"
    await world.rows(sql, client.identity._holder, seconds)


async def test_a_lease_is_renewed_when_half_of_it_has_passed_and_not_before(world: World):
    async with a_client(world) as client:
        ids, lease = await client.lease_ids(), await lease_of(world, client)
        assert lease is not None
        await let_pass(world, client, LEASE_SECONDS * 0.4)
        assert await client.lease_ids() is ids
        early = await lease_of(world, client)
        assert early is not None
        assert early[1] < LEASE_SECONDS * 0.6
        await let_pass(world, client, LEASE_SECONDS * 0.2)
        assert await client.lease_ids() is ids
        renewed = await lease_of(world, client)
        assert renewed is not None
        assert renewed[0] == lease[0]
        assert renewed[1] > LEASE_SECONDS * 0.9
    assert await lease_of(world, client) is None, "a client that was closed holds no machine id"


async def test_a_lease_that_expired_is_not_renewed_and_another_machine_id_is_leased(world: World):
    async with a_client(world) as client:
        ids, lease = await client.lease_ids(), await lease_of(world, client)
        assert lease is not None
        await let_pass(world, client, LEASE_SECONDS * 2)
        # Another process holds it by now.
        await world.rows(
            "UPDATE dag_leases SET holder = 1, expires_at = clock() + interval '1 hour' WHERE name = $1",
            lease[0],
        )
        assert await client.lease_ids() is not ids
        other = await lease_of(world, client)
        assert other is not None
        assert other[0] != lease[0]
    holders = await world.rows("SELECT holder FROM dag_leases WHERE name = $1", lease[0])
    assert [row[0] for row in holders] == [1], "the lease of another process is not released"


async def test_two_clients_have_different_machine_ids(world: World):
    async with a_client(world) as one, a_client(world) as other:
        leases = [await lease_of(world, client) for client in (one, other)]
        assert None not in leases
        assert len({lease[0] for lease in leases if lease is not None}) == 2
