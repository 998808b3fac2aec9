"""Workflows: list, show, validate, publish, activate."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from pydantic import Field
from starlette.responses import JSONResponse, Response

from dagmaster.application.commands.publication import activate_version, publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_text
from dagmaster.application.queries.workflows import list_versions, list_workflows, workflow_detail
from dagmaster.application.workflow_lookup import find_published_graph
from dagmaster.authoring.diagram.diagram import svg
from dagmaster.authoring.handler_registry import Registry
from dagmaster.http.routes import App, Body, Cursor, Limit, Routes
from dagmaster.ports.api_keys import Scope

routes = Routes("workflows")
Version = Annotated[int | None, Query(ge=1, description="Default: the active version.")]
MAX_TEXT: Final = 1_000_000
SVG_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


class SourceBody(Body):
    """The text of a workflow file."""

    text: str = Field(max_length=MAX_TEXT, description="YAML or JSON.")
    file: str = Field(default="workflow.yaml", max_length=200, description="The name in messages.")


class PublishBody(SourceBody):
    """A workflow to publish."""

    replace: bool = Field(default=False, description="Replace the same version with another content.")
    activate: bool = Field(default=True, description="Let new jobs use this version.")


class ActivateBody(Body):
    """The version that new jobs get."""

    version: int = Field(ge=1)


@routes.get("/workflows", Scope.READ, "WorkflowViewPage")
async def workflows(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List published workflows."""
    return JSONResponse((await list_workflows(app, cursor=cursor, limit=limit)).to_dict())


@routes.get("/workflows/{workflow_id}", Scope.READ, "WorkflowDetailView")
async def show(app: App, workflow_id: str, version: Version = None) -> JSONResponse:
    """Show a workflow with its definition."""
    return JSONResponse((await workflow_detail(app, workflow_id, version)).to_dict())


@routes.get("/workflows/{workflow_id}/versions", Scope.READ, "VersionViewPage")
async def versions(app: App, workflow_id: str, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List the versions of a workflow."""
    return JSONResponse((await list_versions(app, workflow_id, cursor=cursor, limit=limit)).to_dict())


@routes.get("/workflows/{workflow_id}/diagram.svg", Scope.READ, "Svg")
async def diagram(app: App, workflow_id: str, version: Version = None) -> Response:
    """Draw a workflow as SVG."""
    graph = await find_published_graph(app, workflow_id, version)
    return Response(svg(graph), media_type="image/svg+xml", headers={"Content-Security-Policy": SVG_POLICY})


@routes.post("/workflows/validate", Scope.READ, "ValidationResult")
async def validate(body: SourceBody) -> JSONResponse:
    """Check a workflow file; handlers that are not installed here are not checked."""
    return JSONResponse(validate_text(body.text, Registry(()), name=body.file, allow_missing_handlers=True).to_dict())


@routes.post("/workflows", Scope.ADMIN, "[PublishResult]", 201)
async def publish(app: App, body: PublishBody) -> JSONResponse:
    """Publish a workflow. The same content again changes nothing."""
    result = validate_text(body.text, Registry(()), name=body.file, allow_missing_handlers=True)
    results = await publish_workflows(app, to_sources([result]), replace=body.replace, activate=body.activate)
    return JSONResponse([view.to_dict() for view in results], 201)


@routes.post("/workflows/{workflow_id}/activate", Scope.ADMIN, "ActivateResult")
async def activate(app: App, workflow_id: str, body: ActivateBody) -> JSONResponse:
    """Choose the version that new jobs get."""
    return JSONResponse((await activate_version(app, workflow_id, body.version)).to_dict())
