"""A job as a row of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from dagmaster.application.views import TERMINAL_JOB, JobStatus
from dagmaster.text_format import format_error
from dagmaster.ui.pages.times import Duration, Moment, duration, moment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.views import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job of a list. `resumed_as`: the job that continued it; `resumed_from`: the one that it continues."""

    job_id: str
    href: str
    name: str
    workflow_id: str
    version: int
    status: str
    is_cancelling: bool
    is_finished: bool
    submitted_by: str
    created: Moment | None
    finished: Moment | None
    duration: Duration | None
    nodes_finished: int
    nodes_total: int
    percent: int
    run: int
    error: str
    resumed_from: str
    resumed_as: str


def job_row(job: JobRecord, successors: Mapping[str, str] | None = None) -> JobRow:
    """Return the row of a job; `successors`: the jobs that resumed others, by the id of the older one."""
    began = job.started_at if job.resumed_at is None else job.resumed_at
    return JobRow(
        job_id=job.job_id,
        href=job_path(job.job_id),
        name=job.name,
        workflow_id=job.workflow_id,
        version=job.version,
        status=job.status.value,
        is_cancelling=job.is_cancelling,
        is_finished=job.status in TERMINAL_JOB,
        submitted_by=job.submitted_by,
        created=moment(job.created_at, job.read_at),
        finished=moment(job.finished_at, job.read_at),
        duration=duration(began, job.finished_at, job.read_at),
        nodes_finished=job.nodes_finished,
        nodes_total=job.nodes_total,
        percent=percent_of(job),
        run=job.run,
        error="" if job.error is None else format_error(job.error),
        resumed_from=job.resumed_from or "",
        resumed_as=(successors or {}).get(job.job_id, ""),
    )


def job_path(job_id: str, *parts: str) -> str:
    """Return the path of a job's page, or of what is below it."""
    return "/".join(["/ui/jobs", quote(job_id, safe=""), *(quote(part, safe="") for part in parts)])


def percent_of(job: JobRecord) -> int:
    """Return how far a job is, 100 only if it is complete."""
    if job.status is JobStatus.COMPLETED:
        return 100
    return min(99, job.nodes_finished * 100 // job.nodes_total) if job.nodes_total else 0
