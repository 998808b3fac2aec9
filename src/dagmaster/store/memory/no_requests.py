"""Requests and platforms of a process without a database: there are none, and none can be stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.errors import RequestsUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.job_records import NewJob
    from dagmaster.ports.requests import NewRequest, RequestFacts, RequestFilter, StoredRequest
    from dagmaster.records.page import Position
    from dagmaster.records.requests import PlatformRecord, RequestRecord


class NoRequests:
    """Finds no request and no platform. To store one raises `RequestsUnavailable`."""

    async def platforms(self) -> Sequence[PlatformRecord]:
        return []

    async def status(self, _request_id: str, *, actor: str | None = None) -> RequestFacts | None:
        del actor
        return None

    async def requests(
        self, _request_filter: RequestFilter, *, after: Position | None = None, limit: int = 100
    ) -> Sequence[RequestRecord]:
        del after, limit
        return []

    async def request(self, _request_id: str, *, actor: str | None = None) -> RequestRecord | None:
        del actor
        return None

    async def submit(
        self, _requests: Sequence[NewRequest], _jobs: Sequence[NewJob], *, audit: Sequence[AuditEntry] = ()
    ) -> Mapping[str, float]:
        del audit
        raise RequestsUnavailable

    async def find(self, _requests: Sequence[NewRequest]) -> Mapping[str, StoredRequest]:
        return {}

    async def put_platform(self, _platform: PlatformRecord, *, audit: Sequence[AuditEntry] = ()) -> None:
        del audit
        raise RequestsUnavailable
