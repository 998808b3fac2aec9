"""API keys: who calls, and what a caller may do. Only the digest of a key is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from dagmaster.ports.tenants import ALL_TENANTS, DEFAULT_TENANT, OfTenant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.audit_trail import AuditEntry

SUBJECT_PREFIX: Final = "oidc:"
"""What the id of a caller with a token begins with: the subject follows."""


class Namespace(StrEnum):
    """Where the name of a caller comes from. Actors are NAMESPACE:NAME; a user is a bare name."""

    KEY = "key"
    SANDBOX = "sandbox"
    """A key whose requests are played: it has its own idempotency keys, and sees its own requests alone."""
    OIDC = "oidc"
    SETTINGS = "settings"
    USER = "user"


class Scope(StrEnum):
    """What a caller may do. `admin` includes all others but `work`, which is for workers only."""

    SUBMIT = "submit"
    READ = "read"
    OPERATE = "operate"
    WORK = "work"
    ADMIN = "admin"


class Reach(StrEnum):
    """What a route is about: each route declares it, for keys that reach only their own jobs."""

    JOB = "job"
    """One job, which its path names."""
    JOBS = "jobs"
    """Jobs, of which a narrowed caller sees its own."""
    OPEN = "open"
    """No job of another caller: what is published, what is submitted, what a worker does with its tasks."""
    REQUESTS = "requests"
    """Requests of partners, of which a narrowed caller sees its own: all that a sandbox key reaches."""
    ALL = "all"
    """All jobs and services: not for a caller that reaches only its own jobs."""
    INSTALLATION = "installation"
    """The installation: for its own callers, and not for another tenant's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """What a key is narrowed to, by exact names; empty: everything that its scopes allow."""

    queues: tuple[str, ...] = ()
    """The queues that its workers may claim from."""
    handlers: tuple[str, ...] = ()
    """The handlers that its workers may have."""
    workflows: tuple[str, ...] = ()
    """The workflows that it may submit."""
    is_own: bool = False
    """Whether it reaches only jobs that it submitted."""

    def __bool__(self) -> bool:
        return bool(self.queues or self.handlers or self.workflows or self.is_own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller(OfTenant):
    """Who sends a request. `actor` is the submitter and sender of what it does.

    `key_id` is the id of its key, or `SUBJECT_PREFIX` and the subject of its token.
    """

    key_id: str
    name: str
    scopes: frozenset[Scope]
    namespace: Namespace = Namespace.KEY
    limits: KeyLimits = KeyLimits()
    expires_at: float | None = None
    """When its key or token expires, if it does."""

    @property
    def actor(self) -> str:
        """Return the name of the caller in its tenant and namespace: no two callers share one."""
        name = actor_of(self.namespace, self.name)
        return name if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{name}"

    @property
    def sees(self) -> str:
        """Return the tenant whose rows the caller sees: its own; an installation's administrator sees all."""
        return ALL_TENANTS if self.is_installation_admin else self.tenant

    @property
    def is_sandbox(self) -> bool:
        """Return whether nothing that the caller submits may run."""
        return self.namespace is Namespace.SANDBOX

    @property
    def works_for(self) -> str:
        """Return whose tasks its workers get: one of the installation runs all tasks."""
        return ALL_TENANTS if self.tenant == DEFAULT_TENANT else self.tenant

    @property
    def is_installation_admin(self) -> bool:
        """Return whether the caller administers the installation, and not only a tenant."""
        return self.tenant == DEFAULT_TENANT and Scope.ADMIN in self.scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord(Caller):
    """A key as it is stored."""

    created_at: float
    created_by: str
    revoked_at: float | None = None
    last_used_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Return whether the key may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A session of a browser as it is stored, or the link that starts one. `session_id` is no secret.

    `caller`: who it acts for. What a key may do is read from the key each time, and not from here.
    """

    session_id: str
    caller: Caller
    created_at: float
    expires_at: float
    is_link: bool = False
    key: ApiKeyRecord | None = None
    """The key that it was started with, as it is now; None for a token, and for the key of the settings."""
    ended_at: float | None = None
    """When it was revoked, or when the link was used."""

    def is_valid(self, now: float) -> bool:
        """Return whether the session may be used: it ends with its key."""
        return (
            self.ended_at is None and now < self.expires_at and (self.key is None or self.key.is_valid(now))
        )


def actor_of(namespace: Namespace, name: str) -> str:
    """Return the actor of a name. A user's is the bare name, unless that looks like another namespace."""
    is_bare = namespace is Namespace.USER and name.partition(":")[0] not in tuple(Namespace)
    return name if is_bare else f"{namespace}:{name}"


class TokenVerifier(Protocol):
    """Finds callers by tokens of an identity provider."""

    async def find_caller(self, token: str) -> Caller:
        """Return the caller of a token; raise `TokenRejected`, or `IssuerUnavailable` if unchecked."""


class ApiKeyStore(Protocol):
    """Stores keys. Every method raises `DatabaseUnavailable` if the store cannot be reached.

    `audit` is stored in the transaction of the change.
    """

    def for_tenant(self, tenant: str) -> ApiKeyStore:
        """Return the keys and sessions of a tenant, over the same connection."""

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

    async def start_session(self, session: BrowserSession, digest: str) -> None:
        """Store a session or a link; those that expired some time ago are removed."""

    async def find_session(self, digest: str) -> tuple[BrowserSession, float] | None:
        """Return the session with this digest, valid or not, and the time of the store; never a link."""

    async def take_link(self, digest: str) -> BrowserSession | None:
        """End the link with this digest, and return it as it was; None if it was used or has expired."""

    async def sessions(self) -> Sequence[BrowserSession]:
        """Return the sessions that have neither ended nor expired, newest first, without links."""

    async def end_session(
        self, session_id: str, *, audit: Sequence[AuditEntry] = ()
    ) -> BrowserSession | None:
        """End a session, unless it has ended already; return it, if it exists. Else no entry is stored."""

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        """Record that keys were used now."""
