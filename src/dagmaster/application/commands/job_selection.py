"""Cancel or resume the jobs that match a filter: first a dry run, then exactly the jobs that it listed.

The dry run returns a token that names its jobs. The change takes the token and no filter: what came to match
in between is left alone. Each job is a separate command with its own outcome.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dagmaster.application.commands.control import cancel_job
from dagmaster.application.commands.resume import ResumeRequest, resume_job
from dagmaster.application.queries.jobs import list_jobs
from dagmaster.application.views.results import JobOutcomeView, JobSelectionView, SelectionResult
from dagmaster.engine.status import TERMINAL_JOB, JobStatus
from dagmaster.errors import Category, CommandInvalid, DagmasterError, QueryInvalid
from dagmaster.ports.job_filter import active_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.job_filter import JobFilter
    from dagmaster.records.jobs import JobRecord

MAX_SELECTED: Final = 1_000
MAX_TOKEN: Final = 16_000
"""The longest token: 1,000 ids of 8 bytes, in base64."""
_ID_BYTES: Final = 8


class JobAction(StrEnum):
    """What is done with jobs."""

    CANCEL = "cancel"
    RESUME = "resume"


_STATUSES: Final = {
    JobAction.CANCEL: frozenset(JobStatus) - TERMINAL_JOB,
    JobAction.RESUME: frozenset({JobStatus.FAILED, JobStatus.CANCELLED}),
}


async def select_jobs(
    app: Application,
    action: JobAction,
    job_filter: JobFilter,
    *,
    cursor: str | None = None,
    limit: int = 100,
) -> JobSelectionView:
    """Return the newest jobs that match and can be cancelled or resumed, with a token; change nothing.

    A child job follows its parent: it is listed only if the filter names the parent.
    """
    chosen = replace(job_filter, statuses=_possible_statuses(action, job_filter))
    page = await list_jobs(app, chosen, cursor=cursor, limit=limit)
    jobs = tuple(job for job in page.items if _is_meant(action, job, job_filter))
    token = _make_token(action, [job.job_id for job in jobs]) if jobs else None
    return JobSelectionView(action=action, jobs=jobs, token=token, next_cursor=page.next_cursor)


async def change_selected_jobs(
    app: Application, token: str, *, sent_by: str, comment: str = ""
) -> SelectionResult:
    """Cancel or resume the jobs of a dry run; return the outcome of each. `comment`: of a cancel, why."""
    action, job_ids = _read_token(token)
    return await change_jobs(app, action, job_ids, sent_by=sent_by, comment=comment)


async def change_jobs(
    app: Application, action: JobAction, job_ids: Sequence[str], *, sent_by: str, comment: str = ""
) -> SelectionResult:
    """Cancel or resume jobs, each by its own command: one that is rejected does not stop the others.

    While the database cannot be reached, the rest of them has this as its outcome. If none was changed, it
    is raised.
    """
    outcomes: list[JobOutcomeView] = []
    outage: DagmasterError | None = None
    for job_id in job_ids:
        try:
            if outage is not None:
                raise outage
            sentence = await _change(app, action, job_id, sent_by, comment)
        except DagmasterError as error:
            outage = error if error.category is Category.UNAVAILABLE else None
            outcome = JobOutcomeView(
                job_id=job_id, accepted=False, sentence=str(error), error=error.to_dict()
            )
        else:
            outcome = JobOutcomeView(job_id=job_id, accepted=True, sentence=sentence, error=None)
        outcomes.append(outcome)
    accepted = sum(outcome.accepted for outcome in outcomes)
    if outage is not None and not accepted:
        raise outage
    return SelectionResult(
        action=action,
        accepted_count=accepted,
        rejected_count=len(outcomes) - accepted,
        outcomes=tuple(outcomes),
    )


async def _change(app: Application, action: JobAction, job_id: str, sent_by: str, comment: str) -> str:
    if action is JobAction.CANCEL:
        result = await cancel_job(app, job_id, sent_by=sent_by, comment=comment, wait_seconds=0.0)
        return result.sentence
    await resume_job(app, job_id, ResumeRequest(sent_by=sent_by), wait_seconds=0.0)
    return "accepted, not processed yet"


def _possible_statuses(action: JobAction, job_filter: JobFilter) -> frozenset[JobStatus]:
    """Return the statuses to look for; raise `QueryInvalid` if the filter names none of them, or nothing."""
    if not active_fields(job_filter):
        raise QueryInvalid("name a filter, such as a status or a workflow: without one, it is every job")
    possible = _STATUSES[action]
    statuses = possible & (job_filter.statuses or possible)
    if not statuses:
        names = ", ".join(sorted(status.lower() for status in possible))
        verb = "cancelled" if action is JobAction.CANCEL else "resumed"
        raise QueryInvalid(f"only jobs with one of these statuses can be {verb}: {names}", field="status")
    return statuses


def _is_meant(action: JobAction, job: JobRecord, job_filter: JobFilter) -> bool:
    is_child = job.parent_job_id is not None and job_filter.parent_job_id is None
    return not is_child and not (action is JobAction.CANCEL and job.is_cancelling)


def _make_token(action: JobAction, job_ids: Sequence[str]) -> str:
    numbers = b"".join(int(job_id).to_bytes(_ID_BYTES, "big") for job_id in job_ids)
    return f"{action}.{base64.urlsafe_b64encode(numbers).decode().rstrip('=')}"


def _read_token(token: str) -> tuple[JobAction, list[str]]:
    """Return what a token stands for; raise `CommandInvalid` for another text."""
    word, _, text = token.partition(".")
    numbers, action = b"", JobAction.CANCEL
    try:
        action = JobAction(word)
        numbers = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        pass
    if not numbers or len(numbers) % _ID_BYTES or len(numbers) > MAX_SELECTED * _ID_BYTES:
        raise CommandInvalid("this is not the token of a dry run: the answer of one has it")
    ids = [
        str(int.from_bytes(numbers[at : at + _ID_BYTES], "big")) for at in range(0, len(numbers), _ID_BYTES)
    ]
    return action, list(dict.fromkeys(ids))


def action_of(token: str) -> JobAction:
    """Return what a token is for; raise `CommandInvalid` for another text."""
    return _read_token(token)[0]
