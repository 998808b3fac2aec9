"""API keys in memory. They behave like those on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.host.clocks import SystemClock
from dagmaster.store.memory.audit_trail import MemoryAuditTrail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.api_keys import ApiKeyRecord
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.clock import Clock


class MemoryApiKeyStore:
    """Keys in memory."""

    def __init__(self, clock: Clock | None = None, audit_trail: MemoryAuditTrail | None = None) -> None:
        self._clock = clock or SystemClock()
        self._audit_trail = audit_trail or MemoryAuditTrail(self._clock)
        self._digests: dict[str, str] = {}
        self._keys: dict[str, ApiKeyRecord] = {}

    async def add(self, record: ApiKeyRecord, digest: str, *, audit: Sequence[AuditEntry] = ()) -> None:
        self._digests[digest] = record.key_id
        self._keys[record.key_id] = replace(record, created_at=self._clock.now())
        self._audit_trail.add(audit)

    async def rotate(
        self,
        old_id: str,
        expires_at: float,
        record: ApiKeyRecord,
        digest: str,
        *,
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        await self.add(record, digest, audit=audit)
        if old_id in self._keys:
            old = self._keys[old_id]
            expires_at = expires_at if old.expires_at is None else min(expires_at, old.expires_at)
            self._keys[old_id] = replace(old, expires_at=expires_at)

    async def find(self, digest: str) -> tuple[ApiKeyRecord, float] | None:
        key_id = self._digests.get(digest)
        return None if key_id is None else (self._keys[key_id], self._clock.now())

    async def all(self) -> Sequence[ApiKeyRecord]:
        return sorted(self._keys.values(), key=lambda record: (-record.created_at, record.key_id))

    async def revoke(self, key_id: str, *, audit: Sequence[AuditEntry] = ()) -> ApiKeyRecord | None:
        record = self._keys.get(key_id)
        if record is not None:
            record = self._keys[key_id] = replace(record, revoked_at=record.revoked_at or self._clock.now())
            self._audit_trail.add(audit, name=record.name)
        return record

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        for key_id in key_ids:
            if key_id in self._keys:
                self._keys[key_id] = replace(self._keys[key_id], last_used_at=self._clock.now())
