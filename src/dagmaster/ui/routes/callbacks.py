"""Callbacks and their endpoints; and what may be done about them."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.callbacks import (
    MAX_ENDPOINT,
    list_callbacks,
    list_endpoints,
    pause_endpoint,
    replay_callback,
    replay_callbacks,
    resume_endpoint,
)
from dagmaster.application.views import CallbackFilter, DeliveryStatus
from dagmaster.errors import QueryInvalid
from dagmaster.http.parameters import Cursor
from dagmaster.http.services import OpenedCallbacks, Origin
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.tenants import MAX_TENANT
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.callbacks import PATH, CallbacksQuery, callbacks_page
from dagmaster.ui.rendering import render

routes = PageRoutes()
ROWS: Final = 50


@routes.get("/ui/callbacks", Scope.READ)
async def callbacks(
    request: Request,
    opened: OpenedCallbacks,
    status: Annotated[str, Query(max_length=20)] = "",
    endpoint: Annotated[str, Query(max_length=MAX_ENDPOINT)] = "",
    cursor: Cursor = None,
) -> Response:
    """List endpoints with their health, and callbacks, newest first."""
    if status and status not in tuple(DeliveryStatus):
        raise QueryInvalid(f"status: one of {', '.join(DeliveryStatus)}", field="status")
    query = CallbacksQuery(status=status, endpoint=endpoint)
    matching = CallbackFilter(
        status=DeliveryStatus(status) if status else None, endpoint=endpoint.rstrip("/").lower() or None
    )
    page = await list_callbacks(opened, matching, cursor=cursor, limit=ROWS)
    endpoints = await list_endpoints(opened)
    shown = callbacks_page(query, page, endpoints, now=time.time(), cursor=cursor)
    return render(request, "callbacks.html", shown)


@routes.post("/ui/callbacks/endpoints", Scope.OPERATE)
async def change_endpoint(opened: OpenedCallbacks, origin: Origin, form: FormFields) -> Response:
    """Pause or resume an endpoint, or send its dead callbacks again."""
    endpoint = form.text("endpoint", max_length=MAX_ENDPOINT)
    tenant = form.text("tenant", max_length=MAX_TENANT) or None
    match form.text("action"):
        case "pause":
            result = await pause_endpoint(opened, endpoint, origin=origin, tenant=tenant)
        case "resume":
            result = await resume_endpoint(opened, endpoint, origin=origin, tenant=tenant)
        case "replay":
            dead = CallbackFilter(endpoint=endpoint, tenant=tenant)
            result = await replay_callbacks(opened, dead, origin=origin)
        case _:
            raise QueryInvalid("action: one of pause, resume, replay", field="action")
    return see_other(PATH, Notice(result.sentence))


@routes.post("/ui/callbacks/{callback_id}/replay", Scope.OPERATE)
async def replay(
    opened: OpenedCallbacks, origin: Origin, callback_id: Annotated[str, Path(max_length=60)]
) -> Response:
    """Send a callback again."""
    result = await replay_callback(opened, callback_id, origin=origin)
    return see_other(PATH, Notice(result.sentence))
