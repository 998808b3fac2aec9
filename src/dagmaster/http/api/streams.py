"""Live streams of one job and of the list of jobs, as Server-Sent Events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.access import narrow
from dagmaster.application.job_lookup import find_job
from dagmaster.application.log_streams import stream_with_logs
from dagmaster.application.queries.events_and_logs import list_logs
from dagmaster.http.event_stream import EventStream
from dagmaster.http.parameters import JobId, Jobs, Limit, NodeIds, Time, parse_optional_time
from dagmaster.http.routes import Routes
from dagmaster.http.services import App, Caller, Live
from dagmaster.ports.api_keys import Reach, Scope

routes = Routes("streams")
MAX_NUMBER = 2**63 - 1
LastEvent = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=MAX_NUMBER, description="Resume after this event.")
]
LastEventQuery = Annotated[
    int | None, Query(ge=0, le=MAX_NUMBER, description="The same, for clients that cannot set headers.")
]


async def log_selection(
    logs: Annotated[bool, Query(description="Also send the job's logs, until all chunks were sent.")] = False,
    log_node_id: NodeIds = None,
    log_attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    log_since: Time = None,
    log_cursor: Annotated[
        str | None, Query(max_length=2_000, description="`cursor` of the last chunk.")
    ] = None,
) -> dict[str, Any] | None:
    if not logs:
        return None
    since = parse_optional_time("log_since", log_since)
    return {"node_id": log_node_id, "attempt": log_attempt, "since": since, "cursor": log_cursor}


LogSelection = Annotated[dict[str, Any] | None, Depends(log_selection)]


@routes.get(
    "/jobs/{job_id}/stream",
    Scope.READ,
    "EventStream",
    media_type="text/event-stream",
    also={204: "The job has finished, and nothing is new: do not connect again"},
)
async def stream_of_job(
    request: Request,
    app: App,
    caller: Caller,
    live: Live,
    job_id: JobId,
    logs: LogSelection,
    last: LastEvent = None,
    last_event_id: LastEventQuery = None,
) -> Response:
    """Follow a job: a snapshot, then deltas, until it has finished; 204 if it has, and nothing is new."""
    # The header comes from a browser that connects again, to the same URL: it is newer.
    after = last_event_id if last is None else last
    record = await find_job(app, job_id)
    jobs = live.of(caller).jobs
    if logs is not None:
        # Before the stream begins: a node that does not exist is an error, not a stream without its log.
        await list_logs(app, record.job_id, **logs, limit=1)
        messages = stream_with_logs(app, record.job_id, jobs.stream(record, after), **logs)
        return EventStream(request, messages)
    if record.is_finished and after == record.event_seq:
        return Response(status_code=204)
    return EventStream(request, jobs.stream(record, after))


@routes.get("/stream", Scope.READ, "EventStream", media_type="text/event-stream", reach=Reach.JOBS)
async def stream_of_jobs(
    request: Request, caller: Caller, live: Live, job_filter: Jobs, limit: Limit = 100
) -> Response:
    """Follow the newest jobs that match: a snapshot, then what changes, without end."""
    return EventStream(request, live.of(caller).lists.stream(narrow(caller, job_filter), limit=limit))
