"""How often the store is asked for a key: once for all requests of some seconds, also for a key that is not valid."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dagmaster.application.api_keys import create_key, revoke_key
from dagmaster.errors import ApiKeyRejected, DatabaseUnavailable
from dagmaster.http import auth
from dagmaster.http.auth import KeyChecker
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore

ORIGIN = ChangeOrigin(actor="test")


class CountedKeys(MemoryApiKeyStore):
    """Counts look-ups, which take a turn of the loop, and may fail then."""

    def __init__(self) -> None:
        super().__init__()
        self.lookups = 0
        self.error: Exception | None = None

    async def find(self, digest: str) -> Any:
        self.lookups += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return await super().find(digest)


async def a_key(keys: CountedKeys) -> str:
    return (await create_key(keys, "ada", [Scope.READ], origin=ORIGIN, now=0.0)).key


def an_unknown_key(number: int = 0) -> str:
    return f"dm_{number:012}_" + "a" * 43


async def be_rejected(checker: KeyChecker, key: str) -> None:
    with pytest.raises(ApiKeyRejected):
        await checker.caller(key)


def test_requests_with_the_same_key_at_once_share_a_look_up():
    async def main() -> None:
        keys = CountedKeys()
        checker, key = KeyChecker(keys), await a_key(keys)
        callers = await asyncio.gather(*(checker.caller(key) for _ in range(20)))
        assert {caller.name for caller in callers} == {"ada"}
        assert keys.lookups == 1

    asyncio.run(main())


def test_a_known_key_stays_known_to_all_requests_while_the_database_is_unavailable(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)

    async def main() -> None:
        keys = CountedKeys()
        checker, key = KeyChecker(keys), await a_key(keys)
        await checker.caller(key)
        keys.error = DatabaseUnavailable("gone")
        asked = [asyncio.create_task(checker.caller(key)) for _ in range(3)]
        await asyncio.sleep(0)
        asked.pop(0).cancel()
        assert [caller.name for caller in await asyncio.gather(*asked)] == ["ada"] * 2
        assert (await checker.caller(key)).name == "ada"

    asyncio.run(main())


def test_an_entry_stays_until_the_look_up_has_its_answer(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)

    async def main() -> None:
        keys = CountedKeys()
        checker, key = KeyChecker(keys), await a_key(keys)
        await checker.caller(key)
        asked = asyncio.create_task(checker.caller(key))
        while keys.lookups == 1:  # noqa: ASYNC110 - the look-up says nothing before its answer
            await asyncio.sleep(0)
        assert len(checker._cache) == 1
        await asked
        await revoke_key(keys, key, origin=ORIGIN)
        await be_rejected(checker, key)
        assert checker._cache == {}

    asyncio.run(main())


def test_a_key_that_is_not_valid_is_looked_up_once_in_some_seconds(monkeypatch):
    async def main() -> None:
        keys = CountedKeys()
        checker = KeyChecker(keys)
        for _ in range(5):
            await be_rejected(checker, an_unknown_key())
        assert keys.lookups == 1
        monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)
        await be_rejected(checker, an_unknown_key())
        assert keys.lookups == 2

    asyncio.run(main())


def test_only_the_last_keys_that_are_not_valid_are_remembered(monkeypatch):
    monkeypatch.setattr(auth, "MAX_REJECTED", 2)

    async def main() -> None:
        keys = CountedKeys()
        checker = KeyChecker(keys)
        for number in (1, 2, 3, 3, 2, 1):
            await be_rejected(checker, an_unknown_key(number))
        assert keys.lookups == 4, "the first was forgotten"
        assert len(checker._rejected) == 2

    asyncio.run(main())
