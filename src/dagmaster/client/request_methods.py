"""Methods of clients about requests of partners and platforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.application.queries.requests import ALL_REQUESTS
from dagmaster.application.views import (
    PlatformRecord,
    RequestRecord,
    RequestResult,
    RequestStatusRecord,
)
from dagmaster.client.methods import Request, get, post, returns, returns_list, returns_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.client.connection import Connection
    from dagmaster.ports.requests import RequestFilter
    from dagmaster.records.requests import RequestBody


class RequestMethods:
    """Requests that partners make, and the platforms whose identifiers they send."""

    connection: Connection

    @returns(RequestResult)
    def submit_request(self, body: RequestBody) -> Request:
        """Store a request and its job; raise `RequestRejected` if it is stored and no job can start."""
        return post("submit", body=_body(body), is_repeatable=_is_repeatable(body))

    @returns_list(RequestResult)
    def submit_requests(self, bodies: Sequence[RequestBody]) -> Request:
        """Store up to 100 requests; return an outcome for each: an invalid one stops no other."""
        body = {"requests": [_body(one) for one in bodies]}
        return post("submit", "batch", body=body, is_repeatable=all(map(_is_repeatable, bodies)))

    @returns_page(RequestRecord)
    def list_requests(
        self, request_filter: RequestFilter = ALL_REQUESTS, *, cursor: str | None = None, limit: int = 100
    ) -> Request:
        """List requests that match, newest first."""
        return get(
            "requests",
            status=sorted(request_filter.statuses) or None,
            tenant=request_filter.tenant,
            workflow_id=request_filter.workflow_id,
            platform_id=request_filter.platform_id,
            actor=request_filter.actor,
            idempotency_key=request_filter.idempotency_key,
            cursor=cursor,
            limit=limit,
        )

    @returns(RequestRecord)
    def show_request(self, request_id: str) -> Request:
        """Return one request, with the job that it led to."""
        return get("requests", request_id)

    @returns(RequestStatusRecord)
    def request_status(self, request_id: str) -> Request:
        """Return how far a request is, as its partner sees it."""
        return get("requests", request_id, "status")

    @returns_list(PlatformRecord)
    def list_platforms(self) -> Request:
        """Return the platforms whose identifiers you may send, by id."""
        return get("platforms")

    @returns(PlatformRecord)
    def show_platform(self, platform_id: str) -> Request:
        """Return one platform."""
        return get("platforms", platform_id)

    @returns(PlatformRecord)
    def set_platform(self, platform: PlatformRecord) -> Request:
        """Declare a platform, or replace its declaration."""
        return post("platforms", body=platform.to_dict(), is_repeatable=True)


def _body(body: RequestBody) -> dict[str, Any]:
    """Return what is sent: the fields of a platform's format stand next to the others."""
    document = body.to_dict()
    own = document.pop("fields")
    return {**{name: value for name, value in document.items() if value is not None}, **own}


def _is_repeatable(body: RequestBody) -> bool:
    return body.idempotency_key is not None or body.request_id is not None
