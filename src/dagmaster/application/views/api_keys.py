"""Views of API keys."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyView(Record):
    """A key, without its secret. `name`: the submitter and sender of what is done with it."""

    key_id: str
    name: str
    scopes: tuple[str, ...]
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    last_used_at: Timestamp | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKeyView(ApiKeyView):
    """A new key with its secret, which is shown only here."""

    key: str
