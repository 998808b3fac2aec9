"""Requests of partners, and platforms: what is stored, and who stores and reads it.

Only PostgreSQL has them. There is no store in memory: a tenant, a quota and an idempotency key that outlive
the process are what a request is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.json_types import JsonObject
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.job_records import NewJob
    from dagmaster.records.page import Position
    from dagmaster.records.requests import (
        PlatformRecord,
        RequestBody,
        RequestRecord,
        RequestStatus,
        RequestStatusRecord,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request to store: with the job that it leads to, with why there is no job, or with what is played."""

    request_id: str
    tenant: str
    actor: str
    body: RequestBody
    payload: str
    body_hash: str
    hidden_hash: str | None = None
    job_id: str | None = None
    error: JsonObject | None = None
    sandbox: JsonObject | None = None


class StoredRequest(NamedTuple):
    """What is stored of a request that was sent before. `hidden`: how its secret values are recognized.

    `is_own`: the same caller has sent it.
    """

    request_id: str
    is_own: bool
    workflow_id: str
    body_hash: str
    hidden: JsonObject | None
    error: JsonObject | None
    job_id: str | None
    created_at: float


class RequestFacts(NamedTuple):
    """What is stored of the status of a request.

    `record.error_code` is that of its rejection, its job, or its sandbox. It and the result are not yet what
    a partner may see.
    """

    record: RequestStatusRecord
    is_cancelled: bool
    result_ref: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilter:
    """A filter of requests. What is None or empty does not filter."""

    statuses: frozenset[RequestStatus] = frozenset()
    tenant: str | None = None
    workflow_id: str | None = None
    platform_id: str | None = None
    actor: str | None = None
    idempotency_key: str | None = None


class PlatformReader(Protocol):
    """Reads platforms: those that the tenant may use."""

    async def platforms(self) -> Sequence[PlatformRecord]:
        """Return the platforms, by id."""


class RequestReader(PlatformReader, Protocol):
    """Reads requests: those that the tenant may see."""

    async def status(self, request_id: str, *, actor: str | None = None) -> RequestFacts | None:
        """Return how far a request is; with `actor`, only one of that caller.

        An unknown id, one of another tenant and one that is no id cost the same query.
        """

    async def requests(
        self, request_filter: RequestFilter, *, after: Position | None = None, limit: int = 100
    ) -> Sequence[RequestRecord]:
        """Return requests that match, newest first; the position is (submitted at, request id)."""

    async def request(self, request_id: str, *, actor: str | None = None) -> RequestRecord | None:
        """Return one request."""


class RequestStore(PlatformReader, Protocol):
    """Stores requests with their jobs."""

    async def submit(
        self, requests: Sequence[NewRequest], jobs: Sequence[NewJob], *, audit: Sequence[AuditEntry] = ()
    ) -> Mapping[str, float]:
        """Store requests and the jobs that they lead to in one transaction; return when, by new ids.

        A request whose id or idempotency key is in use is not stored again, nor are its job and its entry.
        Raise `RequestQuotaExceeded` if a tenant may not make that many: then nothing is stored.
        """

    async def find(self, requests: Sequence[NewRequest]) -> Mapping[str, StoredRequest]:
        """Return the stored requests with the same idempotency keys or ids, by the ids of the new ones."""

    async def put_platform(self, platform: PlatformRecord, *, audit: Sequence[AuditEntry] = ()) -> None:
        """Store a platform, or replace its declaration."""
