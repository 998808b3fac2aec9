"""Callbacks: what a relay takes from the outbox and writes back, and what operators see and change.

The outbox is filled by the database, in the transaction that changes a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dagmaster.records.callbacks import CallbackFacts, SigningSecretFacts

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.records.callbacks import (
        CallbackRecord,
        DeliveryStatus,
        EndpointRecord,
        SecretKind,
        SigningSecretRecord,
    )
    from dagmaster.records.page import Position

ID_PREFIX: Final = "msg_"
"""What the id of a callback begins with; the hexadecimal digits of a UUID follow."""
FAILING: Final = 5
"""An endpoint that failed so often in a row gets one callback at a time, after a while; less often, it is
not paused."""
MAX_SECRETS: Final = 2
"""How many secrets of one kind may be active at once: the new one and the one that it replaces."""

MAX_LEFT: Final = 100_000
"""How far what is left of a change is counted."""


# ── The relay ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedCallback(CallbackFacts):
    """A callback that a relay holds until its lease ends.

    `result_key`: what signs the address of a request's result. `failures`: of its endpoint, since the last
    success.
    """

    lease_token: int
    reason: str | None
    failures: int
    result_key: str | None


class Verdict(StrEnum):
    """What becomes of a callback after an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    POSTPONED = "postponed"
    """It was not sent, for a reason of our own: that is no attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackOutcome:
    """What came of an attempt. `delay_seconds`: until the next one.

    `closed_seconds`: how long nothing is sent to the endpoint. `dead_reason` `gone`: it is paused.
    """

    callback: ClaimedCallback
    verdict: Verdict
    status: int | None = None
    error: str | None = None
    delay_seconds: float = 0.0
    closed_seconds: float = 0.0
    dead_reason: str | None = None


class ClaimBatch(NamedTuple):
    """What a claim found. `has_more`: ask again at once. `wait_seconds`: until something is due, if known."""

    callbacks: Sequence[ClaimedCallback]
    has_more: bool
    wait_seconds: float | None


class PausedEndpoint(NamedTuple):
    """An endpoint that was paused just now."""

    tenant: str
    endpoint: str
    reason: str


class ActiveSecret(NamedTuple):
    """A secret to sign with, sealed. `kind`, and the id to which it is bound."""

    secret_id: str
    kind: SecretKind
    sealed: str


class CallbackOutbox(Protocol):
    """The relay's side. Every method raises `DatabaseUnavailable` if the store cannot be reached."""

    wakeup: asyncio.Event
    """Set when a callback was stored."""

    async def listen(self) -> None:
        """Connect, and set `wakeup` from now on."""

    async def claim(
        self, limit: int, *, per_endpoint: int, lease_seconds: float, sending: Mapping[str, int]
    ) -> ClaimBatch:
        """Hold callbacks that are due: of each request or job the oldest alone, and of each endpoint a few.

        Of an endpoint that fails, one. `sending`: how many of each tenant this relay holds already; a tenant
        gets no more than stays free of `limit`.
        """

    async def record(
        self, outcomes: Sequence[CallbackOutcome], *, pause_seconds: float
    ) -> list[PausedEndpoint]:
        """Store what came of attempts, and pause endpoints that are gone or fail for too long.

        An outcome whose lease was lost changes nothing.
        """

    async def active_secrets(self, tenant: str) -> Sequence[ActiveSecret]:
        """Return what callbacks of a tenant are signed with, newest first."""

    async def prune(self, seconds: float) -> int:
        """Delete a batch of callbacks that were delivered so long ago; return how many it were."""

    async def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a receiver answered; `status` None: it did not, and `error` says why. `error` is shown."""

    status: int | None
    error: str | None = None
    retry_after_seconds: float | None = None


class CallbackSender(Protocol):
    """Sends one callback."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Send a request once, following no redirect; it raises nothing but `CallbackUrlInvalid`."""


# ── Operators ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackFilter:
    """A filter of callbacks. What is None does not filter.

    `subject`: the id of the request or of the job. `since`, `until`: when they were stored.
    """

    status: DeliveryStatus | None = None
    endpoint: str | None = None
    tenant: str | None = None
    subject: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret(SigningSecretFacts):
    """A signing secret to store, sealed."""

    sealed: str


class PublicKey(NamedTuple):
    """A public key of a tenant, and until when callbacks are signed with its pair, if that is known."""

    secret_id: str
    public_key: str
    expires_at: float | None


class ReplayBatch(NamedTuple):
    """How many callbacks are sent again. `position`: of the last one. `left`: how many follow."""

    changed: int
    position: int | None
    left: int


class ResumeBatch(NamedTuple):
    """How many endpoints are resumed, how many callbacks are sent again, and how many are left."""

    changed: int
    recovered: int
    left: int


class CallbackStore(Protocol):
    """What operators see and change. `audit` is stored in the transaction of the change."""

    def for_tenant(self, tenant: str) -> CallbackStore:
        """Return the same store on behalf of a tenant."""

    async def callbacks(
        self, callback_filter: CallbackFilter, *, after: Position | None, limit: int
    ) -> Sequence[tuple[int, CallbackRecord]]:
        """Return callbacks that match, newest first, each with its position."""

    async def find(self, callback_id: str) -> CallbackRecord | None:
        """Return a callback."""

    async def endpoints(
        self, *, is_paused: bool | None = None, endpoint: str | None = None, tenant: str | None = None
    ) -> Sequence[EndpointRecord]:
        """Return endpoints by tenant and name: paused ones first."""

    async def replay(
        self,
        callback_filter: CallbackFilter,
        callback_id: str | None = None,
        *,
        after: Position | None = None,
        limit: int = 1,
        audit: Sequence[AuditEntry],
    ) -> ReplayBatch:
        """Send up to `limit` callbacks again that do not wait, oldest first.

        No entry is stored if there are none.
        """

    async def pause(self, endpoint: str, tenant: str | None, by: str, *, audit: Sequence[AuditEntry]) -> int:
        """Send nothing more to endpoints that are not paused; return how many. Else no entry is stored."""

    async def resume(
        self, endpoint: str, tenant: str | None, *, limit: int, audit: Sequence[AuditEntry]
    ) -> ResumeBatch | None:
        """Recover up to `limit` callbacks of paused endpoints, and resume these if none is left.

        None: no such endpoint is paused. No entry is stored unless one is resumed.
        """

    async def secrets(self, tenant: str | None = None) -> Sequence[SigningSecretRecord]:
        """Return signing secrets by tenant, newest first, also those that have ended."""

    async def add_secret(
        self, secret: NewSecret, *, overlap_seconds: float, audit: Sequence[AuditEntry]
    ) -> SigningSecretRecord | None:
        """Store a secret, and let the active one of its kind expire; None if `MAX_SECRETS` are active."""

    async def ensure_key_pair(self, secret: NewSecret) -> None:
        """Store a key pair for a tenant without an active secret."""

    async def revoke_secret(
        self, secret_id: str, *, audit: Sequence[AuditEntry]
    ) -> SigningSecretRecord | None:
        """Revoke a secret at once; return it, if it exists. Else no entry is stored."""

    async def public_keys(self, key_set: str | None) -> Sequence[PublicKey]:
        """Return the public keys of a set, of which anybody may know; None: the installation's."""
