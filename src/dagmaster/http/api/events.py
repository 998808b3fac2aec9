"""Audit events and logs, page by page; logs also as a stream and as a text file."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Header, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.application.log_levels import LogLevel
from dagmaster.application.log_streams import stream_logs
from dagmaster.application.queries.events_and_logs import (
    count_events,
    follow_log_range,
    list_events,
    list_logs,
    recent_events,
)
from dagmaster.application.queries.log_lines import list_log_lines
from dagmaster.errors import QueryInvalid
from dagmaster.http.attachments import text_attachment
from dagmaster.http.event_stream import EventStream
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import (
    Cursor,
    JobId,
    Limit,
    NodeId,
    NodeIds,
    Time,
    one_of,
    parse_optional_time,
)
from dagmaster.http.routes import Routes
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_events import EventType

routes = Routes("events")
Attempt = Annotated[int | None, Query(ge=1, le=2**31 - 1)]
NewestFirst = Annotated[bool, Query(description="Backwards, from the end.")]


@routes.get("/jobs/{job_id}/events", Scope.READ, "EventViewPage")
async def events(
    app: App,
    job_id: JobId,
    after: Annotated[
        int, Query(ge=0, le=2**63 - 1, description="The number of the last event you have.")
    ] = 0,
    node_id: Annotated[
        list[str] | None, Query(max_length=100, description="Repeatable: theirs, and failures.")
    ] = None,
    children: Annotated[
        bool, Query(description="With all events of children of fan-outs, not only failures.")
    ] = True,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List the audit events of a job, numbered without gaps."""
    page = await list_events(
        app, job_id, after=after, node_ids=node_id or None, with_children=children, cursor=cursor, limit=limit
    )
    return PageAnswer(page)


@routes.get("/events", Scope.READ, "EventViewPage")
async def events_across_jobs(
    app: App,
    type: Annotated[  # noqa: A002 - its name
        list[Annotated[str, one_of(EventType)]] | None, Query(max_length=50, description="Repeatable.")
    ] = None,
    since: Time = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List events across jobs, newest first."""
    after = parse_optional_time("since", since)
    return PageAnswer(await recent_events(app, types=type or (), since=after, cursor=cursor, limit=limit))


@routes.get("/events/counts", Scope.READ, "EventCountsView")
async def counts(app: App, since: Time = None, until: Time = None) -> JSONResponse:
    """Count events across jobs by type."""
    first, last = parse_optional_time("since", since), parse_optional_time("until", until)
    return JSONResponse((await count_events(app, since=first, until=last)).to_dict())


class LogRange(NamedTuple):
    """Which chunks of logs a request asks for."""

    attempt: int | None
    since: float | None
    until: float | None
    cursor: str | None
    limit: int
    follow: bool
    newest_first: bool


async def log_range(
    attempt: Attempt = None,
    since: Time = None,
    until: Time = None,
    follow: Annotated[
        bool, Query(description="Send a stream of chunks as they are written, until the end.")
    ] = False,
    newest_first: NewestFirst = False,
    last: Annotated[
        str | None,
        Header(alias="Last-Event-ID", max_length=2_000, description="Resume a stream after this chunk."),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> LogRange:
    """Return the range of a request. A browser that connects again sends the last chunk in a header."""
    first, end = parse_optional_time("since", since), parse_optional_time("until", until)
    return LogRange(attempt, first, end, (last if follow else None) or cursor, limit, follow, newest_first)


Logs = Annotated[LogRange, Depends(log_range)]


@routes.get("/jobs/{job_id}/logs", Scope.READ, "LogViewPage", streams=True)
async def logs(
    request: Request,
    app: App,
    job_id: JobId,
    selection: Logs,
    node_id: NodeIds = None,
) -> Response:
    """List what the tasks of a job printed and logged, in order; `since` and `until` name a range of time."""
    return await _logs(request, app, job_id, node_id, selection)


@routes.get("/jobs/{job_id}/logs/lines", Scope.READ, "LogLineViewPage")
async def lines(
    app: App,
    job_id: JobId,
    contains: Annotated[str | None, Query(max_length=500, description="A text, in either case.")] = None,
    level: Annotated[LogLevel | None, Query(description="This level, and those more severe.")] = None,
    node_id: NodeIds = None,
    attempt: Attempt = None,
    since: Time = None,
    until: Time = None,
    newest_first: NewestFirst = False,
    cursor: Cursor = None,
    limit: Limit = 200,
) -> JSONResponse:
    """Search the logs of a job: list the lines that contain a text or have a level."""
    page = await list_log_lines(
        app,
        job_id,
        contains=contains,
        level=level,
        node_id=node_id,
        attempt=attempt,
        since=parse_optional_time("since", since),
        until=parse_optional_time("until", until),
        newest_first=newest_first,
        cursor=cursor,
        limit=limit,
    )
    return PageAnswer(page)


@routes.get("/jobs/{job_id}/logs/text", Scope.READ, "LogText", media_type="text/plain")
async def text(app: App, job_id: JobId, node_id: NodeIds = None, attempt: Attempt = None) -> Response:
    """Return what the tasks of a job printed and logged so far, as one text file."""
    # Before the file begins: what does not exist is an error, not an empty file.
    await list_logs(app, job_id, node_id=node_id, attempt=attempt, limit=1)
    chunks = follow_log_range(app, job_id, node_id=node_id, attempt=attempt, follow=False)
    words = ("job", job_id, *(node_id if node_id and len(node_id) == 1 else ()))
    encoded = (chunk.text.encode() async for chunk in chunks)
    return text_attachment(encoded, "text/plain; charset=utf-8", ".log", *words)


@routes.get("/jobs/{job_id}/nodes/{node_id}/logs", Scope.READ, "LogViewPage", streams=True)
async def logs_of_node(
    request: Request, app: App, job_id: JobId, node_id: NodeId, selection: Logs
) -> Response:
    """List what the tasks of a node printed and logged, in order."""
    return await _logs(request, app, job_id, node_id, selection)


async def _logs(
    request: Request, app: App, job_id: str, node_id: str | list[str] | None, selection: LogRange
) -> Response:
    attempt, since, until, cursor, limit, follow, newest_first = selection
    if follow and newest_first:
        raise QueryInvalid(
            "a stream goes forward: leave out `follow` or `newest_first`", field="newest_first"
        )
    chosen: dict[str, Any] = {
        "node_id": node_id,
        "attempt": attempt,
        "since": since,
        "until": until,
        "cursor": cursor,
    }
    # Also before a stream begins: what does not exist is an error, not an empty stream.
    page = await list_logs(app, job_id, **chosen, limit=1 if follow else limit, newest_first=newest_first)
    if not follow:
        return PageAnswer(page)
    return EventStream(request, stream_logs(app, job_id, **chosen))
