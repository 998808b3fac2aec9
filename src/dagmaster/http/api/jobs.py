"""Jobs: submit, list, show, follow up, control."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import Header, Query
from pydantic import Field
from starlette.responses import JSONResponse

from dagmaster.application.commands.control import approve_node, cancel_job, reject_node, retry_node, send_signal
from dagmaster.application.commands.resume import ResumeRequest, plan_resume, plan_retry, resume_job
from dagmaster.application.diagnosis import why_job, why_node
from dagmaster.application.job_filters import parse_job_filter
from dagmaster.application.queries.events_and_logs import list_events, list_logs
from dagmaster.application.queries.job_detail import job_detail
from dagmaster.application.queries.jobs import count_jobs, job_footprints, job_progress, list_jobs
from dagmaster.application.queries.nodes import list_children, list_nodes, node_detail
from dagmaster.application.submission import (
    MAX_BATCH,
    MAX_CALLBACK_URL,
    MAX_CORRELATION_ID,
    MAX_KEY,
    MAX_NAME,
    JobRequest,
    submit_job,
    submit_jobs,
)
from dagmaster.application.views import NodeStatus
from dagmaster.errors import SubmissionRejected
from dagmaster.http.routes import App, Body, Caller, Cursor, Limit, Routes
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.read_store import NodeFilter

routes = Routes("jobs")
WaitSeconds = Annotated[float, Query(ge=0, le=30, description="How long to wait for the effect of the command.")]
Statuses = Annotated[list[str] | None, Query(max_length=20)]


class SubmitBody(Body):
    """A job of a published workflow."""

    workflow_id: str = Field(min_length=1, max_length=64, examples=["fan_out"])
    version: int | None = Field(default=None, ge=1, description="Default: the active version.")
    inputs: dict[str, Any] = Field(default_factory=dict, examples=[{"count": 100}])
    name: str = Field(default="", max_length=MAX_NAME)
    priority: int = Field(default=5, ge=0, le=10, description="10 is most urgent.")
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=MAX_KEY)
    correlation_id: str | None = Field(default=None, max_length=MAX_CORRELATION_ID)
    callback_url: str | None = Field(default=None, max_length=MAX_CALLBACK_URL)

    def to_request(self, submitted_by: str, header_key: str | None = None) -> JobRequest:
        """Return the request for the application; the key may come with a header instead."""
        key = self.idempotency_key
        if header_key is not None and key is not None and header_key != key:
            raise SubmissionRejected("the header Idempotency-Key and the field idempotency_key differ")
        return JobRequest(
            **self.model_dump(exclude={"idempotency_key"}),
            idempotency_key=key or header_key,
            submitted_by=submitted_by,
        )


class BatchBody(Body):
    """Up to 100 jobs, each with its own outcome."""

    jobs: list[SubmitBody] = Field(min_length=1, max_length=MAX_BATCH)


class ResumeBody(Body):
    """What to resume a job with."""

    from_nodes: list[str] = Field(default_factory=list, max_length=1_000)
    inputs: dict[str, Any] = Field(default_factory=dict)
    version: int | None = Field(default=None, ge=1)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=MAX_KEY)


class AnswerBody(Body):
    """The comment of an approval or a rejection."""

    comment: str = Field(default="", max_length=4_000)


class SignalBody(Body):
    """The payload of a signal."""

    payload: Any = None


# ── Submit ──


@routes.post("/jobs", Scope.SUBMIT, "SubmitResult", 202)
async def submit(
    app: App,
    caller: Caller,
    body: SubmitBody,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=MAX_KEY)] = None,
) -> JSONResponse:
    """Submit a job. The same idempotency key and body: the same job; another body: 409."""
    result = await submit_job(app, body.to_request(caller.name, idempotency_key))
    return JSONResponse(result.to_dict(), 202, headers={"Location": f"/api/v1/jobs/{result.job_id}"})


@routes.post("/jobs/batch", Scope.SUBMIT, "[SubmitResult]", 202)
async def submit_batch(app: App, caller: Caller, body: BatchBody) -> JSONResponse:
    """Submit up to 100 jobs. An invalid one does not stop the others: each has its own outcome."""
    results = await submit_jobs(app, [job.to_request(caller.name) for job in body.jobs])
    return JSONResponse([result.to_dict() for result in results], 202)


# ── Read ──


@routes.get("/jobs", Scope.READ, "JobViewPage")
async def jobs(
    app: App,
    status: Statuses = None,
    workflow_id: str | None = None,
    version: Annotated[int | None, Query(ge=1)] = None,
    name: str | None = None,
    submitted_by: str | None = None,
    correlation_id: str | None = None,
    idempotency_key: str | None = None,
    parent_job_id: str | None = None,
    since: Annotated[str | None, Query(description="Created at or after: RFC 3339, a date, or an age as `2h`.")] = None,
    until: str | None = None,
    finished_since: str | None = None,
    finished_until: str | None = None,
    text: Annotated[str | None, Query(description="A prefix of id, name, submitter or correlation id.")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List jobs, newest first."""
    job_filter = parse_job_filter(
        now=time.time(),
        statuses=status or (),
        workflow_id=workflow_id,
        version=version,
        name=name,
        submitted_by=submitted_by,
        correlation_id=correlation_id,
        idempotency_key=idempotency_key,
        parent_job_id=parent_job_id,
        since=since,
        until=until,
        finished_since=finished_since,
        finished_until=finished_until,
        text=text,
    )
    return JSONResponse((await list_jobs(app, job_filter, cursor=cursor, limit=limit)).to_dict())


