"""Queries about audit events and logs, of one job and across jobs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, decode_cursor, encode_cursor, next_cursor, start_page
from dagmaster.application.event_sentences import event_sentence, event_status
from dagmaster.application.job_lookup import find_job
from dagmaster.application.node_lookup import unknown_node
from dagmaster.application.secret_inputs import RedactorCache, job_redactor
from dagmaster.application.views.events_and_logs import EventCountsView, EventView, LogView
from dagmaster.engine.shown_graph import shown_graph
from dagmaster.errors import NodeNotFound
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.read_records import LogFilter
from dagmaster.records.page import Page
from dagmaster.records.record import as_member

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence
    from typing import Any

    from dagmaster.application.context import Application
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.read_store import LogRecord
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.page import Position

    NodeSelection = str | Sequence[str] | None
    """One node, several, or all."""

POLL_SECONDS: Final = 0.25
"""How often a follower reads if no notification comes."""
_EVENT_BATCH: Final = 2_000
_LOG_BATCH: Final = 500
# Workers do not wait for each other: a chunk with an earlier time may become visible a little later.
_LOG_OVERLAP_SECONDS: Final = 2.0


async def list_events(
    app: Application,
    job_id: str | None,
    *,
    after: int = 0,
    cursor: str | None = None,
    limit: int = 1000,
    node_ids: Collection[str] | None = None,
    with_children: bool = True,
) -> Page[EventView]:
    """List the events of a job after a number, oldest first.

    With nodes: the job's, theirs, and every failure.

    Not `with_children`: children of fan-outs have their failures only, as if all nodes of the workflow were
    named.
    """
    job = await find_job(app, job_id)
    if node_ids is None and not with_children:
        node_ids = shown_graph(await app.outlines.of_job(job)).specs.keys()
    position = start_page(CursorKind.EVENTS, cursor, limit)
    after = after if position is None else int(position[0])
    records = await app.read.events(job.job_id, after=after, limit=limit, node_ids=node_ids)
    redact = await job_redactor(app, job)
    return Page(
        items=tuple(event_view(job.job_id, event, redact) for event in records),
        next_cursor=next_cursor(CursorKind.EVENTS, records, limit, lambda event: (event.seq,)),
    )


async def follow_events(
    app: Application, job_id: str | None, *, after: int = 0, node_id: str | None = None, follow: bool = True
) -> AsyncGenerator[EventView]:
    """Yield the events of a job in order and without gaps; with `follow`, until the job has finished."""
    job = await find_job_with_nodes(app, job_id, node_id)
    redact = await job_redactor(app, job)
    async with app.read.subscribe(job.job_id) as subscription:
        while True:
            # Read before the events: what a finished job has to say is then complete.
            current = await app.read.job(job.job_id)
            while True:
                records = await app.read.events(job.job_id, after=after, limit=_EVENT_BATCH)
                for event in records:
                    after = event.seq
                    if node_id is None or event.node_id == node_id:
                        yield event_view(job.job_id, event, redact)
                if len(records) < _EVENT_BATCH:
                    break
            if not follow or current is None or current.is_finished:
                return
            await subscription.wait(POLL_SECONDS)


async def recent_events(
    app: Application,
    *,
    types: Collection[str] = (),
    since: float | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[EventView]:
    """List events across jobs, newest first."""
    after = start_page(CursorKind.RECENT_EVENTS, cursor, limit)
    records = await app.read.recent_events(types=types, since=since, after=after, limit=limit)
    redactors = RedactorCache(app)
    items = tuple([event_view(job_id, event, await redactors.get(job_id)) for job_id, event in records])
    return Page(
        items=items,
        next_cursor=next_cursor(
            CursorKind.RECENT_EVENTS, records, limit, lambda record: (record[1].at, record[0], record[1].seq)
        ),
    )


async def count_events(
    app: Application, *, since: float | None = None, until: float | None = None
) -> EventCountsView:
    counts = await app.read.event_counts(since=since, until=until)
    return EventCountsView(
        since=since,
        until=until,
        counts={str(name): count for name, count in counts.items()},
        total=sum(counts.values()),
    )


async def list_logs(  # noqa: PLR0913 - each is a parameter of a request
    app: Application,
    job_id: str | None,
    *,
    node_id: NodeSelection = None,
    attempt: int | None = None,
    since: float | None = None,
    until: float | None = None,
    cursor: str | None = None,
    limit: int = 1000,
    newest_first: bool = False,
) -> Page[LogView]:
    """List chunks of a job's logs in the order they were written, of a time range.

    While the job runs, the pages end two seconds ago: what is still being written would come between earlier
    pages. Newest first, the cursor leads backwards.
    """
    after = start_page(CursorKind.LOGS, cursor, limit)
    job = await find_job_with_nodes(app, job_id, node_id)
    node_ids, until = select_nodes(node_id), end_of_pages(job, until)
    log_filter = LogFilter(node_ids=node_ids, attempt=attempt, since=since, until=until)
    records = await app.read.logs(job.job_id, log_filter, after=after, limit=limit, newest_first=newest_first)
    redact = await job_redactor(app, job)
    return Page(
        items=tuple(_log_view(job.job_id, record, redact) for record in records),
        next_cursor=next_cursor(CursorKind.LOGS, records, limit, lambda record: record.position),
    )


def follow_logs(
    app: Application,
    job_id: str | None,
    *,
    node_id: str | None = None,
    attempt: int | None = None,
    follow: bool = True,
) -> AsyncGenerator[LogView]:
    """Yield chunks of a job's logs as they are written; with `follow`, until the job has finished."""
    return follow_log_range(app, job_id, node_id=node_id, attempt=attempt, follow=follow)


