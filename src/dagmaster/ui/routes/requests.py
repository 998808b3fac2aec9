"""Requests of partners."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.callbacks import list_callbacks
from dagmaster.application.queries.requests import list_requests, parse_request_statuses, show_request
from dagmaster.application.views import CallbackFilter, Page, RequestRecord
from dagmaster.errors import CursorInvalid, KeyNarrowed, QueryInvalid
from dagmaster.http.parameters import Cursor
from dagmaster.http.services import App, OpenedCallbacks
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.requests import RequestFilter
from dagmaster.ui.page_routes import PageRoutes
from dagmaster.ui.pages.requests import RequestsQuery, request_page, requests_page
from dagmaster.ui.rendering import render

routes = PageRoutes()
ROWS: Final = 50
Word = Annotated[str, Query(max_length=100)]


@routes.get("/ui/requests", Scope.READ, reach=Reach.REQUESTS)
async def requests(
    request: Request,
    app: App,
    status: Word = "",
    workflow_id: Word = "",
    platform_id: Word = "",
    tenant: Word = "",
    cursor: Cursor = None,
) -> Response:
    """List requests, newest first, each with the job that it led to."""
    query = RequestsQuery(
        status=status.strip().lower(),
        workflow_id=workflow_id.strip(),
        platform_id=platform_id.strip(),
        tenant=tenant.strip(),
    )
    page: Page[RequestRecord] = Page(items=())
    problem = ""
    try:
        request_filter = RequestFilter(
            statuses=parse_request_statuses([query.status] if query.status else ()),
            workflow_id=query.workflow_id or None,
            platform_id=query.platform_id or None,
            tenant=query.tenant or None,
        )
        page = await list_requests(app, request_filter, cursor=cursor, limit=ROWS)
    except (QueryInvalid, CursorInvalid, KeyNarrowed) as error:
        problem = str(error)
    content = requests_page(query, page, now=time.time(), cursor=cursor, problem=problem)
    return render(request, "requests.html", content)


@routes.get("/ui/requests/{request_id}", Scope.READ, reach=Reach.REQUESTS)
async def request_detail(
    request: Request,
    app: App,
    callbacks: OpenedCallbacks,
    request_id: Annotated[str, Path(max_length=100)],
) -> Response:
    """Show a request: its job, or why it has no job, and its callbacks."""
    record = await show_request(app, request_id)
    sent = await list_callbacks(callbacks, CallbackFilter(subject=record.request_id), limit=ROWS)
    return render(request, "request.html", request_page(record, sent.items, now=time.time()))
