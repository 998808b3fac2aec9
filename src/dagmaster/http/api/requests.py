"""Requests of partners: submit them, ask how far they are; and the platforms whose identifiers they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from pydantic import Field, create_model
from starlette.responses import JSONResponse

from dagmaster.application.platforms import list_platforms, set_platform, show_platform
from dagmaster.application.queries.requests import list_requests, parse_request_statuses, show_request
from dagmaster.application.request_status import request_status
from dagmaster.application.requests import submit_requests
from dagmaster.http.api.submissions import IdempotencyKey, one_key, reject_key_of_batch
from dagmaster.http.parameters import Cursor, Limit, Statuses
from dagmaster.http.request_bodies import SubmitRequest, SubmitRequests
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import App, Services
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_options import MAX_ACTOR, MAX_KEY
from dagmaster.ports.requests import RequestFilter
from dagmaster.ports.tenants import MAX_TENANT
from dagmaster.records.requests import MAX_PLATFORM_ID, PlatformRecord

routes = Routes("requests")
RequestId = Annotated[str, Path(max_length=100, description="The id of a request.")]
PlatformId = Annotated[str, Path(max_length=100)]
Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=16)]
NameMap = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=100)]], Field(max_length=64)
]


_PLATFORM_FIELDS: dict[str, Any] = {
    "platform_id": (str, Field(min_length=1, max_length=MAX_PLATFORM_ID)),
    "title": (str, Field(default="", max_length=128)),
    "id_fields": (Names, Field(min_length=1, description="The fields that identify a dataset.")),
    "optional_id_fields": (Names, Field(default_factory=list)),
    "field_types": (
        NameMap,
        Field(default_factory=dict, description="`integer`: it is no text."),
    ),
    "field_map": (
        NameMap,
        Field(
            default_factory=dict,
            description="Where others belong: `platform_refs.NAME`, `inputs.NAME`, a field of a submit.",
        ),
    ),
}


class PlatformBody(create_model("PlatformFields", __base__=Body, **_PLATFORM_FIELDS)):  # type: ignore[misc]
    """A platform to declare."""

    def to_record(self) -> PlatformRecord:
        """Return the declaration."""
        values = self.model_dump()
        names = ("id_fields", "optional_id_fields")
        return PlatformRecord(**{**values, **{name: tuple(values[name]) for name in names}})


@routes.post("/submit", Scope.SUBMIT, "RequestResult", 202, headers=["Location"], reach=Reach.REQUESTS)
async def submit(
    services: Services, app: App, body: SubmitRequest, idempotency_key: IdempotencyKey = None
) -> JSONResponse:
    """Store a request and its job in one transaction.

    The same idempotency key and body: the same answer; another body: 409. A request that no job can start for
    is stored, and answered with 422, its `request_id` and the `reason`.
    """
    asked = body.to_body()
    asked = replace(asked, idempotency_key=one_key(asked.idempotency_key, idempotency_key))
    result = await services.requests.submit(app, asked)
    headers = {"Location": f"/api/v1/requests/{result.request_id}"}
    return JSONResponse(result.to_dict(), 202, headers=headers)


@routes.post(
    "/submit/batch",
    Scope.SUBMIT,
    "[RequestResult]",
    202,
    dependencies=[Depends(reject_key_of_batch)],
    reach=Reach.REQUESTS,
)
async def submit_batch(app: App, body: SubmitRequests) -> JSONResponse:
    """Store up to 100 requests. An invalid one does not stop the others: each has its own outcome."""
    results = await submit_requests(app, [one.to_body() for one in body.requests])
    return JSONResponse([result.to_dict() for result in results], 202)


@routes.get("/requests", Scope.READ, "RequestViewPage", reach=Reach.REQUESTS)
async def requests(
    app: App,
    status: Statuses = None,
    tenant: Annotated[str | None, Query(max_length=MAX_TENANT)] = None,
    workflow_id: Annotated[str | None, Query(max_length=64)] = None,
    platform_id: Annotated[str | None, Query(max_length=MAX_PLATFORM_ID)] = None,
    actor: Annotated[str | None, Query(max_length=MAX_ACTOR)] = None,
    idempotency_key: Annotated[str | None, Query(max_length=MAX_KEY)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List requests, newest first, each with the job that it led to."""
    request_filter = RequestFilter(
        statuses=parse_request_statuses(status or ()),
        tenant=tenant,
        workflow_id=workflow_id,
        platform_id=platform_id,
        actor=actor,
        idempotency_key=idempotency_key,
    )
    page = await list_requests(app, request_filter, cursor=cursor, limit=limit)
    return JSONResponse(page.to_dict())


@routes.get("/requests/{request_id}", Scope.READ, "RequestView", reach=Reach.REQUESTS)
async def show(app: App, request_id: RequestId) -> JSONResponse:
    """Show a request, with the job that it led to, or why no job could start."""
    return JSONResponse((await show_request(app, request_id)).to_dict())


@routes.get("/requests/{request_id}/status", Scope.READ, "RequestStatusView", reach=Reach.REQUESTS)
async def status(app: App, request_id: RequestId) -> JSONResponse:
    """Show how far a request is, as its partner sees it."""
    return JSONResponse((await request_status(app, request_id)).to_dict())


@routes.get("/platforms", Scope.READ, "[PlatformView]", reach=Reach.REQUESTS)
async def platforms(app: App) -> JSONResponse:
    """List the platforms whose identifiers you may send, by id."""
    return JSONResponse([one.to_dict() for one in await list_platforms(app)])


@routes.get("/platforms/{platform_id}", Scope.READ, "PlatformView", reach=Reach.REQUESTS)
async def platform(app: App, platform_id: PlatformId) -> JSONResponse:
    """Show a platform."""
    return JSONResponse((await show_platform(app, platform_id)).to_dict())


@routes.post("/platforms", Scope.ADMIN, "PlatformView", reach=Reach.INSTALLATION)
async def put_platform(app: App, body: PlatformBody) -> JSONResponse:
    """Declare a platform, or replace its declaration."""
    return JSONResponse((await set_platform(app, body.to_record())).to_dict())
