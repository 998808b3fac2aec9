"""The audit trail in memory. It behaves like that on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.host.clocks import SystemClock
from dagmaster.ports.audit_trail import AuditEntry, AuditFilter, AuditRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.clock import Clock
    from dagmaster.records.page import Position

_FIELDS = ("actor", "action", "object_kind", "object_id")


class MemoryAuditTrail:
    """Entries in memory."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._records: list[AuditRecord] = []

    def for_tenant(self, tenant: str) -> MemoryAuditTrail:
        del tenant
        return self

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        self.add(entries)

    def add(self, entries: Iterable[AuditEntry], **details: JsonValue) -> None:
        """Store the entries of a change that a store makes, with details that only the store knows."""
        for entry in entries:
            stored = replace(entry, details={**entry.details, **details})
            self._records.append(
                AuditRecord.of_entry(stored, entry_id=len(self._records) + 1, at=self._clock.now())
            )

    async def entries(
        self, audit_filter: AuditFilter, *, after: Position | None = None, limit: int = 100
    ) -> Sequence[AuditRecord]:
        matching = [
            record
            for record in reversed(self._records)
            if (after is None or int(record.entry_id) < int(after[0])) and _matches(record, audit_filter)
        ]
        return matching[:limit]


def _matches(entry: AuditEntry, audit_filter: AuditFilter) -> bool:
    return all(getattr(audit_filter, name) in (None, getattr(entry, name)) for name in _FIELDS)
