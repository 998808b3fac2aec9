"""Jobs for administrators, with their ids, nodes and events. What one sees is decided by the database."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.job_filters import parse_status
from dagmaster.errors import JobNotFound, QueryInvalid
from dagmaster.http.gateway.answers import answer_admin
from dagmaster.http.gateway.routes import GatewayRoutes
from dagmaster.http.gateway.services import Caller, GatewayServices, InstallationAdmin, Services
from dagmaster.ports.api_keys import Caller as CallerRecord
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.gateway import JobQueryRequest
from dagmaster.ports.job_options import MAX_CORRELATION_ID, MAX_KEY
from dagmaster.records.gateway import (
    EventListResponse,
    InternalJobStatusResponse,
    JobListResponse,
    NodeListResponse,
    StatsResponse,
)

routes = GatewayRoutes("status")
admin_routes = GatewayRoutes("admin")
MAX_JOBS: Final = 500
MAX_OFFSET: Final = 2**31 - 1
MAX_NODES: Final = 1_000
MAX_NODES_OF_JOB: Final = 200
"""Nodes of each job in a list."""

JobId = Annotated[str, Path(max_length=20, description="The id of a job.")]
Limit = Annotated[int, Query(ge=1, le=MAX_JOBS)]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET)]
IncludeNodes = Annotated[bool, Query(description="With the first 200 nodes of each job that have started.")]


async def job_query(
    *,
    status: Annotated[str | None, Query(max_length=20, description="In any case of letters.")] = None,
    workflow_id: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    include_nodes: IncludeNodes = False,
) -> JobQueryRequest:
    return JobQueryRequest(
        status=None if status is None else parse_status(status).value,
        workflow_id=workflow_id,
        limit=limit,
        offset=offset,
        include_nodes=include_nodes,
    )


Jobs = Annotated[JobQueryRequest, Depends(job_query)]


@routes.get("/status/jobs", Scope.ADMIN, JobListResponse, name="list_jobs", fails=(422,))
async def jobs(request: Request, services: Services, caller: Caller, query: Jobs) -> Response:
    """List jobs, newest first."""
    return answer_admin(request, await _list(services, caller, query))


@routes.get("/status/stats", Scope.ADMIN, StatsResponse, name="count_jobs")
async def stats(request: Request, services: Services, caller: Caller) -> Response:
    """Count jobs by status."""
    counts = await services.store.counts(caller.sees)
    return answer_admin(request, StatsResponse(total=sum(counts.values()), by_status=counts))


@routes.get("/status/lookup", Scope.ADMIN, JobListResponse, name="find_jobs", fails=(400, 422))
async def lookup(
    request: Request,
    services: Services,
    caller: Caller,
    correlation_id: Annotated[
        str | None,
        Query(min_length=1, max_length=MAX_CORRELATION_ID, description="Also the id of a request."),
    ] = None,
    idempotency_key: Annotated[str | None, Query(min_length=1, max_length=MAX_KEY)] = None,
) -> Response:
    """Find the jobs with an id of their submitter, of a request, or with an idempotency key."""
    if (correlation_id is None) == (idempotency_key is None):
        raise QueryInvalid("name a correlation_id or an idempotency_key, one of them", field="correlation_id")
    rows = await services.store.find_jobs(
        caller.sees, correlation_id=correlation_id, idempotency_key=idempotency_key, limit=MAX_JOBS + 1
    )
    view = JobListResponse(
        jobs=tuple(rows[:MAX_JOBS]), limit=MAX_JOBS, offset=0, has_more=len(rows) > MAX_JOBS
    )
    return answer_admin(request, view)


@routes.get("/status/job/{job_id}", Scope.ADMIN, InternalJobStatusResponse, name="get_job", fails=(404, 422))
async def job(
    request: Request, services: Services, caller: Caller, job_id: JobId, include_nodes: IncludeNodes = False
) -> Response:
    """Show a job."""
    view = await services.store.job(caller.sees, job_id)
    if view is None:
        raise JobNotFound
    if include_nodes:
        (view,) = await _with_nodes(services, caller, [view])
    return answer_admin(request, view)


@routes.get(
    "/status/job/{job_id}/nodes", Scope.ADMIN, NodeListResponse, name="list_job_nodes", fails=(404, 422)
)
async def nodes(
    request: Request,
    services: Services,
    caller: Caller,
    job_id: JobId,
    after: Annotated[str, Query(max_length=300, description="`next_after` of the answer before.")] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_NODES)] = MAX_NODES,
) -> Response:
    """List the nodes of a job by id, those that have not started included."""
    rows = await services.store.nodes(caller.sees, job_id, after=after, limit=limit + 1)
    if rows is None:
        raise JobNotFound
    next_after = rows[limit - 1].node_id if len(rows) > limit else None
    view = NodeListResponse(job_id=job_id, nodes=tuple(rows[:limit]), next_after=next_after)
    return answer_admin(request, view)


@routes.get(
    "/status/job/{job_id}/events", Scope.ADMIN, EventListResponse, name="list_job_events", fails=(404, 422)
)
async def events(
    request: Request,
    services: Services,
    caller: Caller,
    job_id: JobId,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="`next_after` of the answer before.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_NODES)] = MAX_NODES,
) -> Response:
    """List the events of a job, oldest first."""
    rows = await services.store.events(caller.sees, job_id, after=after, limit=limit + 1)
    if rows is None:
        raise JobNotFound
    next_after = rows[limit - 1].event_id if len(rows) > limit else None
    view = EventListResponse(job_id=job_id, events=tuple(rows[:limit]), next_after=next_after)
    return answer_admin(request, view)


@admin_routes.get("/admin/active-jobs", Scope.ADMIN, JobListResponse, name="list_active_jobs", fails=(422,))
async def active_jobs(
    request: Request, services: Services, caller: InstallationAdmin, limit: Limit = 50, offset: Offset = 0
) -> Response:
    """List the jobs that have not ended, newest first."""
    query = JobQueryRequest(limit=limit, offset=offset, is_open=True)
    return answer_admin(request, await _list(services, caller, query))


async def _list(services: GatewayServices, caller: CallerRecord, query: JobQueryRequest) -> JobListResponse:
    rows = await services.store.jobs(caller.sees, replace(query, limit=query.limit + 1))
    page = rows[: query.limit]
    if query.include_nodes:
        page = await _with_nodes(services, caller, page)
    return JobListResponse(
        jobs=tuple(page), limit=query.limit, offset=query.offset, has_more=len(rows) > query.limit
    )


async def _with_nodes(
    services: GatewayServices, caller: CallerRecord, views: list[InternalJobStatusResponse]
) -> list[InternalJobStatusResponse]:
    job_ids = [view.job_id for view in views]
    rows = await services.store.started_nodes(caller.sees, job_ids, limit=MAX_NODES_OF_JOB)
    return [replace(view, nodes=tuple(rows[view.job_id])) for view in views]
