"""Requests of partners, as people of the installation ask about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.request_status import NOT_FOUND
from dagmaster.errors import KeyNarrowed, QueryInvalid, RequestNotFound, WorkflowNotFound
from dagmaster.ports.requests import RequestFilter
from dagmaster.ports.tenants import ALL_TENANTS
from dagmaster.records.page import Page
from dagmaster.records.requests import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.application.context import Application
    from dagmaster.records.requests import RequestRecord

ALL_REQUESTS = RequestFilter()


async def list_requests(
    app: Application,
    request_filter: RequestFilter = ALL_REQUESTS,
    *,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[RequestRecord]:
    """List requests that match, newest first."""
    after = start_page(CursorKind.REQUESTS, cursor, limit)
    records = await app.read.requests.requests(_narrow(app, request_filter), after=after, limit=limit)
    return Page(
        items=tuple(records),
        next_cursor=next_cursor(
            CursorKind.REQUESTS, records, limit, lambda one: (one.submitted_at, one.request_id)
        ),
    )


async def show_request(app: Application, request_id: str) -> RequestRecord:
    """Return one request; raise `RequestNotFound`."""
    record = await app.read.requests.request(request_id, actor=_own_actor(app))
    if record is None:
        raise RequestNotFound(NOT_FOUND)
    return await _explained(app, record)


async def _explained(app: Application, record: RequestRecord) -> RequestRecord:
    """Add to a rejection what its partner does not see: the installation has the workflow, for others."""
    rejection = record.rejection
    is_for_all = app.caller is None or app.caller.sees == ALL_TENANTS
    if rejection is None or rejection["code"] != WorkflowNotFound.code or not is_for_all:
        return record
    if not await app.read.versions(record.workflow_id, limit=1):
        return record
    message = (
        f"{rejection['message']} The installation has this workflow, but {record.tenant} may not use it:"
        " add it to the workflows of the tenant."
    )
    return replace(record, rejection={**rejection, "message": message})


def parse_request_statuses(names: Collection[str]) -> frozenset[RequestStatus]:
    """Return statuses by their names; raise `QueryInvalid` for another word."""
    try:
        return frozenset(RequestStatus(name.lower()) for name in names)
    except ValueError:
        raise QueryInvalid(f"not a status of a request: {', '.join(RequestStatus)}", field="status") from None


def _narrow(app: Application, request_filter: RequestFilter) -> RequestFilter:
    """Return a filter of the requests that the caller reaches.

    With its tenant, which the database checks anyway: so that its index finds them among the others.
    """
    actor, caller = _own_actor(app), app.caller
    if caller is not None and caller.sees != ALL_TENANTS and request_filter.tenant is None:
        request_filter = replace(request_filter, tenant=caller.sees)
    if actor is None:
        return request_filter
    if request_filter.actor not in (None, actor):
        raise KeyNarrowed(f"this key reaches only requests that it sent: actor={actor}")
    return replace(request_filter, actor=actor)


def _own_actor(app: Application) -> str | None:
    caller = app.caller
    return caller.actor if caller is not None and caller.limits.is_own else None
