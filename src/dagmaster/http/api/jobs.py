"""Jobs: list, count, look up, show, explain."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.application.diagnosis import why_job
from dagmaster.application.job_wait import MAX_WAIT_SECONDS, wait_for_end
from dagmaster.application.progress import report_progress
from dagmaster.application.queries.downloads import download_result
from dagmaster.application.queries.graphs import job_graph
from dagmaster.application.queries.job_detail import job_detail
from dagmaster.application.queries.jobs import (
    MAX_FOOTPRINTS,
    count_jobs,
    job_footprints,
    list_jobs,
    list_pending_commands,
)
from dagmaster.application.queries.timeline import MAX_TIMELINE, job_timeline
from dagmaster.application.views.jobs import JobDetailView
from dagmaster.errors import QueryInvalid
from dagmaster.http.attachments import json_attachment
from dagmaster.http.etags import with_etag
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import Cursor, JobId, Jobs, Limit
from dagmaster.http.routes import Routes
from dagmaster.http.services import App, Caller, Live
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.job_options import MAX_CORRELATION_ID, MAX_KEY

routes = Routes("jobs")
MAX_CHILDREN: Final = 10_000
"""Children in one document: more of them would keep the event loop busy for seconds."""


@routes.get("/jobs", Scope.READ, "JobViewPage", reach=Reach.JOBS)
async def jobs(app: App, job_filter: Jobs, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List jobs, newest first."""
    return PageAnswer(await list_jobs(app, job_filter, cursor=cursor, limit=limit))


@routes.get("/stats", Scope.READ, "CountsView", reach=Reach.JOBS)
async def stats(app: App, job_filter: Jobs) -> JSONResponse:
    """Count jobs by status, all or those that match the filters of the list."""
    return JSONResponse((await count_jobs(app, job_filter)).to_dict())


@routes.get("/lookup", Scope.READ, "JobViewPage", reach=Reach.JOBS)
async def lookup(
    app: App,
    correlation_id: Annotated[str | None, Query(min_length=1, max_length=MAX_CORRELATION_ID)] = None,
    idempotency_key: Annotated[str | None, Query(min_length=1, max_length=MAX_KEY)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """Find the jobs with your own id, or with an idempotency key (each submitter has separate keys)."""
    if (correlation_id is None) == (idempotency_key is None):
        raise QueryInvalid("name a correlation_id or an idempotency_key, one of them")
    job_filter = JobFilter(correlation_id=correlation_id, idempotency_key=idempotency_key)
    return PageAnswer(await list_jobs(app, job_filter, cursor=cursor, limit=limit))


@routes.get("/jobs/{job_id}", Scope.READ, "JobDetailView")
async def show(
    request: Request,
    app: App,
    live: Live,
    caller: Caller,
    job_id: JobId,
    children: Annotated[bool, Query(description="With the children of fan-outs, up to 10,000.")] = False,
    wait_seconds: Annotated[
        float,
        Query(ge=0, le=MAX_WAIT_SECONDS, description="Answer when the job has ended, or after so long."),
    ] = 0.0,
) -> JSONResponse:
    """Show a job with its values and nodes.

    With `wait_seconds`, wait for its end. A request that waits counts as a live stream of its caller.
    """
    if wait_seconds > 0:
        await live.sessions.hold(
            caller.key_id,
            lambda: wait_for_end(app, job_id, wait_seconds=wait_seconds),
            lambda: _leave(request),
        )
    view = await job_detail(app, job_id)
    if children:
        _check_children(view)
        view = await job_detail(app, view.job_id, with_children=True)
    return JSONResponse(view.to_dict())


@routes.get("/jobs/{job_id}/result", Scope.READ, "JsonFile")
async def result(app: App, job_id: JobId) -> Response:
    """Download the result of a job as a file of any size."""
    return json_attachment(await download_result(app, job_id), "job", job_id, "result")


@routes.get("/jobs/{job_id}/progress", Scope.READ, "JobProgressReportView")
async def progress(app: App, job_id: JobId) -> JSONResponse:
    """Show how far a job is, what runs, and when it may end."""
    return JSONResponse((await report_progress(app, job_id)).to_dict())


@routes.get("/jobs/{job_id}/why", Scope.READ, "JobWhyView")
async def why(app: App, job_id: JobId) -> JSONResponse:
    """Explain why a job has its status."""
    return JSONResponse((await why_job(app, job_id)).to_dict())


@routes.get("/jobs/{job_id}/commands", Scope.READ, "CommandViewPage")
async def commands(app: App, job_id: JobId, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List the commands to a job that no orchestrator has processed."""
    return PageAnswer(await list_pending_commands(app, job_id, cursor=cursor, limit=limit))


@routes.get("/jobs/{job_id}/footprints", Scope.READ, "FootprintsView", media_type="application/geo+json")
async def footprints(
    app: App,
    job_id: JobId,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_FOOTPRINTS)] = 1_000,
) -> JSONResponse:
    """Show where the children of a job's fan-outs are, as GeoJSON."""
    view = await job_footprints(app, job_id, cursor=cursor, limit=limit)
    return PageAnswer(view, media_type="application/geo+json")


@routes.get("/jobs/{job_id}/graph", Scope.READ, "GraphView", headers=["ETag"])
async def graph(request: Request, app: App, job_id: JobId) -> Response:
    """Show the graph of a job: its nodes and their dependencies, without statuses. It never changes."""
    return with_etag(request, (await job_graph(app, job_id)).to_dict())


@routes.get("/jobs/{job_id}/timeline", Scope.READ, "TimelineView")
async def timeline(
    app: App,
    job_id: JobId,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_TIMELINE)] = MAX_TIMELINE,
) -> JSONResponse:
    """Show when the attempts of a job were queued, started and finished, in columns."""
    return PageAnswer(await job_timeline(app, job_id, cursor=cursor, limit=limit))


async def _leave(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_children(view: JobDetailView) -> None:
    children = {fan_out: view.nodes[fan_out].children for fan_out in view.fan_outs}
    totals = {fan_out: counts.total for fan_out, counts in children.items() if counts is not None}
    if sum(totals.values()) > MAX_CHILDREN:
        largest = max(totals, key=lambda fan_out: totals[fan_out])
        raise QueryInvalid(
            f"job {view.job_id} has {sum(totals.values()):,} children of fan-outs, and children=true returns"
            f" up to {MAX_CHILDREN:,}: read them page by page from"
            f" /api/v1/jobs/{view.job_id}/nodes/{largest}/children"
        )
