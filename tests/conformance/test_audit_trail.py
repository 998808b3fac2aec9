"""The audit trail: entries are stored with their changes, in the same transaction, and cannot be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dagmaster.errors import StatementFailed
from dagmaster.ports.api_keys import ApiKeyRecord, Scope
from dagmaster.ports.audit_trail import AuditFilter, ChangeOrigin
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_records import StoredWorkflow
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore
from dagmaster.store.postgres.audit_trail import PostgresAuditTrail
from tests.conformance.audit_entries import appended
from tests.conformance.jobs import ONE, a_job, submitted
from tests.conformance.stores import IN_POSTGRES, MemoryWorld, PostgresWorld

if TYPE_CHECKING:
    from dagmaster.ports.api_keys import ApiKeyStore
    from dagmaster.ports.audit_trail import AuditEntry, AuditTrail

ADA = ChangeOrigin(actor="ada", request_id="request-1", key_id="k1")
ALL = AuditFilter()


class Scene:
    """The audit trail and the store of keys of a world."""

    def __init__(self, world: MemoryWorld | PostgresWorld) -> None:
        self.trail: AuditTrail
        self.keys: ApiKeyStore
        if isinstance(world, MemoryWorld):
            self.trail = world.database.audit_trail
            self.keys = MemoryApiKeyStore(world.clock, world.database.audit_trail)
        else:
            self.trail, self.keys = PostgresAuditTrail(world.config), PostgresApiKeyStore(world.config)

    async def stored(self) -> list[AuditEntry]:
        return [appended(record) for record in reversed(await self.trail.entries(ALL))]

    async def close(self) -> None:
        for store in (self.trail, self.keys):
            if isinstance(store, PostgresAuditTrail | PostgresApiKeyStore):
                await store.close()


async def test_a_job_is_stored_with_its_entry_and_one_that_exists_already_without(world):
    client, scene = await world.client(), Scene(world)
    known = await submitted(world, client, idempotency_key="k", submitted_by="ada")
    again, new = a_job(world, idempotency_key="k", submitted_by="ada"), a_job(world, submitted_by="ada")
    await client.submit([again, new], audit=[ADA.entry("job.submit", "job", job.id) for job in (again, new)])
    (entry,) = await scene.stored()
    assert entry == ADA.entry("job.submit", "job", new.id)
    assert known != new.id
    await scene.close()


async def test_a_command_is_stored_with_its_entry_and_its_id(world):
    client, scene = await world.client(), Scene(world)
    job_id = await submitted(world, client)
    entry = ADA.entry("job.cancel", "job", job_id, {"why": "it is late"}, actor="bob")
    command_id = await client.send(job_id, CommandKind.CANCEL, {}, "bob", audit=[entry])
    assert await client.send("1", CommandKind.CANCEL, {}, "bob", audit=[entry]) is None
    (stored,) = await scene.stored()
    assert (stored.actor, stored.request_id) == ("bob", "request-1")
    assert stored.details == {"key_id": "k1", "why": "it is late", "command_id": command_id}
    await scene.close()


async def test_a_version_is_published_and_activated_with_its_entries(world):
    client, scene = await world.client(), Scene(world)
    await client.put_graph(ONE.content_hash, "{}")
    entries = [ADA.entry(f"workflow.{action}", "workflow", "w") for action in ("publish", "activate")]
    await client.publish(StoredWorkflow("w", 1, ONE.content_hash), audit=entries[:1])
    await client.activate("w", 1, audit=entries[1:])
    assert await scene.stored() == entries
    await scene.close()


@IN_POSTGRES
async def test_a_change_that_fails_has_no_entry_and_an_entry_that_fails_no_change(world):
    client, scene = await world.client(), Scene(world)
    entry = ADA.entry("workflow.publish", "workflow", "w")
    with pytest.raises(StatementFailed):
        await client.publish(StoredWorkflow("w", 1, "a graph that is not stored"), audit=[entry])
    await scene.keys.add(key("one"), "digest")
    with pytest.raises(StatementFailed):
        await scene.keys.add(key("two"), "digest", audit=[entry])
    assert await scene.stored() == []
    job = a_job(world)
    admin = await world.connect()
    await admin.execute("ALTER TABLE dag_audit ADD CONSTRAINT broken CHECK (actor <> 'ada')")
    try:
        with pytest.raises(StatementFailed):
            await client.submit([job], audit=[ADA.entry("job.submit", "job", job.id)])
        assert await admin.fetchval("SELECT count(*) FROM dag_jobs") == 0
    finally:
        await admin.execute("ALTER TABLE dag_audit DROP CONSTRAINT broken")
    await scene.close()


async def test_keys_are_created_rotated_and_revoked_with_their_entries(world):
    scene = Scene(world)
    entries = {action: ADA.entry(f"key.{action}", "key", "one") for action in ("create", "rotate", "revoke")}
    await scene.keys.add(key("one"), "digest one", audit=[entries["create"]])
    await scene.keys.rotate("one", 5_000_000_000.0, key("two"), "digest two", audit=[entries["rotate"]])
    await scene.keys.revoke("one", audit=[entries["revoke"]])
    assert await scene.keys.revoke("none", audit=[entries["revoke"]]) is None
    stored = await scene.stored()
    assert [entry.action for entry in stored] == ["key.create", "key.rotate", "key.revoke"]
    assert stored[2].details == {"key_id": "k1", "name": "ci"}
    match = await scene.keys.find("digest one")
    assert match is not None
    assert match[0].expires_at == 5_000_000_000.0
    await scene.close()


async def test_entries_are_listed_newest_first_by_filter_and_page_by_page(world):
    scene = Scene(world)
    for number in range(5):
        await scene.trail.append(
            [ADA.entry("job.cancel", "job", str(number)), ADA.entry("key.create", "key", "x")]
        )
    await scene.trail.append([ChangeOrigin(actor="bob").entry("job.cancel", "job", "3")])
    of_job = await scene.trail.entries(AuditFilter(object_kind="job", object_id="3"))
    assert [record.actor for record in of_job] == ["bob", "ada"]
    assert len(await scene.trail.entries(AuditFilter(actor="ada", action="key.create"))) == 5
    assert await scene.trail.entries(AuditFilter(actor="a\0")) == []
    pages, after = [], None
    while page := await scene.trail.entries(ALL, after=after, limit=4):
        pages.append(len(page))
        after = (page[-1].entry_id,)
    assert pages == [4, 4, 3]
    await scene.close()


def key(key_id: str) -> ApiKeyRecord:
    return ApiKeyRecord(
        key_id=key_id, name="ci", scopes=frozenset({Scope.READ}), created_at=0.0, created_by="ada"
    )
