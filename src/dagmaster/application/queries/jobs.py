"""Queries about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.job_lookup import find_job
from dagmaster.application.secret_inputs import RedactorCache
from dagmaster.application.views.events_and_logs import CommandView
from dagmaster.application.views.footprints import FootprintsView, FootprintView
from dagmaster.application.views.jobs import CountsView, JobProgressView, JobView, OwnerView
from dagmaster.engine.status import JobStatus
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.read_store import JobFilter
from dagmaster.records.page import Page
from dagmaster.records.record import as_member
from dagmaster.text_format import format_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.read_store import JobRecord, PendingCommand

MAX_SUCCESSORS: Final = 1_000
MAX_FOOTPRINTS: Final = 10_000
"""The most footprints of a page: each page reads the lists of items of the job's fan-outs."""


async def list_jobs(
    app: Application, job_filter: JobFilter | None = None, *, cursor: str | None = None, limit: int = 20
) -> Page[JobView]:
    """List jobs that match a filter, newest first."""
    after = start_page(CursorKind.JOBS, cursor, limit)
    records = await app.read.jobs(job_filter or JobFilter(), after=after, limit=limit)
    return Page(
        items=await _job_views(app, records),
        next_cursor=next_cursor(CursorKind.JOBS, records, limit, lambda record: (record.id,)),
    )


async def oldest_jobs(app: Application, job_filter: JobFilter, *, limit: int = 20) -> tuple[JobView, ...]:
    """Return the oldest jobs that match a filter, oldest first."""
    return await _job_views(app, await app.read.jobs(job_filter, limit=limit, oldest_first=True))


async def _job_views(app: Application, records: Sequence[JobRecord]) -> tuple[JobView, ...]:
    redactors = RedactorCache(app)
    return tuple(
        [
            job_view(
                record, None if record.error is None else await redactors.get(record.id, record.content_hash)
            )
            for record in records
        ]
    )


async def job_progress(app: Application, job_id: str | None) -> JobProgressView:
    """Return how far a job is."""
    record = await find_job(app, job_id)
    return JobProgressView(
        job_id=record.id,
        status=record.status,
        is_cancelling=record.is_cancelling and not record.is_finished,
        event_seq=record.event_seq,
        nodes_total=record.nodes_total,
        nodes_finished=record.nodes_finished,
        duration_seconds=_rounded(record.duration_seconds),
    )


async def count_jobs(app: Application, job_filter: JobFilter | None = None) -> CountsView:
    """Count jobs by displayed status."""
    counts = await app.read.job_counts(job_filter or JobFilter())
    return CountsView(
        counts={status.value: counts.get(status, 0) for status in JobStatus}, total=sum(counts.values())
    )


async def find_successors(app: Application, job_ids: Sequence[str]) -> Mapping[str, str]:
    """Return the newest job that each of these jobs was resumed as, if it was, by their ids."""
    if not job_ids:
        return {}
    records = await app.read.jobs(JobFilter(resumed_from=frozenset(job_ids)), limit=MAX_SUCCESSORS)
    return {record.resumed_from: record.id for record in reversed(records) if record.resumed_from is not None}


async def show_jobs(app: Application, job_ids: Sequence[str]) -> list[JobView]:
    """Return some jobs by their ids; raise `JobNotFound` if one does not exist."""
    redactors = RedactorCache(app)
    records = [await find_job(app, job_id) for job_id in job_ids]
    return [job_view(record, await redactors.get(record.id, record.content_hash)) for record in records]


async def newest_jobs(app: Application, workflow_ids: Collection[str]) -> Mapping[str, JobView]:
    """Return the newest job of each of these workflows that has one, by the id of the workflow."""
    redactors = RedactorCache(app)
    return {
        record.workflow_id: job_view(record, await redactors.get(record.id, record.content_hash))
        for record in await app.read.newest_jobs(workflow_ids)
    }


async def list_pending_commands(
    app: Application, job_id: str | None, *, cursor: str | None = None, limit: int = 100
) -> Page[CommandView]:
    """List the commands to a job that no orchestrator has processed, oldest first."""
    after = start_page(CursorKind.COMMANDS, cursor, limit)
    record = await find_job(app, job_id)
    commands = await app.read.pending_commands(record.id, after=after, limit=limit)
    return Page(
        items=tuple(map(command_view, commands)),
        next_cursor=next_cursor(CursorKind.COMMANDS, commands, limit, lambda command: (command.command_id,)),
    )


async def job_footprints(
    app: Application, job_id: str | None, *, cursor: str | None = None, limit: int = 1_000
) -> FootprintsView:
    """Return a page of the children of a job's fan-outs that have a footprint, as GeoJSON features."""
    from dagmaster.ports.footprints import footprint_geometry

    after = start_page(CursorKind.FOOTPRINTS, cursor, limit, max_limit=MAX_FOOTPRINTS)
    record = await find_job(app, job_id)
    children = await app.read.footprints(record.id, after=after, limit=limit)
    redact = await RedactorCache(app).get(record.id, record.content_hash)
    return FootprintsView(
        job_id=record.id,
        workflow_id=record.workflow_id,
        version=record.version,
        features=tuple(
            FootprintView(
                node_id=child.node_id,
                fan_out=child.parent_node_id,
                fan_out_index=child.fan_out_index,
                status=child.status,
                attempt=child.attempt,
                error=None if child.error is None else format_error(redact(child.error)),
                geometry=geometry,
            )
            for child in children
            if (geometry := footprint_geometry(child.footprint)) is not None
        ),
        next_cursor=next_cursor(
            CursorKind.FOOTPRINTS, children, limit, lambda child: (child.parent_node_id, child.fan_out_index)
        ),
    )


def job_view(record: JobRecord, redact: Callable[[Any], Any] | None = None) -> JobView:
    """Return the view of a job's record. A record with an error needs the job's redactor."""
    owner = record.owner
    return JobView(
        job_id=record.id,
        name=record.name,
        workflow_id=record.workflow_id,
        version=record.version,
        content_hash=record.content_hash,
        status=record.status,
        is_cancelling=record.is_cancelling and not record.is_finished,
        run=record.run,
        priority=record.priority,
        submitted_by=record.submitted_by,
        correlation_id=record.correlation_id,
        idempotency_key=record.idempotency_key,
        queue=record.queue,
        parent_job_id=record.parent_job_id,
        parent_node_id=record.parent_node_id,
        resumed_from=record.resumed_from,
        created_at=record.created_at,
        updated_at=record.updated_at,
        started_at=record.started_at,
        resumed_at=record.resumed_at,
        finished_at=record.finished_at,
        deadline_at=record.deadline_at,
        duration_seconds=_rounded(record.duration_seconds),
        nodes_total=record.nodes_total,
        nodes_finished=record.nodes_finished,
        event_seq=record.event_seq,
        error=record.error if redact is None else redact(record.error),
        owner=None
        if owner is None
        else OwnerView(
            orchestrator_id=owner.owner_id,
            host=owner.host,
            pid=owner.pid,
            silent_seconds=owner.silent_seconds,
        ),
        read_at=record.now,
    )


def command_view(command: PendingCommand) -> CommandView:
    """Return the view of a command that no orchestrator has processed."""
    return CommandView(
        command_id=command.command_id,
        kind=as_member(CommandKind, command.kind),
        sent_by=command.sent_by,
        age_seconds=command.age_seconds,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
