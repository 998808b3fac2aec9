"""The list of jobs: filters in the address, a page of rows, and what can be done with several of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import JobStatus
from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job_rows import JobRow, job_row

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
"""How many jobs are changed at once: each of them is a command of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsQuery:
    """What the address asks for, as text: it is shown again as it was typed."""

    statuses: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """The other parameters of the filter of jobs, by name."""

    def path(self, **changes: str) -> str:
        """Return the address of this list, or of another page of it."""
        pairs = [("status", status) for status in self.statuses]
        return with_query(PATH, *pairs, *self.texts.items(), **changes)

    @property
    def others(self) -> list[tuple[str, str]]:
        """Return the filters that are shown only while they are set."""
        return [(name, text) for name, text in self.texts.items() if text and name not in SHOWN]

    @property
    def is_filtered(self) -> bool:
        """Return whether anything is left out."""
        return self.path() != PATH


@dataclass(frozen=True, slots=True)
class StatusChoice:
    """A status to filter by."""

    status: str
    value: str
    is_chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPage:
    """A page of the list. `problem`: why the filters cannot be used."""

    query: JobsQuery
    problem: str
    rows: tuple[JobRow, ...]
    choices: tuple[StatusChoice, ...]
    spans: tuple[tuple[str, str], ...]
    workflows: tuple[str, ...]
    summary: str
    first: str
    next: str
    is_first_page: bool
    stream: str
    """The address of the live list; empty on a later page, where nothing new appears."""
    title: str = "Jobs"


def jobs_page(
    query: JobsQuery,
    page: Page[JobRecord] | None,
    *,
    workflows: Sequence[str],
    successors: Mapping[str, str],
    cursor: str | None,
    problem: str = "",
) -> JobsPage:
    views = () if page is None else page.items
    following = None if page is None else page.next_cursor
    since = query.texts.get("since", "")
    spans = SPANS if since in SPANS else {**SPANS, since: f"since {since}"}
    return JobsPage(
        query=query,
        problem=problem,
        rows=tuple(job_row(view, successors) for view in views),
        choices=tuple(
            StatusChoice(status.value, status.value.lower(), status.value.lower() in query.statuses)
            for status in JobStatus
        ),
        spans=tuple(spans.items()),
        workflows=tuple(workflows),
        summary=f"{format_count(len(views), 'job')} on this page" + ("" if following else ", the last one"),
        first="" if cursor is None else query.path(),
        next="" if following is None else query.path(cursor=following),
        is_first_page=cursor is None,
        stream="" if cursor is not None or problem else query.path().replace("/ui/jobs", "/api/v1/stream", 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPage:
    """What is about to be done with several jobs.

    `action`: cancel or resume; `left_out`: why some are not changed.
    """

    action: str
    rows: tuple[JobRow, ...]
    left_out: tuple[JobRow, ...]
    reason: str
    title: str


def bulk_page(action: str, jobs: Sequence[JobRecord]) -> BulkPage:
    """Return the confirmation of a change of several jobs."""
    rows = [job_row(job) for job in jobs]
    is_cancel = action == "cancel"
    fitting = tuple(
        row for row in rows if row.is_finished != is_cancel and (is_cancel or row.status != "COMPLETED")
    )
    return BulkPage(
        action=action,
        rows=fitting,
        left_out=tuple(row for row in rows if row not in fitting),
        reason="they have finished already"
        if is_cancel
        else "they run, or completed with nothing to run again",
        title=f"{action.capitalize()} {format_count(len(fitting), 'job')}",
    )
