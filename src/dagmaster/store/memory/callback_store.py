"""Callbacks in memory: what a test puts there. Jobs in memory notify nobody."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.host.clocks import SystemClock
from dagmaster.ports.callbacks import MAX_SECRETS, PublicKey, ReplayBatch, ResumeBatch
from dagmaster.ports.tenants import ALL_TENANTS, DEFAULT_TENANT
from dagmaster.records.callbacks import (
    CallbackRecord,
    DeliveryStatus,
    EndpointRecord,
    SecretKind,
    SigningSecretRecord,
)
from dagmaster.store.memory.audit_trail import MemoryAuditTrail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.callbacks import CallbackFilter, NewSecret
    from dagmaster.ports.clock import Clock
    from dagmaster.records.page import Position

_EQUAL = ("status", "endpoint", "tenant")


class MemoryCallbackStore:
    """Callbacks, endpoints and secrets of all tenants, as one of them sees them."""

    def __init__(
        self,
        clock: Clock | None = None,
        audit_trail: MemoryAuditTrail | None = None,
        *,
        tenant: str = ALL_TENANTS,
    ) -> None:
        self._clock = clock or SystemClock()
        self._audit_trail = audit_trail or MemoryAuditTrail(self._clock)
        self._tenant = tenant
        self.rows: list[CallbackRecord] = []
        self.paused: dict[tuple[str, str], tuple[float, str]] = {}
        self._secrets: dict[str, SigningSecretRecord] = {}

    def for_tenant(self, tenant: str) -> MemoryCallbackStore:
        same = MemoryCallbackStore(self._clock, self._audit_trail, tenant=tenant)
        same.rows, same.paused, same._secrets = self.rows, self.paused, self._secrets
        return same

    async def callbacks(
        self, callback_filter: CallbackFilter, *, after: Position | None, limit: int
    ) -> Sequence[tuple[int, CallbackRecord]]:
        rows = [
            (seq, row) for seq, row in self._matching(callback_filter) if after is None or seq < int(after[0])
        ]
        return rows[::-1][:limit]

    async def find(self, callback_id: str) -> CallbackRecord | None:
        return next(
            (row for row in self.rows if row.callback_id == callback_id and self._sees(row.tenant)), None
        )

    async def endpoints(
        self, *, is_paused: bool | None = None, endpoint: str | None = None, tenant: str | None = None
    ) -> Sequence[EndpointRecord]:
        places = sorted({(row.tenant, row.endpoint) for row in self.rows} | self.paused.keys())
        records = [
            self._endpoint(*place)
            for place in places
            if self._sees(place[0]) and tenant in (None, place[0]) and endpoint in (None, place[1])
        ]
        chosen = [one for one in records if is_paused in (None, one.paused_at is not None)]
        return sorted(chosen, key=lambda one: (one.paused_at is None, one.tenant, one.endpoint))

    async def replay(
        self,
        callback_filter: CallbackFilter,
        callback_id: str | None = None,
        *,
        after: Position | None = None,
        limit: int = 1,
        audit: Sequence[AuditEntry],
    ) -> ReplayBatch:
        matching = [
            (seq, row)
            for seq, row in self._matching(callback_filter)
            if row.status is not DeliveryStatus.WAITING
            and callback_id in (None, row.callback_id)
            and (after is None or seq > int(after[0]))
        ]
        chosen = matching[:limit]
        for seq, row in chosen:
            self.rows[seq] = replace(
                row,
                status=DeliveryStatus.WAITING,
                attempts=0,
                next_attempt_at=self._clock.now(),
                delivered_at=None,
                dead_at=None,
                dead_reason=None,
            )
        position = chosen[-1][0] if len(chosen) == limit else None
        return ReplayBatch(self._changed(len(chosen), audit), position, len(matching) - len(chosen))

    async def pause(self, endpoint: str, tenant: str | None, by: str, *, audit: Sequence[AuditEntry]) -> int:
        places = [
            (one.tenant, one.endpoint)
            for one in await self.endpoints(endpoint=endpoint, tenant=tenant, is_paused=False)
        ]
        self.paused.update(dict.fromkeys(places, (self._clock.now(), by)))
        return self._changed(len(places), audit)

    async def resume(
        self,
        endpoint: str,
        tenant: str | None,
        *,
        limit: int,  # noqa: ARG002 - there is nothing to recover: a pause in memory has no failures
        audit: Sequence[AuditEntry],
    ) -> ResumeBatch | None:
        records = await self.endpoints(endpoint=endpoint, tenant=tenant, is_paused=True)
        for one in records:
            del self.paused[one.tenant, one.endpoint]
        return ResumeBatch(self._changed(len(records), audit), 0, 0) if records else None

    async def secrets(self, tenant: str | None = None) -> Sequence[SigningSecretRecord]:
        rows = [
            row for row in self._secrets.values() if self._sees(row.tenant) and tenant in (None, row.tenant)
        ]
        return sorted(rows, key=lambda row: (row.tenant, -row.created_at, row.secret_id))

    async def add_secret(
        self, secret: NewSecret, *, overlap_seconds: float, audit: Sequence[AuditEntry]
    ) -> SigningSecretRecord | None:
        active = [row for row in self._active(secret.tenant) if row.kind is secret.kind]
        if len(active) >= MAX_SECRETS:
            return None
        until = self._clock.now() + overlap_seconds
        for row in active:
            ends = until if row.expires_at is None else min(until, row.expires_at)
            self._secrets[row.secret_id] = replace(row, expires_at=ends)
        self._audit_trail.add(audit)
        return self._store(secret)

    async def ensure_key_pair(self, secret: NewSecret) -> None:
        if not self._active(secret.tenant):
            self._store(secret)

    async def revoke_secret(
        self, secret_id: str, *, audit: Sequence[AuditEntry]
    ) -> SigningSecretRecord | None:
        row = self._secrets.get(secret_id)
        if row is None or not self._sees(row.tenant):
            return None
        row = self._secrets[secret_id] = replace(row, revoked_at=row.revoked_at or self._clock.now())
        self._audit_trail.add(audit)
        return row

    async def public_keys(self, key_set: str | None) -> Sequence[PublicKey]:
        now = self._clock.now()
        return [
            PublicKey(row.secret_id, row.public_key, row.expires_at)
            for row in sorted(self._secrets.values(), key=lambda row: -row.created_at)
            if row.public_key is not None
            and row.is_active(now)
            and (row.tenant == DEFAULT_TENANT if key_set is None else row.key_set == key_set)
        ]

    def _sees(self, tenant: str) -> bool:
        return self._tenant in (ALL_TENANTS, tenant)

    def _matching(self, callback_filter: CallbackFilter) -> Iterator[tuple[int, CallbackRecord]]:
        for seq, row in enumerate(self.rows):
            is_equal = all(getattr(callback_filter, name) in (None, getattr(row, name)) for name in _EQUAL)
            is_of = callback_filter.subject in (None, row.request_id or row.job_id)
            is_since = callback_filter.since is None or row.occurred_at >= callback_filter.since
            is_until = callback_filter.until is None or row.occurred_at < callback_filter.until
            if self._sees(row.tenant) and is_equal and is_of and is_since and is_until:
                yield seq, row

    def _endpoint(self, tenant: str, endpoint: str) -> EndpointRecord:
        own = [row for row in self.rows if (row.tenant, row.endpoint) == (tenant, endpoint)]
        paused_at, paused_by = self.paused.get((tenant, endpoint), (None, None))
        return EndpointRecord(
            tenant=tenant,
            endpoint=endpoint,
            failures=0,
            failing_since=None,
            last_error=next((row.last_error for row in own[::-1] if row.last_error), None),
            last_attempt_at=None,
            last_delivered_at=None,
            paused_at=paused_at,
            paused_by=paused_by,
            pause_reason=None if paused_at is None else "operator",
            waiting=sum(row.status is DeliveryStatus.WAITING for row in own),
            dead=sum(row.status is DeliveryStatus.DEAD for row in own),
        )

    def _active(self, tenant: str) -> list[SigningSecretRecord]:
        now = self._clock.now()
        return [row for row in self._secrets.values() if row.tenant == tenant and row.is_active(now)]

    def _store(self, secret: NewSecret) -> SigningSecretRecord:
        key_sets = [row.key_set for row in self._secrets.values() if row.tenant == secret.tenant]
        row = SigningSecretRecord(
            secret_id=secret.secret_id,
            tenant=secret.tenant,
            kind=SecretKind(secret.kind),
            public_key=secret.public_key,
            key_set=key_sets[0] if key_sets else str(uuid.uuid4()),
            created_at=self._clock.now(),
            created_by=secret.created_by,
            expires_at=None,
            revoked_at=None,
        )
        self._secrets[row.secret_id] = row
        return row

    def _changed(self, count: int, audit: Sequence[AuditEntry]) -> int:
        if count:
            self._audit_trail.add(
                [replace(entry, details={**entry.details, "count": count}) for entry in audit]
            )
        return count