async def follow_log_range(
    app: Application,
    job_id: str | None,
    *,
    node_id: NodeSelection = None,
    attempt: int | None = None,
    since: float | None = None,
    until: float | None = None,
    cursor: str | None = None,
    follow: bool = True,
) -> AsyncGenerator[LogView]:
    """Yield chunks of a range of a job's logs as they are written; with `follow`, until the job has finished.

    After a cursor, chunks of the two seconds before it may come again: some may have become visible after it.
    """
    job = await find_job_with_nodes(app, job_id, node_id)
    redact = await job_redactor(app, job)
    after = decode_cursor(CursorKind.LOGS, cursor)
    after = _start_of(since) if after is None else _start_of(float(after[0]) - _LOG_OVERLAP_SECONDS)
    log_filter = LogFilter(node_ids=select_nodes(node_id), attempt=attempt, until=until)
    seen: dict[Position, float] = {}
    while True:
        current = await app.read.job(job.job_id)
        while True:
            records = await app.read.logs(job.job_id, log_filter, after=after, limit=_LOG_BATCH)
            for record in records:
                after = record.position
                if record.position not in seen:
                    seen[record.position] = float(record.position[0])
                    yield _log_view(job.job_id, record, redact)
            if len(records) < _LOG_BATCH:
                break
        if not follow or current is None or current.is_finished:
            return
        if until is not None and current.read_at - _LOG_OVERLAP_SECONDS > until:
            return
        if seen:
            earlier = max(seen.values()) - _LOG_OVERLAP_SECONDS
            seen = {position: at for position, at in seen.items() if at >= earlier}
            after = _start_of(earlier)
        await asyncio.sleep(POLL_SECONDS)


def _start_of(at: float | None) -> Position | None:
    return None if at is None else (at, "0", 0)


def event_view(job_id: str, event: StoredEvent, redact: Callable[[Any], Any]) -> EventView:
    clean = replace(event, data=redact(event.data))
    return EventView.of(
        clean,
        job_id=job_id,
        type=as_member(EventType, event.type),
        event_status=event_status(event),
        checkpoint_name=clean.data.get("checkpoint_name"),
        sentence=event_sentence(clean),
    )


def _log_view(job_id: str, record: LogRecord, redact: Callable[[Any], Any]) -> LogView:
    return LogView(
        job_id=job_id,
        node_id=record.node_id,
        attempt=record.attempt,
        at=record.at,
        text=str(redact(record.text)),
        cursor=encode_cursor(CursorKind.LOGS, record.position),
    )


def select_nodes(node_id: NodeSelection) -> tuple[str, ...]:
    """Return the nodes of a selection; none stands for all."""
    return (node_id,) if isinstance(node_id, str) else tuple(node_id or ())


async def find_job_with_nodes(app: Application, job_id: str | None, node_id: NodeSelection) -> JobRecord:
    """Return a job; raise `NodeNotFound` if it has no such node. The graph is not compiled for it."""
    job = await find_job(app, job_id)
    missing = set(select_nodes(node_id))
    if missing:
        missing -= {record.node_id for record in await app.read.nodes(job.job_id, sorted(missing))}
    if missing:
        definition = await app.read.definition(job.content_hash) or {}
        nodes = definition.get("nodes") or {}
        for unknown in sorted(missing.difference(nodes)):
            raise NodeNotFound(unknown_node(job.workflow_id, unknown, list(nodes)))
    return job


def end_of_pages(job: JobRecord, until: float | None) -> float | None:
    """Return the time where pages end: while the job runs, two seconds ago at the latest."""
    if job.is_finished:
        return until
    settled = job.read_at - _LOG_OVERLAP_SECONDS
    return settled if until is None else min(settled, until)
