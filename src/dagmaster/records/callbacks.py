"""What is known of callbacks, of the endpoints that they go to, and of what they are signed with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dagmaster.records.record import Record, Timestamp


class CallbackState(StrEnum):
    """A state that a receiver is notified of."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class DeliveryStatus(StrEnum):
    """What became of a callback."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"
    """It is not sent again, unless an operator replays it."""


class SecretKind(StrEnum):
    """How a signing secret signs."""

    HMAC = "hmac"
    ED25519 = "ed25519"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackFacts(Record):
    """Which state of a request, or of a job, is sent to which address."""

    callback_id: str
    tenant: str
    request_id: str | None
    job_id: str | None
    run: int
    state: CallbackState
    url: str
    endpoint: str
    occurred_at: Timestamp
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRecord(CallbackFacts):
    """A callback, and what became of it.

    `url`: without its query, which may have a token. `next_attempt_at`: null unless it waits.
    """

    status: DeliveryStatus
    next_attempt_at: Timestamp | None
    last_attempt_at: Timestamp | None
    last_status: int | None
    last_error: str | None
    delivered_at: Timestamp | None
    dead_at: Timestamp | None
    dead_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRecord(Record):
    """Where callbacks of a tenant go: the origin of their addresses, its health, and what waits for it.

    `pause_reason`: `failing` for days, `gone` (it answered 410) or `operator`; null: it is not paused.
    """

    tenant: str
    endpoint: str
    failures: int
    failing_since: Timestamp | None
    last_error: str | None
    last_attempt_at: Timestamp | None
    last_delivered_at: Timestamp | None
    paused_at: Timestamp | None
    paused_by: str | None
    pause_reason: str | None
    waiting: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecretFacts(Record):
    """What callbacks of a tenant are signed with, without the secret. `public_key`: of a key pair."""

    secret_id: str
    tenant: str
    kind: SecretKind
    public_key: str | None
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecretRecord(SigningSecretFacts):
    """What callbacks of a tenant are signed with, without the secret. `public_key`: of a key pair.

    `key_set`: the name of the tenant's public keys in their address.
    """

    key_set: str
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None

    def is_active(self, now: float) -> bool:
        """Return whether callbacks are signed with it."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
