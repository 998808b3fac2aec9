"""The list of jobs: filters in the address, a page of rows, and what can be done with several of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import JobStatus
from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job_rows import JobRow
from dagmaster.ui.pages.list_pages import ListPage, ListQuery, StatusChoice, status_choices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.views import JobRecord, Page

PATH: Final = "/ui/jobs"
SPANS: Final = {
    "": "any time",
    "1h": "last hour",
    "1d": "last 24 hours",
    "1w": "last 7 days",
    "30d": "last 30 days",
}
"""Times to choose from. Others can be written in the address: an age, a date, a time."""
SHOWN: Final = ("text", "workflow_id", "submitted_by", "since")
"""The filters that always have a field."""
MAX_BULK: Final = 100
"""How many jobs are changed at once: each of them is a separate command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsQuery(ListQuery):
    """The filters of jobs."""

    address = PATH
    statuses: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """The other parameters of the filter of jobs, by name."""

    def path(self, **changes: str) -> str:
        pairs = [("status", status) for status in self.statuses]
        return with_query(PATH, *pairs, *self.texts.items(), **changes)

    @property
    def others(self) -> list[tuple[str, str]]:
        """Return the filters that are shown only while they are set."""
        return [(name, text) for name, text in self.texts.items() if text and name not in SHOWN]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPage(ListPage[JobsQuery, JobRow]):
    """The list of jobs."""

    noun = "job"
    choices: tuple[StatusChoice, ...]
    spans: tuple[tuple[str, str], ...]
    workflows: tuple[str, ...]

    @property
    def summary(self) -> str:
        last = "" if self.next_cursor else ", the last one"
        return f"{format_count(len(self.rows), self.noun)} on this page{last}"

    @property
    def stream(self) -> str:
        """Return the address of the live list; empty on a later page, where nothing new appears."""
        is_live = self.cursor is None and not self.problem
        return self.query.path().replace(PATH, "/api/v1/stream", 1) if is_live else ""


def jobs_page(
    query: JobsQuery,
    page: Page[JobRecord],
    *,
    workflows: Sequence[str],
    successors: Mapping[str, str],
    cursor: str | None,
    problem: str = "",
) -> JobsPage:
    """Return the list; `successors`: the jobs that resumed others, by the id of the older one."""
    since = query.texts.get("since", "")
    spans = SPANS if since in SPANS else {**SPANS, since: f"since {since}"}
    return JobsPage(
        query=query,
        problem=problem,
        rows=tuple(JobRow(job, successors.get(job.job_id, "")) for job in page.items),
        cursor=cursor,
        next_cursor=page.next_cursor,
        choices=status_choices(JobStatus, query.statuses),
        spans=tuple(spans.items()),
        workflows=tuple(workflows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPage:
    """What is about to be done with several jobs.

    `action`: cancel or resume; `left_out`: how many are not changed; `reason`: why.
    """

    action: str
    rows: tuple[JobRow, ...]
    left_out: int
    reason: str
    title: str


def bulk_page(action: str, jobs: Sequence[JobRecord]) -> BulkPage:
    is_cancel = action == "cancel"
    fitting = [
        job
        for job in jobs
        if job.is_finished != is_cancel and (is_cancel or job.status is not JobStatus.COMPLETED)
    ]
    return BulkPage(
        action=action,
        rows=tuple(map(JobRow, fitting)),
        left_out=len(jobs) - len(fitting),
        reason="they have finished already"
        if is_cancel
        else "they run, or completed with nothing to run again",
        title=f"{action.capitalize()} {format_count(len(fitting), 'job')}",
    )
