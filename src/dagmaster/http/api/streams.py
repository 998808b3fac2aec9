"""Live streams of one job and of the list of jobs, as Server-Sent Events."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.http.event_stream import EventStream
from dagmaster.http.parameters import JobId, Jobs, Limit
from dagmaster.http.routes import Routes
from dagmaster.http.services import Live
from dagmaster.ports.api_keys import Scope

routes = Routes("streams")
MAX_NUMBER = 2**63 - 1
LastEvent = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=MAX_NUMBER, description="Resume after this event.")
]
LastEventQuery = Annotated[
    int | None, Query(ge=0, le=MAX_NUMBER, description="The same, for clients that cannot set headers.")
]


@routes.get(
    "/jobs/{job_id}/stream",
    Scope.READ,
    "EventStream",
    media_type="text/event-stream",
    also={204: "The job has finished, and nothing is new: do not connect again"},
)
async def stream_of_job(
    request: Request, live: Live, job_id: JobId, last: LastEvent = None, last_event_id: LastEventQuery = None
) -> Response:
    """Follow a job: a snapshot, then deltas, until it has finished; 204 if it has, and nothing is new."""
    # The header comes from a browser that connects again, to the same URL: it is newer.
    after = last_event_id if last is None else last
    record = await live.jobs.find(job_id)
    if record.is_finished and after == record.event_seq:
        return Response(status_code=204)
    return EventStream(request, Scope.READ, live.jobs.stream(record, after))


@routes.get("/stream", Scope.READ, "EventStream", media_type="text/event-stream")
async def stream_of_jobs(request: Request, live: Live, job_filter: Jobs, limit: Limit = 100) -> Response:
    """Follow the newest jobs that match: a snapshot, then what changes, without end."""
    return EventStream(request, Scope.READ, live.lists.stream(job_filter, limit=limit))
