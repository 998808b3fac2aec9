"""API keys in memory. They behave like those on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.clocks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.api_keys import ApiKeyRecord
    from dagmaster.ports.clock import Clock


class MemoryApiKeyStore:
    """Keys in memory."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._digests: dict[str, str] = {}
        self._keys: dict[str, ApiKeyRecord] = {}

    async def add(self, record: ApiKeyRecord, digest: str) -> None:
        """Store a key."""
        self._digests[digest] = record.key_id
        self._keys[record.key_id] = replace(record, created_at=self._clock.now())

    async def find(self, digest: str) -> tuple[ApiKeyRecord, float] | None:
        """Return the key with this digest, and the time of the store."""
        key_id = self._digests.get(digest)
        return None if key_id is None else (self._keys[key_id], self._clock.now())

    async def all(self) -> Sequence[ApiKeyRecord]:
        """Return all keys, newest first."""
        return sorted(self._keys.values(), key=lambda record: (-record.created_at, record.key_id))

    async def revoke(self, key_id: str) -> ApiKeyRecord | None:
        """Revoke a key; return it, if it exists."""
        record = self._keys.get(key_id)
        if record is not None and record.revoked_at is None:
            record = self._keys[key_id] = replace(record, revoked_at=self._clock.now())
        return record

    async def expire(self, key_id: str, expires_at: float) -> None:
        """Let a key expire at a time, unless it expires before."""
        record = self._keys.get(key_id)
        if record is not None and (record.expires_at is None or record.expires_at > expires_at):
            self._keys[key_id] = replace(record, expires_at=expires_at)

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        """Record that keys were used now."""
        for key_id in key_ids:
            if key_id in self._keys:
                self._keys[key_id] = replace(self._keys[key_id], last_used_at=self._clock.now())
