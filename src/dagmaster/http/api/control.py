"""Control jobs: cancel, resume, retry, answer approvals, signal."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import JSONResponse

from dagmaster.application.commands.control import (
    MAX_COMMENT,
    MAX_NAMED,
    approve_node,
    cancel_job,
    cancel_node,
    cancel_nodes,
    reject_node,
    retry_node,
    retry_nodes,
    send_signal,
)
from dagmaster.application.commands.job_selection import (
    MAX_SELECTED,
    MAX_TOKEN,
    JobAction,
    action_of,
    change_selected_jobs,
    select_jobs,
)
from dagmaster.application.commands.resume import (
    ResumeRequest,
    plan_resume,
    plan_retry,
    plan_retry_nodes,
    resume_job,
)
from dagmaster.application.context import Application
from dagmaster.errors import CommandInvalid
from dagmaster.http.api.submissions import IdempotencyKey, one_key
from dagmaster.http.parameters import (
    MAX_ID,
    Cursor,
    DryRun,
    InputTexts,
    JobId,
    Jobs,
    NodeId,
    WaitSeconds,
)
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import App, Caller
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_filter import JobFilter, active_fields
from dagmaster.ports.job_options import MAX_KEY

routes = Routes("control")


class ResumeBody(Body):
    """What to resume a job with. What is not named stays as it was."""

    from_nodes: list[Annotated[str, Field(max_length=MAX_ID)]] = Field(
        default_factory=list, max_length=MAX_NAMED
    )
    inputs: dict[str, Any] = Field(default_factory=dict)
    input_texts: InputTexts = Field(default_factory=dict)
    version: int | None = Field(default=None, ge=1, le=2**31 - 1)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=MAX_KEY)


class NodesBody(Body):
    """The nodes of a command: nodes of the workflow, and children of fan-outs such as `tiles__47`."""

    nodes: list[Annotated[str, Field(max_length=MAX_ID)]] = Field(min_length=1, max_length=MAX_NAMED)


class AnswerBody(Body):
    """The comment of an approval, a rejection or a cancel."""

    comment: str = Field(default="", max_length=MAX_COMMENT)


class SignalBody(Body):
    """The payload of a signal."""

    payload: Any = None


class SelectionBody(Body):
    """The jobs of a dry run."""

    token: str | None = Field(default=None, max_length=MAX_TOKEN, description="Of the answer to a dry run.")
    comment: str = Field(default="", max_length=MAX_COMMENT, description="Of a cancel: why.")


Selected = Annotated[int, Query(ge=1, le=MAX_SELECTED, description="The most jobs of a dry run.")]


@routes.post("/jobs/cancel", Scope.OPERATE, "JobSelectionView|SelectionResult", reach=Reach.JOBS)
async def cancel_matching(
    app: App,
    caller: Caller,
    job_filter: Jobs,
    body: SelectionBody | None = None,
    dry_run: DryRun = False,
    cursor: Cursor = None,
    limit: Selected = 100,
) -> JSONResponse:
    """Cancel the jobs that match: first a dry run with the filter, then exactly its jobs, by its token."""
    selection = Selection(JobAction.CANCEL, job_filter, cursor, limit, is_dry_run=dry_run)
    return await _change_matching(app, caller.actor, selection, body or SelectionBody())


@routes.post("/jobs/resume", Scope.OPERATE, "JobSelectionView|SelectionResult", reach=Reach.JOBS)
async def resume_matching(
    app: App,
    caller: Caller,
    job_filter: Jobs,
    body: SelectionBody | None = None,
    dry_run: DryRun = False,
    cursor: Cursor = None,
    limit: Selected = 100,
) -> JSONResponse:
    """Resume the failed and cancelled jobs that match: a dry run with the filter, then its token."""
    selection = Selection(JobAction.RESUME, job_filter, cursor, limit, is_dry_run=dry_run)
    return await _change_matching(app, caller.actor, selection, body or SelectionBody())


class Selection(NamedTuple):
    """What a request selects."""

    action: JobAction
    job_filter: JobFilter
    cursor: str | None
    limit: int
    is_dry_run: bool


async def _change_matching(
    app: Application, sent_by: str, selection: Selection, body: SelectionBody
) -> JSONResponse:
    action, job_filter, cursor, limit, is_dry_run = selection
    if is_dry_run:
        view = await select_jobs(app, action, job_filter, cursor=cursor, limit=limit)
        return JSONResponse(view.to_dict())
    if body.token is None:
        raise CommandInvalid(
            "send it with dry_run=true first: the answer lists the jobs, and has the token for the change"
        )
    if active_fields(job_filter) or cursor is not None:
        raise CommandInvalid("a token stands for its jobs: leave the filter and the cursor out")
    if action_of(body.token) is not action:
        raise CommandInvalid(f"this is not the token of a dry run of {action}")
    result = await change_selected_jobs(app, body.token, sent_by=sent_by, comment=body.comment)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/cancel", Scope.OPERATE, "CommandResult")
async def cancel(
    app: App, caller: Caller, job_id: JobId, body: AnswerBody | None = None, wait_seconds: WaitSeconds = 5.0
) -> JSONResponse:
    """Cancel a job: nothing new starts, and running tasks are asked to stop."""
    comment = (body or AnswerBody()).comment
    result = await cancel_job(app, job_id, sent_by=caller.actor, comment=comment, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/resume", Scope.OPERATE, "CommandResult|SubmitResult|ResumePlanView")
async def resume(
    app: App,
    caller: Caller,
    job_id: JobId,
    body: ResumeBody | None = None,
    dry_run: DryRun = False,
    wait_seconds: WaitSeconds = 5.0,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Run again what failed, in the same job; with new inputs or another version, as a new job."""
    asked = body or ResumeBody()
    request = ResumeRequest(
        sent_by=caller.actor,
        from_nodes=tuple(asked.from_nodes),
        inputs=asked.inputs,
        input_texts=asked.input_texts,
        version=asked.version,
        idempotency_key=one_key(asked.idempotency_key, idempotency_key),
    )
    if dry_run:
        return JSONResponse((await plan_resume(app, job_id, request)).to_dict())
    result = await resume_job(app, job_id, request, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/nodes/cancel", Scope.OPERATE, "CommandResult")
async def cancel_several(
    app: App, caller: Caller, job_id: JobId, body: NodesBody, wait_seconds: WaitSeconds = 5.0
) -> JSONResponse:
    """Cancel nodes: each fails with the reason `cancelled`. Finished ones are skipped; 409 if all are."""
    result = await cancel_nodes(app, job_id, body.nodes, sent_by=caller.actor, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/nodes/retry", Scope.OPERATE, "CommandResult|ResumePlanView")
async def retry_several(
    app: App,
    caller: Caller,
    job_id: JobId,
    body: NodesBody,
    dry_run: DryRun = False,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Run nodes again, all in one new run. Those that cannot be retried are skipped; 409 if all are."""
    if dry_run:
        return JSONResponse((await plan_retry_nodes(app, job_id, body.nodes)).to_dict())
    result = await retry_nodes(app, job_id, body.nodes, sent_by=caller.actor, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/nodes/{node_id}/cancel", Scope.OPERATE, "CommandResult")
async def cancel_one(
    app: App, caller: Caller, job_id: JobId, node_id: NodeId, wait_seconds: WaitSeconds = 5.0
) -> JSONResponse:
    """Cancel one node: it fails with the reason `cancelled`, and its job goes on as after any failure."""
    result = await cancel_node(app, job_id, node_id, sent_by=caller.actor, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/nodes/{node_id}/retry", Scope.OPERATE, "CommandResult|ResumePlanView")
async def retry(
    app: App,
    caller: Caller,
    job_id: JobId,
    node_id: NodeId,
    dry_run: DryRun = False,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Run one node again: one that failed or was cancelled; or at once one that waits for a retry."""
    if dry_run:
        return JSONResponse((await plan_retry(app, job_id, node_id)).to_dict())
    result = await retry_node(app, job_id, node_id, sent_by=caller.actor, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/nodes/{node_id}/approve", Scope.OPERATE, "CommandResult")
async def approve(
    app: App,
    caller: Caller,
    job_id: JobId,
    node_id: NodeId,
    body: AnswerBody | None = None,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Approve an approval that waits: the job continues."""
    comment = (body or AnswerBody()).comment
    result = await approve_node(
        app, job_id, node_id, sent_by=caller.actor, comment=comment, wait_seconds=wait_seconds
    )
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/nodes/{node_id}/reject", Scope.OPERATE, "CommandResult")
async def reject(
    app: App,
    caller: Caller,
    job_id: JobId,
    node_id: NodeId,
    body: AnswerBody | None = None,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Reject an approval that waits: its node fails."""
    comment = (body or AnswerBody()).comment
    result = await reject_node(
        app, job_id, node_id, sent_by=caller.actor, comment=comment, wait_seconds=wait_seconds
    )
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/signals/{name}", Scope.OPERATE, "CommandResult")
async def signal(
    app: App,
    caller: Caller,
    job_id: JobId,
    name: Annotated[str, Path(max_length=MAX_ID)],
    body: SignalBody | None = None,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Send a signal with a payload to the nodes of a job that wait for it, now or later."""
    payload = (body or SignalBody()).payload
    result = await send_signal(app, job_id, name, payload, sent_by=caller.actor, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())
