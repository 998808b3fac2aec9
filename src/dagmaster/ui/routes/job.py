"""The pages of one job: a page for each tab, with the same head."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.context import Application
from dagmaster.application.diagnosis import job_reason
from dagmaster.application.job_lookup import SHOWN_BYTES
from dagmaster.application.progress import report_progress
from dagmaster.application.queries.events_and_logs import list_events
from dagmaster.application.queries.job_detail import job_detail
from dagmaster.application.queries.jobs import find_successors, job_footprints
from dagmaster.application.queries.nodes import list_children, list_nodes
from dagmaster.application.views import JobDetailView, JobStatus, NodeStatus
from dagmaster.http.parameters import MAX_ID, Cursor, JobId, NodeIds, parse_node_statuses
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.read_store import NodeFilter
from dagmaster.ui.page_routes import PageRoutes
from dagmaster.ui.pages.job import (
    MAX_VALUE,
    JobHead,
    events_body,
    job_head,
    job_page,
    logs_body,
    map_body,
    nodes_by_status,
    nodes_of_graph,
    values_body,
)
from dagmaster.ui.rendering import render
from dagmaster.ui.routes.log_text import list_log_text

routes = PageRoutes()
CHILDREN: Final = 100
EVENTS: Final = 200
FAILURES: Final = 100
FOOTPRINTS: Final = 200
NodeName = Annotated[str, Query(max_length=MAX_ID)]


@routes.get("/ui/jobs/{job_id}", Scope.READ)
async def graph(request: Request, app: App, job_id: JobId) -> Response:
    """Show the graph of a job, and its nodes as a table."""
    job = await job_detail(app, job_id, max_bytes=SHOWN_BYTES)
    return await _render(request, app, job, "graph", nodes_of_graph(job, ""))


@routes.get("/ui/jobs/{job_id}/timeline", Scope.READ)
async def timeline(request: Request, app: App, job_id: JobId) -> Response:
    """Show when the nodes of a job waited and ran."""
    job = await job_detail(app, job_id, max_bytes=SHOWN_BYTES)
    return await _render(request, app, job, "timeline", nodes_of_graph(job, ""))


@routes.get("/ui/jobs/{job_id}/nodes", Scope.READ)
async def nodes(
    request: Request,
    app: App,
    job_id: JobId,
    status: Annotated[str, Query(max_length=20)] = "",
    open_id: Annotated[str, Query(alias="open", max_length=MAX_ID)] = "",
    after: NodeName = "",
    cursor: Cursor = None,
) -> Response:
    """List the nodes of a job: of the workflow, of one fan-out, or those with a status."""
    job = await job_detail(app, job_id, max_bytes=SHOWN_BYTES)
    if status:
        node_filter = NodeFilter(job_id=job.job_id, statuses=parse_node_statuses([status]))
        page = await list_nodes(app, node_filter, cursor=cursor, limit=CHILDREN)
        body = nodes_by_status(job, status.lower(), page, cursor)
    else:
        children = (
            await list_children(app, job.job_id, open_id, cursor=cursor, limit=CHILDREN) if open_id else None
        )
        body = nodes_of_graph(job, after, open_id=open_id, children=children)
    return await _render(request, app, job, "nodes", body)


@routes.get("/ui/jobs/{job_id}/events", Scope.READ)
async def events(
    request: Request, app: App, job_id: JobId, children: bool = False, cursor: Cursor = None
) -> Response:
    """List what happened to a job."""
    job = await job_detail(app, job_id, max_bytes=SHOWN_BYTES)
    page = await list_events(app, job.job_id, with_children=children, cursor=cursor, limit=EVENTS)
    return await _render(
        request, app, job, "events", events_body(job, page, cursor=cursor, with_children=children)
    )


@routes.get("/ui/jobs/{job_id}/values", Scope.READ)
async def values(request: Request, app: App, job_id: JobId) -> Response:
    """Show the inputs and the result of a job."""
    job = await job_detail(app, job_id, max_bytes=SHOWN_BYTES)
    return await _render(request, app, job, "values", values_body(job))


@routes.get("/ui/jobs/{job_id}/logs", Scope.READ)
async def logs(
    request: Request,
    app: App,
    job_id: JobId,
    node_id: NodeIds = None,
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    cursor: Cursor = None,
) -> Response:
    """Show what the tasks of a job, or of some nodes, wrote."""
    job = await job_detail(app, job_id, max_bytes=SHOWN_BYTES)
    chosen = {"node_id": node_id, "attempt": attempt}
    page = await list_log_text(app, job.job_id, max_characters=MAX_VALUE, cursor=cursor, **chosen)
    return await _render(
        request, app, job, "logs", logs_body(job, page, node_ids=node_id or (), attempt=attempt)
    )


@routes.get("/ui/jobs/{job_id}/map", Scope.READ)
async def show_map(request: Request, app: App, job_id: JobId) -> Response:
    """Show where the children of a job's fan-outs are."""
    job = await job_detail(app, job_id, max_bytes=SHOWN_BYTES)
    footprints = await job_footprints(app, job.job_id, limit=FOOTPRINTS)
    return await _render(request, app, job, "map", map_body(job, footprints))


async def _render(request: Request, app: Application, job: JobDetailView, tab: str, body: Any) -> Response:
    return render(request, "job.html", job_page(await load_head(app, job, tab), tab, body))


async def load_head(app: Application, job: JobDetailView, tab: str = "") -> JobHead:
    """Return the head of a job's pages. What a completed job does not need is not read."""
    reason = None if job.status is JobStatus.COMPLETED else await job_reason(app, job.job_id)
    failed = NodeFilter(job_id=job.job_id, statuses=frozenset({NodeStatus.FAILED}))
    has_failed = bool(job.counts.get(NodeStatus.FAILED))
    is_running = job.status is JobStatus.RUNNING
    return job_head(
        job,
        tab=tab,
        reason=reason,
        successor=(await find_successors(app, [job.job_id])).get(job.job_id, "") if job.is_finished else "",
        failed=(await list_nodes(app, failed, limit=FAILURES)).items if has_failed else (),
        estimate=(await report_progress(app, job.job_id)).estimate if is_running else None,
        is_published=bool(await app.read.versions(job.workflow_id, limit=1)),
    )
