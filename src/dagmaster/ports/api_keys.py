"""API keys: who calls, and what a caller may do. Only the digest of a key is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.audit_trail import AuditEntry

SUBJECT_PREFIX: Final = "oidc:"
"""What the id of a caller with a token begins with: the subject follows."""


class Scope(StrEnum):
    """What a caller may do. `admin` includes all others but `work`, which is for workers only."""

    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"
    WORK = "work"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request. `name` is the submitter and sender of what it does.

    `key_id` is the id of its key, or `SUBJECT_PREFIX` and the subject of its token.
    """

    key_id: str
    name: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord(Caller):
    """A key as it is stored."""

    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Return whether the key may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class TokenVerifier(Protocol):
    """Finds callers by tokens of an identity provider."""

    async def find_caller(self, token: str) -> Caller:
        """Return the caller of a token; raise `TokenRejected`, or `IssuerUnavailable` if unchecked."""


class ApiKeyStore(Protocol):
    """Stores keys. Every method raises `DatabaseUnavailable` if the store cannot be reached.

    `audit` is stored in the transaction of the change.
    """

    async def add(self, record: ApiKeyRecord, digest: str, *, audit: Sequence[AuditEntry] = ()) -> None:
        """Store a key."""

    async def rotate(
        self,
        old_id: str,
        expires_at: float,
        record: ApiKeyRecord,
        digest: str,
        *,
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Store a key, and let the one that it replaces expire at a time, unless that expires before."""

    async def find(self, digest: str) -> tuple[ApiKeyRecord, float] | None:
        """Return the key with this digest, valid or not, and the time of the store."""

    async def all(self) -> Sequence[ApiKeyRecord]:
        """Return all keys, newest first."""

    async def revoke(self, key_id: str, *, audit: Sequence[AuditEntry] = ()) -> ApiKeyRecord | None:
        """Revoke a key, unless it is revoked already; return it, if it exists. Else no entry is stored."""

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        """Record that keys were used now."""
