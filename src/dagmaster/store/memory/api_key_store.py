"""API keys in memory. They behave like those on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.host.clocks import SystemClock
from dagmaster.store.memory.audit_trail import MemoryAuditTrail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.api_keys import ApiKeyRecord, BrowserSession
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.clock import Clock


class MemoryApiKeyStore:
    """Keys in memory."""

    def __init__(self, clock: Clock | None = None, audit_trail: MemoryAuditTrail | None = None) -> None:
        self._clock = clock or SystemClock()
        self._audit_trail = audit_trail or MemoryAuditTrail(self._clock)
        self._digests: dict[str, str] = {}
        self._keys: dict[str, ApiKeyRecord] = {}
        self._sessions: dict[str, BrowserSession] = {}

    def for_tenant(self, tenant: str) -> MemoryApiKeyStore:
        del tenant
        return self

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

    async def start_session(self, session: BrowserSession, digest: str) -> None:
        """Store a session or a link."""
        now = self._clock.now()
        self._sessions = {
            one: stored for one, stored in self._sessions.items() if stored.expires_at > now - 86_400
        }
        self._sessions[digest] = replace(session, created_at=now)

    async def find_session(self, digest: str) -> tuple[BrowserSession, float] | None:
        session = self._sessions.get(digest)
        return None if session is None or session.is_link else (self._with_key(session), self._clock.now())

    async def take_link(self, digest: str) -> BrowserSession | None:
        link, now = self._sessions.get(digest), self._clock.now()
        if link is None or not link.is_link or link.ended_at is not None or link.expires_at <= now:
            return None
        self._sessions[digest] = replace(link, ended_at=now)
        return self._with_key(link)

    async def sessions(self) -> Sequence[BrowserSession]:
        now = self._clock.now()
        open_ones = [
            self._with_key(session)
            for session in self._sessions.values()
            if not session.is_link and session.ended_at is None and session.expires_at > now
        ]
        return sorted(open_ones, key=lambda session: (-session.created_at, session.session_id))

    async def end_session(
        self, session_id: str, *, audit: Sequence[AuditEntry] = ()
    ) -> BrowserSession | None:
        for digest, session in self._sessions.items():
            if session.session_id == session_id and not session.is_link:
                ended = replace(session, ended_at=session.ended_at or self._clock.now())
                self._sessions[digest] = ended
                self._audit_trail.add(audit, name=session.caller.name)
                return ended
        return None

    def _with_key(self, session: BrowserSession) -> BrowserSession:
        return replace(session, key=self._keys.get(session.caller.key_id))

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        for key_id in key_ids:
            if key_id in self._keys:
                self._keys[key_id] = replace(self._keys[key_id], last_used_at=self._clock.now())
