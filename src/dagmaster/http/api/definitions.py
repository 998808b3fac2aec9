"""Workflows by their definitions: submit jobs of one that is not published, publish several at once.

Both let the caller choose every handler and every param of a job, and need the scope `admin`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application.commands.publication import WorkflowSource, publish_workflows
from dagmaster.application.commands.validation import compile_apart
from dagmaster.application.submission import MAX_BATCH, JobRequest, submit_jobs
from dagmaster.errors import Problem, RequestInvalid
from dagmaster.http.api.submissions import CorrelationId, JobBody, reject_key_of_batch
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import App, Caller
from dagmaster.ports.api_keys import Scope

routes = Routes("definitions")
MAX_WORKFLOWS: Final = 100
Definition = Annotated[dict[str, Any], Field(description="A workflow file as JSON.")]


class DefinedJobsBody(Body):
    """Jobs of a workflow that is not published, each with its own outcome."""

    definition: Definition
    child_definitions: list[Definition] = Field(
        default_factory=list,
        max_length=MAX_WORKFLOWS,
        description="Workflows of child jobs, instead of published ones.",
    )
    jobs: list[JobBody] = Field(min_length=1, max_length=MAX_BATCH)


class DefinedWorkflow(Body):
    """A workflow to publish."""

    definition: Definition
    file: str = Field(default="", max_length=4_000, description="The name in messages.")
    expected: list[Annotated[str, Field(max_length=100)]] | None = Field(
        default=None,
        max_length=100,
        description="The `state` that the workflow must have, or some of which it must have one: nothing is"
        " published, with 412, if another caller has changed it since. It is `If-Match` for each workflow.",
    )


class PublishBatchBody(Body):
    """Workflows to publish, all or none."""

    workflows: list[DefinedWorkflow] = Field(min_length=1, max_length=MAX_WORKFLOWS)
    replace: bool = Field(default=False, description="Replace the same version with another content.")
    activate: bool = Field(default=True, description="Let new jobs use these versions.")


@routes.post(
    "/jobs/definition", Scope.ADMIN, "[SubmitResult]", 202, dependencies=[Depends(reject_key_of_batch)]
)
async def submit(
    app: App, caller: Caller, body: DefinedJobsBody, correlation_id: CorrelationId = None
) -> JSONResponse:
    """Submit up to 100 jobs of a workflow that is not published. Each has its own outcome."""
    graph = await compile_apart(app, body.definition)
    children = [await compile_apart(app, definition) for definition in body.child_definitions]
    requests = [
        JobRequest(
            **job.options(correlation_id),
            graph=graph,
            child_graphs=tuple(children),
            submitted_by=caller.actor,
        )
        for job in body.jobs
    ]
    results = await submit_jobs(app, requests)
    return JSONResponse([result.to_dict() for result in results], 202)


async def reject_if_match_of_batch(request: Request) -> None:
    """Raise `RequestInvalid` for a header about one workflow: ignored, it would promise too much."""
    for name in ("if-match", "if-none-match"):
        if name in request.headers:
            message = "each workflow of a batch has its own field `expected`"
            raise RequestInvalid([Problem(message=message, path=f"header.{name}")])


@routes.post(
    "/workflows/batch",
    Scope.ADMIN,
    "[PublishResult]",
    201,
    dependencies=[Depends(reject_if_match_of_batch)],
)
async def publish(app: App, body: PublishBatchBody) -> JSONResponse:
    """Publish workflows, all or none. The same content again changes nothing."""
    sources = [
        WorkflowSource(await compile_apart(app, workflow.definition), workflow.file)
        for workflow in body.workflows
    ]
    states = {
        source.graph.workflow_id: workflow.expected
        for source, workflow in zip(sources, body.workflows, strict=True)
        if workflow.expected is not None
    }
    results = await publish_workflows(
        app, sources, replace=body.replace, activate=body.activate, expected=states
    )
    return JSONResponse([view.to_dict() for view in results], 201)