@routes.get("/stats", Scope.READ, "CountsView")
async def stats(app: App) -> JSONResponse:
    """Count jobs by status."""
    return JSONResponse((await count_jobs(app)).to_dict())


@routes.get("/jobs/{job_id}", Scope.READ, "JobDetailView")
async def show(app: App, job_id: str) -> JSONResponse:
    """Show a job with its values and nodes."""
    return JSONResponse((await job_detail(app, job_id)).to_dict())


@routes.get("/jobs/{job_id}/progress", Scope.READ, "JobProgressView")
async def progress(app: App, job_id: str) -> JSONResponse:
    """Show how far a job is."""
    return JSONResponse((await job_progress(app, job_id)).to_dict())


@routes.get("/jobs/{job_id}/why", Scope.READ, "JobWhyView")
async def why(app: App, job_id: str) -> JSONResponse:
    """Explain why a job is not running, or why it failed."""
    return JSONResponse((await why_job(app, job_id)).to_dict())


@routes.get("/jobs/{job_id}/footprints", Scope.READ, "FootprintsView")
async def footprints(app: App, job_id: str) -> JSONResponse:
    """Show where the nodes of a job are, as GeoJSON."""
    return JSONResponse((await job_footprints(app, job_id)).to_dict(), media_type="application/geo+json")


