"""Handlers that workers have published: list, show, test."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.application.commands.handler_tests import MAX_WAIT_SECONDS, run_handler
from dagmaster.application.commands.handler_trust import distrust_handler, trust_handler
from dagmaster.application.queries.handlers import find_handler, list_handlers
from dagmaster.http.etags import with_etag
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import Cursor, Limit
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import App, Caller
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_options import MAX_ACTOR
from dagmaster.ports.queue_names import MAX_QUEUE, QUEUE_PATTERN
from dagmaster.sdk.handler_decorator import MAX_NAME

routes = Routes("handlers")
STILL_RUNS: Final = {202: "It still runs: follow the job."}
Name = Annotated[str, Path(max_length=MAX_NAME, description="The name of a handler, or an alias.")]


class TestBody(Body):
    """A test of the handler that the path names."""

    params: dict[str, Any] = Field(default_factory=dict, examples=[{"name": "Ada"}])
    queue: str | None = Field(
        default=None, max_length=MAX_QUEUE, pattern=QUEUE_PATTERN, description="Default: the handler's."
    )
    timeout_seconds: float | None = Field(
        default=None, ge=1, le=86_400, description="Default: the handler's."
    )
    wait_seconds: float = Field(
        default=10.0, ge=0, le=MAX_WAIT_SECONDS, description="How long to wait for it."
    )


class NamedTestBody(TestBody):
    """A test of the handler that the body names."""

    handler: str = Field(min_length=1, max_length=MAX_NAME, examples=["hello_world"])


class TrustBody(Body):
    """Whose contract of a handler a decision is about."""

    caller: str | None = Field(
        default=None,
        max_length=MAX_ACTOR,
        description="As key:NAME. Default: the only one whose change waits, else the owner.",
    )


@routes.get("/handlers", Scope.READ, "HandlerViewPage", reach=Reach.OPEN)
async def handlers(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List the handlers that workers have published, by name."""
    return PageAnswer(await list_handlers(app, cursor=cursor, limit=limit))


@routes.get("/handlers/{name}", Scope.READ, "HandlerView", headers=["ETag"], reach=Reach.OPEN)
async def handler(request: Request, app: App, name: Name) -> Response:
    """Show a handler with the schemas of its params and output."""
    return with_etag(request, (await find_handler(app, name)).to_dict())


@routes.post("/handlers/{name}/test", Scope.ADMIN, "HandlerTestView", same=STILL_RUNS, headers=["Location"])
async def test(app: App, caller: Caller, name: Name, body: TestBody) -> JSONResponse:
    """Run a handler once on a worker, as a job that lists leave out. 202: it still runs; follow the job.

    The caller chooses handler and params, as in a definition: this needs the scope `admin`.
    """
    return await _run(app, caller, name, body)


@routes.post("/handlers/test", Scope.ADMIN, "HandlerTestView", same=STILL_RUNS, headers=["Location"])
async def test_named(app: App, caller: Caller, body: NamedTestBody) -> JSONResponse:
    """Run a handler once on a worker, as `/handlers/{name}/test` does; the body names it."""
    return await _run(app, caller, body.handler, body)


@routes.post("/handlers/{name}/trust", Scope.ADMIN, "HandlerTrustView")
async def trust(app: App, name: Name, body: TrustBody | None = None) -> JSONResponse:
    """Accept what a caller published of a handler.

    Its workers get tasks of the handler, and its changes become the contract.
    """
    return JSONResponse((await trust_handler(app, name, caller=(body or TrustBody()).caller)).to_dict())


@routes.post("/handlers/{name}/distrust", Scope.ADMIN, "HandlerTrustView")
async def distrust(app: App, name: Name, body: TrustBody | None = None) -> JSONResponse:
    """Remove what a caller has of a handler: trust, changes that wait, and the contract that it owns."""
    return JSONResponse((await distrust_handler(app, name, caller=(body or TrustBody()).caller)).to_dict())


async def _run(app: App, caller: Caller, name: str, body: TestBody) -> JSONResponse:
    view = await run_handler(
        app,
        name,
        body.params,
        submitted_by=caller.actor,
        queue=body.queue,
        timeout_seconds=body.timeout_seconds,
        wait_seconds=body.wait_seconds,
    )
    headers = {"Location": f"/api/v1/jobs/{view.job_id}"}
    return JSONResponse(view.to_dict(), 200 if view.is_finished else 202, headers=headers)
