"""Views of the audit trail."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.json_types import JsonObject
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntryView(Record):
    """A change: who made what of which object.

    `key_id`: the key of the request, as several keys may have the name of the actor; of a token `oidc:` and its
    subject; null: a user of the database.
    """

    entry_id: str
    at: Timestamp
    actor: str
    key_id: str | None
    action: str
    object_kind: str
    object_id: str
    request_id: str | None
    details: JsonObject