@routes.get("/jobs/{job_id}/events", Scope.READ, "EventViewPage")
async def events(
    app: App, job_id: str, after: Annotated[int, Query(ge=0)] = 0, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List the audit events of a job, numbered without gaps."""
    return JSONResponse((await list_events(app, job_id, after=after, cursor=cursor, limit=limit)).to_dict())


@routes.get("/jobs/{job_id}/logs", Scope.READ, "LogViewPage")
async def logs(
    app: App,
    job_id: str,
    node_id: str | None = None,
    attempt: Annotated[int | None, Query(ge=1)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List what the tasks of a job printed."""
    page = await list_logs(app, job_id, node_id=node_id, attempt=attempt, cursor=cursor, limit=limit)
    return JSONResponse(page.to_dict())


@routes.get("/jobs/{job_id}/nodes", Scope.READ, "NodeViewPage")
async def nodes(
    app: App, job_id: str, status: Statuses = None, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List the nodes of a job that have changed, with children of fan-outs."""
    detail = await job_progress(app, job_id)
    node_filter = NodeFilter(job_id=detail.job_id, statuses=parse_node_statuses(status))
    return JSONResponse((await list_nodes(app, node_filter, cursor=cursor, limit=limit)).to_dict())


@routes.get("/jobs/{job_id}/nodes/{node_id}", Scope.READ, "NodeDetailView")
async def node(app: App, job_id: str, node_id: str) -> JSONResponse:
    """Show a node with its attempts and values."""
    return JSONResponse((await node_detail(app, job_id, node_id)).to_dict())


@routes.get("/jobs/{job_id}/nodes/{node_id}/children", Scope.READ, "NodeViewPage")
async def children(
    app: App, job_id: str, node_id: str, status: Statuses = None, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List the children of a fan-out."""
    page = await list_children(app, job_id, node_id, statuses=parse_node_statuses(status), cursor=cursor, limit=limit)
    return JSONResponse(page.to_dict())


@routes.get("/jobs/{job_id}/nodes/{node_id}/why", Scope.READ, "NodeWhyView")
async def node_why(app: App, job_id: str, node_id: str) -> JSONResponse:
    """Explain the status of a node."""
    return JSONResponse((await why_node(app, job_id, node_id)).to_dict())


# ── Control ──


@routes.post("/jobs/{job_id}/cancel", Scope.OPERATE, "CommandResult")
async def cancel(app: App, caller: Caller, job_id: str, wait_seconds: WaitSeconds = 5.0) -> JSONResponse:
    """Cancel a job."""
    result = await cancel_job(app, job_id, sent_by=caller.name, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/resume", Scope.OPERATE, "CommandResult")
async def resume(
    app: App,
    caller: Caller,
    job_id: str,
    body: ResumeBody | None = None,
    dry_run: bool = False,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Run again what failed; with new inputs or another version as a new job. `dry_run`: only show what would run."""
    asked = body or ResumeBody()
    request = ResumeRequest(
        sent_by=caller.name,
        from_nodes=tuple(asked.from_nodes),
        inputs=asked.inputs,
        version=asked.version,
        idempotency_key=asked.idempotency_key,
    )
    if dry_run:
        return JSONResponse((await plan_resume(app, job_id, request)).to_dict())
    return JSONResponse((await resume_job(app, job_id, request, wait_seconds=wait_seconds)).to_dict())


@routes.post("/jobs/{job_id}/nodes/{node_id}/retry", Scope.OPERATE, "CommandResult")
async def retry(
    app: App,
    caller: Caller,
    job_id: str,
    node_id: str,
    dry_run: bool = False,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Run a node again. `dry_run`: only show what would run."""
    if dry_run:
        return JSONResponse((await plan_retry(app, job_id, node_id)).to_dict())
    result = await retry_node(app, job_id, node_id, sent_by=caller.name, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/nodes/{node_id}/{answer}", Scope.OPERATE, "CommandResult")
async def answer_approval(
    app: App,
    caller: Caller,
    job_id: str,
    node_id: str,
    answer: Literal["approve", "reject"],
    body: AnswerBody | None = None,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Approve or reject an approval that waits."""
    send = approve_node if answer == "approve" else reject_node
    comment = (body or AnswerBody()).comment
    result = await send(app, job_id, node_id, sent_by=caller.name, comment=comment, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/jobs/{job_id}/signals/{name}", Scope.OPERATE, "CommandResult")
async def signal(
    app: App,
    caller: Caller,
    job_id: str,
    name: str,
    body: SignalBody | None = None,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Send a signal to a job."""
    payload = (body or SignalBody()).payload
    result = await send_signal(app, job_id, name, payload, sent_by=caller.name, wait_seconds=wait_seconds)
    return JSONResponse(result.to_dict())


def parse_node_statuses(texts: list[str] | None) -> frozenset[NodeStatus]:
    """Return statuses of nodes; raise `QueryInvalid` for another word."""
    from dagmaster.errors import QueryInvalid

    try:
        return frozenset(NodeStatus(text.upper()) for text in texts or ())
    except ValueError:
        names = ", ".join(status.lower() for status in NodeStatus)
        raise QueryInvalid(f"status: not a status of a node: {names}") from None
