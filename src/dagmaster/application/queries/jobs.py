"""Queries about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.access import narrow
from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.job_lookup import find_job
from dagmaster.application.secret_inputs import RedactorCache
from dagmaster.application.views.events_and_logs import CommandView
from dagmaster.application.views.footprints import FootprintsView, FootprintView
from dagmaster.application.views.jobs import CountsView, JobProgressView
from dagmaster.engine.status import JobStatus
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_filter import JobFilter
from dagmaster.records.jobs import JobRecord
from dagmaster.records.page import Page
from dagmaster.records.record import as_member
from dagmaster.text_format import format_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.read_store import PendingCommand
    from dagmaster.records.jobs import JobRecord

MAX_SUCCESSORS: Final = 1_000
MAX_FOOTPRINTS: Final = 10_000
"""The most footprints of a page: each page reads the lists of items of the job's fan-outs."""


async def list_jobs(
    app: Application, job_filter: JobFilter | None = None, *, cursor: str | None = None, limit: int = 20
) -> Page[JobRecord]:
    after = start_page(CursorKind.JOBS, cursor, limit)
    job_filter = narrow(app.caller, job_filter or JobFilter())
    records = await app.read.jobs(job_filter, after=after, limit=limit)
    return Page(
        items=await RedactorCache(app).redacted(records),
        next_cursor=next_cursor(CursorKind.JOBS, records, limit, lambda record: (record.job_id,)),
    )


async def oldest_jobs(app: Application, job_filter: JobFilter, *, limit: int = 20) -> tuple[JobRecord, ...]:
    """Return the oldest jobs that match a filter, oldest first."""
    records = await app.read.jobs(narrow(app.caller, job_filter), limit=limit, oldest_first=True)
    return await RedactorCache(app).redacted(records)


async def job_progress(app: Application, job_id: str | None) -> JobProgressView:
    return JobProgressView.of(await find_job(app, job_id))


async def count_jobs(app: Application, job_filter: JobFilter | None = None) -> CountsView:
    """Count jobs by displayed status."""
    counts = await app.read.job_counts(narrow(app.caller, job_filter or JobFilter()))
    return CountsView(
        counts={status.value: counts.get(status, 0) for status in JobStatus}, total=sum(counts.values())
    )


async def find_successors(app: Application, job_ids: Sequence[str]) -> Mapping[str, str]:
    """Return the newest job that each of these jobs was resumed as, if it was, by their ids."""
    if not job_ids:
        return {}
    job_filter = narrow(app.caller, JobFilter(resumed_from=frozenset(job_ids)))
    records = await app.read.jobs(job_filter, limit=MAX_SUCCESSORS)
    return {
        record.resumed_from: record.job_id for record in reversed(records) if record.resumed_from is not None
    }


async def show_jobs(app: Application, job_ids: Sequence[str]) -> list[JobRecord]:
    """Return some jobs by their ids; raise `JobNotFound` if one does not exist."""
    records = [await find_job(app, job_id) for job_id in job_ids]
    return list(await RedactorCache(app).redacted(records))


async def newest_jobs(app: Application, workflow_ids: Collection[str]) -> Mapping[str, JobRecord]:
    records = await RedactorCache(app).redacted(await app.read.newest_jobs(workflow_ids))
    return {record.workflow_id: record for record in records}


async def list_pending_commands(
    app: Application, job_id: str | None, *, cursor: str | None = None, limit: int = 100
) -> Page[CommandView]:
    """List the commands to a job that no orchestrator has processed, oldest first."""
    after = start_page(CursorKind.COMMANDS, cursor, limit)
    record = await find_job(app, job_id)
    commands = await app.read.pending_commands(record.job_id, after=after, limit=limit)
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
    footprints = await app.read.footprints(record.job_id, after=after, limit=limit)
    redact = await RedactorCache(app).get(record.job_id, record.content_hash)
    return FootprintsView(
        job_id=record.job_id,
        workflow_id=record.workflow_id,
        version=record.version,
        features=tuple(
            FootprintView(
                node_id=one.child.node_id,
                fan_out=one.child.parent_node_id or "",
                fan_out_index=one.child.fan_out_index or 0,
                status=one.child.status,
                attempt=one.child.attempt,
                error=None if one.child.error is None else format_error(redact(one.child.error)),
                geometry=geometry,
            )
            for one in footprints
            if (geometry := footprint_geometry(one.footprint)) is not None
        ),
        next_cursor=next_cursor(CursorKind.FOOTPRINTS, footprints, limit, lambda one: one.position),
    )


def command_view(command: PendingCommand) -> CommandView:
    return CommandView(
        command_id=command.command_id,
        kind=as_member(CommandKind, command.kind),
        sent_by=command.sent_by,
        age_seconds=command.age_seconds,
    )
