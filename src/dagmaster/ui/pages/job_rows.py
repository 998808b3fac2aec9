"""A job as a row of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from dagmaster.application.views import JobStatus
from dagmaster.text_format import format_error
from dagmaster.ui.pages.times import Duration, Moment, duration, moment

if TYPE_CHECKING:
    from dagmaster.application.views import JobRecord


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of a list. `resumed_as`: the job that continued it."""

    record: JobRecord
    resumed_as: str = ""

    @property
    def href(self) -> str:
        return job_path(self.record.job_id)

    @property
    def created(self) -> Moment | None:
        return moment(self.record.created_at, self.record.read_at)

    @property
    def duration(self) -> Duration | None:
        job = self.record
        began = job.started_at if job.resumed_at is None else job.resumed_at
        return duration(began, job.finished_at, job.read_at)

    @property
    def percent(self) -> int:
        """Return how far the job is, 100 only if it is complete."""
        job = self.record
        if job.status is JobStatus.COMPLETED:
            return 100
        return min(99, job.nodes_finished * 100 // job.nodes_total) if job.nodes_total else 0

    @property
    def error(self) -> str:
        return "" if self.record.error is None else format_error(self.record.error)


def job_path(job_id: str, *parts: str) -> str:
    """Return the path of a job's page, or of what is below it."""
    return "/".join(["/ui/jobs", quote(job_id, safe=""), *(quote(part, safe="") for part in parts)])
