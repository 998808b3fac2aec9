"""Callers of a tenant are served by what is known of it, and only while that is not too old."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from dagmaster.errors import ApiKeyRejected, DatabaseUnavailable, TenantsNotIsolated
from dagmaster.http.tenant_guard import KNOWN_SECONDS, STALE_SECONDS, TenantGuard
from dagmaster.ports.api_keys import Caller, Scope
from dagmaster.ports.tenants import Isolation
from dagmaster.store.memory.tenant_store import MemoryTenantStore

if TYPE_CHECKING:
    from dagmaster.records.tenants import TenantRecord

ADMIN = Caller(key_id="1", name="boss", scopes=frozenset({Scope.ADMIN}))
READER = Caller(key_id="2", name="reader", scopes=frozenset({Scope.READ}))
ACME = Caller(key_id="3", name="acme", scopes=frozenset({Scope.ADMIN}), tenant="acme")
GLOBEX = replace(ACME, tenant="globex")


class Database:
    """What the guard reads, and a clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = MemoryTenantStore()
        self.is_away = False
        self.reads = 0
        self.now = 1_000.0
        self.kept_apart = Isolation(tenants=2)
        self.guard = TenantGuard(cast("Any", self), cast("Any", self))
        monkeypatch.setattr("dagmaster.http.tenant_guard.time.monotonic", lambda: self.now)

    async def all(self) -> list[TenantRecord]:
        self.reads += 1
        if self.is_away:
            raise DatabaseUnavailable("away")
        return list(await self.store.all())

    async def isolation(self) -> Isolation:
        return self.kept_apart

    async def check(self, *callers: Caller) -> None:
        for caller in callers:
            await self.guard.check(caller)

    async def refuses(self, error: type[Exception], *callers: Caller) -> None:
        for caller in callers:
            with pytest.raises(error):
                await self.guard.check(caller)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    return Database(monkeypatch)


def test_while_nothing_is_known_administrators_of_the_installation_alone_are_served(database):
    async def main() -> None:
        database.is_away = True
        await database.refuses(DatabaseUnavailable, READER, ACME)
        await database.check(ADMIN)
        database.is_away = False
        await database.check(READER)
        await database.refuses(ApiKeyRejected, GLOBEX)

    asyncio.run(main())


def test_what_is_known_serves_a_tenant_for_a_minute_without_the_database_and_others_longer(database):
    async def main() -> None:
        await database.store.create("acme", {}, created_by="ada")
        await database.check(ACME, READER)
        reads = database.reads
        database.now += KNOWN_SECONDS
        await database.check(ACME)
        assert database.reads == reads, "it is not read again yet"
        database.is_away = True
        database.now = 1_000.0 + STALE_SECONDS
        await database.check(ACME, READER)
        database.now += 0.1
        await database.refuses(DatabaseUnavailable, ACME)
        await database.check(READER, ADMIN)
        database.is_away = False
        await database.check(ACME)

    asyncio.run(main())


def test_a_database_that_does_not_keep_tenants_apart_serves_administrators_of_the_installation(database):
    async def main() -> None:
        await database.store.create("acme", {}, created_by="ada")
        database.kept_apart = Isolation(tenants=2, is_superuser=True)
        await database.refuses(TenantsNotIsolated, ACME, READER)
        await database.check(ADMIN)

    asyncio.run(main())
