"""Nodes, attempts and tasks: of one job, and across jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import JSONResponse, Response

from dagmaster.application.diagnosis import why_node
from dagmaster.application.job_lookup import find_job
from dagmaster.application.progress import report_node_progress
from dagmaster.application.queries.downloads import download_output
from dagmaster.application.queries.nodes import (
    list_attempts,
    list_children,
    list_finished_tasks,
    list_nodes,
    list_tasks,
    node_detail,
)
from dagmaster.application.views import AttemptStatus
from dagmaster.http.attachments import json_attachment
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import (
    MAX_ID,
    Cursor,
    JobId,
    Limit,
    NodeId,
    Statuses,
    Time,
    parse_node_statuses,
    parse_optional_time,
)
from dagmaster.http.routes import Routes
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.finished_tasks import FinishedTaskFilter
from dagmaster.ports.read_store import NodeFilter, TaskFilter

routes = Routes("nodes")
TopLevel = Annotated[bool, Query(description="No children of fan-outs.")]


@routes.get("/jobs/{job_id}/nodes", Scope.READ, "NodeViewPage")
async def nodes_of_job(
    app: App,
    job_id: JobId,
    status: Statuses = None,
    top_level: TopLevel = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List the nodes of a job that have started, with children of fan-outs."""
    job = await find_job(app, job_id)
    node_filter = NodeFilter(job_id=job.job_id, statuses=parse_node_statuses(status), top_level=top_level)
    return PageAnswer(await list_nodes(app, node_filter, cursor=cursor, limit=limit))


@routes.get("/jobs/{job_id}/nodes/{node_id}", Scope.READ, "NodeDetailView")
async def node(app: App, job_id: JobId, node_id: NodeId) -> JSONResponse:
    """Show a node with its attempts and values."""
    return JSONResponse((await node_detail(app, job_id, node_id)).to_dict())


@routes.get("/jobs/{job_id}/nodes/{node_id}/output", Scope.READ, "JsonFile")
async def output(app: App, job_id: JobId, node_id: NodeId) -> Response:
    """Download the output of a node as a file of any size."""
    return json_attachment(await download_output(app, job_id, node_id), "job", job_id, node_id, "output")


@routes.get("/jobs/{job_id}/nodes/{node_id}/children", Scope.READ, "NodeViewPage")
async def children(
    app: App,
    job_id: JobId,
    node_id: NodeId,
    status: Statuses = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List the children of a fan-out by index."""
    page = await list_children(
        app, job_id, node_id, statuses=parse_node_statuses(status), cursor=cursor, limit=limit
    )
    return PageAnswer(page)


@routes.get("/jobs/{job_id}/nodes/{node_id}/attempts", Scope.READ, "AttemptViewPage")
async def attempts(
    app: App, job_id: JobId, node_id: NodeId, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List the attempts at a node, newest first."""
    return PageAnswer(await list_attempts(app, job_id, node_id, cursor=cursor, limit=limit))


@routes.get("/jobs/{job_id}/nodes/{node_id}/progress", Scope.READ, "NodeProgressReportView")
async def progress(app: App, job_id: JobId, node_id: NodeId) -> JSONResponse:
    """Show how far a node is."""
    return JSONResponse((await report_node_progress(app, job_id, node_id)).to_dict())


@routes.get("/jobs/{job_id}/nodes/{node_id}/why", Scope.READ, "NodeWhyView")
async def why(app: App, job_id: JobId, node_id: NodeId) -> JSONResponse:
    """Explain the status of a node, down to its cause."""
    return JSONResponse((await why_node(app, job_id, node_id)).to_dict())


@routes.get("/nodes", Scope.READ, "NodeViewPage")
async def nodes(
    app: App,
    status: Statuses = None,
    workflow_id: Annotated[str | None, Query(max_length=64)] = None,
    top_level: TopLevel = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List nodes across jobs, newest job first."""
    statuses = parse_node_statuses(status)
    node_filter = NodeFilter(statuses=statuses, workflow_id=workflow_id, top_level=top_level)
    return PageAnswer(await list_nodes(app, node_filter, cursor=cursor, limit=limit))


@routes.get("/tasks", Scope.READ, "TaskViewPage")
async def tasks(
    app: App,
    queue: Annotated[str | None, Query(max_length=MAX_ID)] = None,
    worker_id: Annotated[str | None, Query(pattern=r"^[0-9]{1,19}$")] = None,
    job_id: Annotated[str | None, Query(pattern=r"^[0-9]{1,19}$")] = None,
    handler: Annotated[str | None, Query(max_length=MAX_ID)] = None,
    is_claimed: bool | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List tasks in flight across jobs, newest first."""
    task_filter = TaskFilter(
        queue=queue, worker_id=worker_id, job_id=job_id, handler=handler, is_claimed=is_claimed
    )
    return PageAnswer(await list_tasks(app, task_filter, cursor=cursor, limit=limit))


@routes.get("/tasks/finished", Scope.READ, "AttemptViewPage")
async def finished_tasks(
    app: App,
    queue: Annotated[str | None, Query(max_length=MAX_ID)] = None,
    worker_id: Annotated[str | None, Query(pattern=r"^[0-9]{1,19}$")] = None,
    job_id: Annotated[str | None, Query(pattern=r"^[0-9]{1,19}$")] = None,
    status: Annotated[list[AttemptStatus] | None, Query(max_length=10, description="Repeatable.")] = None,
    since: Time = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List finished tasks across jobs, newest first.

    A page that has a `next_cursor` may be short, or empty.
    """
    task_filter = FinishedTaskFilter(
        queue=queue,
        worker_id=worker_id,
        job_id=job_id,
        statuses=frozenset(status or ()),
        since=parse_optional_time("since", since),
    )
    return PageAnswer(await list_finished_tasks(app, task_filter, cursor=cursor, limit=limit))
