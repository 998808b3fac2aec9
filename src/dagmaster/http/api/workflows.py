"""Workflows: list, show, compare, validate, publish, activate."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.application.commands.publication import UNPUBLISHED, activate_version, publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_apart
from dagmaster.application.queries.graphs import workflow_graph
from dagmaster.application.queries.workflows import (
    compare_versions,
    list_versions,
    list_workflows,
    workflow_detail,
    workflow_inputs_schema,
)
from dagmaster.application.workflow_lookup import find_published_graph, seen_by_readers
from dagmaster.authoring.diagram.diagram import svg
from dagmaster.http.etags import expected_states, with_etag
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import Cursor, IfMatch, IfNoneMatch, Limit, Version, WorkflowId
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import App, Compiler
from dagmaster.ports.api_keys import Reach, Scope

routes = Routes("workflows")
MAX_TEXT: Final = 1_000_000
SVG_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


class SourceBody(Body):
    """The text of a workflow file."""

    text: str = Field(max_length=MAX_TEXT, description="YAML or JSON.")
    file: str = Field(default="workflow.yaml", max_length=200, description="The name in messages.")
    allow_missing_handlers: bool = Field(
        default=True, description="Whether a handler that no worker has published is a warning, not an error."
    )


class PublishBody(SourceBody):
    """A workflow to publish."""

    replace: bool = Field(default=False, description="Replace the same version with another content.")
    activate: bool = Field(default=True, description="Let new jobs use this version.")


class ActivateBody(Body):
    """The version that new jobs get."""

    version: int = Field(ge=1, le=2**31 - 1)


@routes.get("/workflows", Scope.READ, "WorkflowViewPage", reach=Reach.OPEN)
async def workflows(
    app: App,
    tag: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List published workflows by id."""
    return PageAnswer(await list_workflows(app, tag=tag, cursor=cursor, limit=limit))


@routes.get("/workflows/{workflow_id}", Scope.READ, "WorkflowDetailView", headers=["ETag"], reach=Reach.OPEN)
async def show(request: Request, app: App, workflow_id: WorkflowId, version: Version = None) -> Response:
    """Show a workflow with its definition."""
    detail = await workflow_detail(app, workflow_id, version)
    return with_etag(request, detail.to_dict(), state=detail.state)


@routes.get("/workflows/{workflow_id}/versions", Scope.READ, "VersionViewPage", reach=Reach.OPEN)
async def versions(
    app: App, workflow_id: WorkflowId, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List the versions of a workflow, oldest first."""
    return PageAnswer(await list_versions(app, workflow_id, cursor=cursor, limit=limit))


@routes.get(
    "/workflows/{workflow_id}/schema",
    Scope.READ,
    "JsonSchema",
    media_type="application/schema+json",
    headers=["ETag"],
    reach=Reach.OPEN,
)
async def schema(request: Request, app: App, workflow_id: WorkflowId, version: Version = None) -> Response:
    """Return the JSON Schema of the inputs, for forms and clients."""
    document = await workflow_inputs_schema(app, workflow_id, version)
    return with_etag(request, document, media_type="application/schema+json")


@routes.get("/workflows/{workflow_id}/graph", Scope.READ, "GraphView", headers=["ETag"], reach=Reach.OPEN)
async def graph(request: Request, app: App, workflow_id: WorkflowId, version: Version = None) -> Response:
    """Show the graph of a workflow: its nodes and their dependencies."""
    return with_etag(request, (await workflow_graph(app, workflow_id, version)).to_dict())


@routes.get("/workflows/{workflow_id}/diff", Scope.READ, "VersionDiffView", reach=Reach.OPEN)
async def diff(
    app: App,
    workflow_id: WorkflowId,
    before: Annotated[int, Query(ge=1, le=2**31 - 1, description="A version.")],
    after: Annotated[int, Query(ge=1, le=2**31 - 1, description="Another version.")],
) -> JSONResponse:
    """Compare the definitions of two versions."""
    return JSONResponse((await compare_versions(app, workflow_id, before, after)).to_dict())


@routes.get(
    "/workflows/{workflow_id}/diagram.svg",
    Scope.READ,
    "Svg",
    media_type="image/svg+xml",
    headers=["ETag"],
    reach=Reach.OPEN,
)
async def diagram(
    request: Request, app: App, compiler: Compiler, workflow_id: WorkflowId, version: Version = None
) -> Response:
    """Draw a workflow as SVG."""
    shown = await seen_by_readers(app, workflow_id)
    text = await compiler.run(svg, await find_published_graph(shown, workflow_id, version))
    return with_etag(request, text, media_type="image/svg+xml", **{"Content-Security-Policy": SVG_POLICY})


@routes.post("/workflows/validate", Scope.READ, "ValidationResult", reach=Reach.OPEN)
async def validate(app: App, body: SourceBody) -> JSONResponse:
    """Check a workflow file with the handlers that workers have published."""
    result = await validate_apart(
        app, body.text, name=body.file, allow_missing_handlers=body.allow_missing_handlers
    )
    return JSONResponse(result.to_dict())


@routes.post("/workflows", Scope.ADMIN, "[PublishResult]", 201)
async def publish(
    app: App, body: PublishBody, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
) -> JSONResponse:
    """Publish a workflow. The same content again changes nothing.

    With `If-Match`, only if nobody else has published or activated a version meanwhile.
    """
    states = expected_states(if_match, if_none_match, UNPUBLISHED)
    result = await validate_apart(
        app, body.text, name=body.file, allow_missing_handlers=body.allow_missing_handlers, has_graph=True
    )
    sources = to_sources([result])
    results = await publish_workflows(
        app,
        sources,
        replace=body.replace,
        activate=body.activate,
        expected=None if states is None else {source.graph.workflow_id: states for source in sources},
    )
    return JSONResponse([view.to_dict() for view in results], 201)


@routes.post("/workflows/{workflow_id}/activate", Scope.ADMIN, "ActivateResult")
async def activate(
    app: App, workflow_id: WorkflowId, body: ActivateBody, if_match: IfMatch = None
) -> JSONResponse:
    """Choose the version that new jobs get. `If-Match` as for a publication."""
    states = expected_states(if_match, None, UNPUBLISHED)
    result = await activate_version(app, workflow_id, body.version, expected=states)
    return JSONResponse(result.to_dict())
