"""Requests of partners."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.queries.requests import list_requests, parse_request_statuses
from dagmaster.application.views import Page, RequestRecord
from dagmaster.errors import CursorInvalid, KeyNarrowed, QueryInvalid
from dagmaster.http.parameters import Cursor
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.requests import RequestFilter
from dagmaster.ui.page_routes import PageRoutes
from dagmaster.ui.pages.requests import RequestsQuery, requests_page
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
