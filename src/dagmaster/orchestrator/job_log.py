"""The log lines of an orchestrator about its jobs.

Each has the ids of the jobs, also as fields of the record.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dagmaster.engine.status import JobStatus
from dagmaster.telemetry.logs import job_fields
from dagmaster.text_format import format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.job_records import ClaimedJob

_LOGGER = logging.getLogger("dagmaster.orchestrator")


def log_reclaimed(job_ids: Sequence[str]) -> None:
    _LOGGER.warning(
        "released %s of dead orchestrators, which can be claimed: %s",
        format_count(len(job_ids), "job"), format_list(job_ids), extra=job_fields(job_ids),
    )  # fmt: skip


def log_taken_over(claimed: Sequence[ClaimedJob]) -> None:
    """Log which of these jobs another orchestrator owned and had begun."""
    job_ids = [job.row.id for job in claimed if job.epoch > 1 and job.row.status is JobStatus.RUNNING]
    if not job_ids:
        return
    _LOGGER.info(
        "took over %s of another orchestrator: %s",
        format_count(len(job_ids), "job"), format_list(job_ids), extra=job_fields(job_ids),
    )  # fmt: skip


def log_lost_tasks(job_ids: Sequence[str]) -> None:
    """Log that dead workers held tasks of these jobs; each is named once for each task."""
    jobs = list(dict.fromkeys(job_ids))
    _LOGGER.warning(
        "marked %s of dead workers as lost: of %s %s",
        format_count(len(job_ids), "task"), "job" if len(jobs) == 1 else "jobs", format_list(jobs),
        extra=job_fields(jobs),
    )  # fmt: skip


def log_fenced(job_id: str) -> None:
    _LOGGER.warning("lost ownership of job %s; turn rejected by fence", job_id, extra={"job_id": job_id})


def log_stale_results(job_id: str) -> None:
    """Log that results came with a notification and are not those that are stored."""
    message = "notified results of job %s do not match the stored ones; reloading the job"
    _LOGGER.warning(message, job_id, extra={"job_id": job_id})


def log_quarantined(failure: str, job_id: str, error: Exception, seconds: float) -> None:
    """Log the error that keeps a job from being advanced; `failure` is what could not be done."""
    message = "%s job %s; quarantined for %g s"
    _LOGGER.error(message, failure, job_id, seconds, exc_info=error, extra={"job_id": job_id})


def log_finished(job_id: str, status: JobStatus) -> None:
    """Log the end of a job, for debugging: the audit log also has it."""
    _LOGGER.debug("job %s finished: %s", job_id, status, extra={"job_id": job_id})
