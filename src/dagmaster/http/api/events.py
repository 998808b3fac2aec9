"""Audit events and logs, page by page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import JSONResponse

from dagmaster.application.queries.events_and_logs import count_events, list_events, list_logs, recent_events
from dagmaster.http.parameters import MAX_ID, Cursor, JobId, Limit, NodeId, Time, parse_optional_time
from dagmaster.http.routes import Routes
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope

routes = Routes("events")
Attempt = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@routes.get("/jobs/{job_id}/events", Scope.READ, "EventViewPage")
async def events(
    app: App,
    job_id: JobId,
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="The number of the last event you have.")] = 0,
    node_id: Annotated[list[str] | None, Query(max_length=100, description="Repeatable: theirs, and failures.")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List the audit events of a job, numbered without gaps."""
    page = await list_events(app, job_id, after=after, node_ids=node_id or None, cursor=cursor, limit=limit)
    return JSONResponse(page.to_dict())


@routes.get("/events", Scope.READ, "EventViewPage")
async def events_across_jobs(
    app: App,
    type: Annotated[list[str] | None, Query(max_length=50, description="Repeatable.")] = None,  # noqa: A002 - its name
    since: Time = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List events across jobs, newest first."""
    after = parse_optional_time("since", since)
    return JSONResponse((await recent_events(app, types=type or (), since=after, cursor=cursor, limit=limit)).to_dict())


@routes.get("/events/counts", Scope.READ, "EventCountsView")
async def counts(app: App, since: Time = None, until: Time = None) -> JSONResponse:
    """Count events across jobs by type."""
    first, last = parse_optional_time("since", since), parse_optional_time("until", until)
    return JSONResponse((await count_events(app, since=first, until=last)).to_dict())


@routes.get("/jobs/{job_id}/logs", Scope.READ, "LogViewPage")
async def logs(
    app: App,
    job_id: JobId,
    node_id: Annotated[str | None, Query(max_length=MAX_ID)] = None,
    attempt: Attempt = None,
    since: Time = None,
    until: Time = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List what the tasks of a job printed and logged, in order; `since` and `until` name a range of time."""
    return await _logs(app, job_id, node_id, attempt, since, until, cursor, limit)


@routes.get("/jobs/{job_id}/nodes/{node_id}/logs", Scope.READ, "LogViewPage")
async def logs_of_node(
    app: App,
    job_id: JobId,
    node_id: NodeId,
    attempt: Attempt = None,
    since: Time = None,
    until: Time = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List what the tasks of a node printed and logged, in order."""
    return await _logs(app, job_id, node_id, attempt, since, until, cursor, limit)


async def _logs(
    app: App,
    job_id: str,
    node_id: str | None,
    attempt: int | None,
    since: str | None,
    until: str | None,
    cursor: str | None,
    limit: int,
) -> JSONResponse:
    page = await list_logs(
        app,
        job_id,
        node_id=node_id,
        attempt=attempt,
        since=parse_optional_time("since", since),
        until=parse_optional_time("until", until),
        cursor=cursor,
        limit=limit,
    )
    return JSONResponse(page.to_dict())
