"""The audit trail: who changed what, append-only. Not the events of a job, which its owner writes.

A store writes the entry of a change in the transaction of the change: there is no change without its entry,
and no entry without its change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dagmaster.json_types import JsonValue
from dagmaster.records.record import Record, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.records.page import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Record):
    """A change: `action` (`job.cancel`) by `actor` of an object (`job`, its id), in a request."""

    actor: str
    action: str
    object_kind: str
    object_id: str
    request_id: str | None = None
    details: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOrigin:
    """Where a change comes from: who makes it, and in the API in which request and with which key."""

    actor: str
    request_id: str | None = None
    key_id: str | None = None

    def entry(
        self,
        action: str,
        object_kind: str,
        object_id: str,
        details: Mapping[str, JsonValue] | None = None,
        *,
        actor: str = "",
    ) -> AuditEntry:
        """Return the entry of a change; `actor` if it is made in the name of another."""
        key = {} if self.key_id is None else {"key_id": self.key_id}
        return AuditEntry(
            actor=actor or self.actor,
            action=action,
            object_kind=object_kind,
            object_id=object_id,
            request_id=self.request_id,
            details={**key, **(details or {})},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord(
    AuditEntry,
    documented="AuditEntryView",
    order={"entry_id": "", "at": "entry_id", "key_id": "actor"},
):
    """A change: who made what of which object.

    `key_id`: the key of the request, as several keys may have the name of the actor; of a token `oidc:` and
    its subject; null: a user of the database.
    """

    entry_id: str
    at: Timestamp
    key_id: str | None

    @classmethod
    def of_entry(cls, entry: AuditEntry, *, entry_id: int, at: float) -> AuditRecord:
        details = dict(entry.details)
        key_id = details.pop("key_id", None)
        key = None if key_id is None else str(key_id)
        return cls.of(entry, entry_id=str(entry_id), at=at, key_id=key, details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """A filter of entries. What is None does not filter."""

    actor: str | None = None
    action: str | None = None
    object_kind: str | None = None
    object_id: str | None = None


class AuditTrail(Protocol):
    """Stores entries. There is no method to change or remove one, and the database allows none."""

    def for_tenant(self, tenant: str) -> AuditTrail:
        """Return the trail of a tenant, over the same connections."""

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Store the entries of a change that no store makes, all or none."""

    async def entries(
        self, audit_filter: AuditFilter, *, after: Position | None = None, limit: int = 100
    ) -> Sequence[AuditRecord]:
        """Return entries that match, newest first; the position is (entry id,)."""
