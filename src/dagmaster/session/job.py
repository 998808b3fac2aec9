"""A job as Python code has it."""

from __future__ import annotations

import operator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from dagmaster.engine.status import TERMINAL_JOB, JobStatus
from dagmaster.errors import JobNotFound
from dagmaster.sdk.json_forms import short_repr
from dagmaster.text_format import traceback_of

if TYPE_CHECKING:
    from dagmaster.application.views import JobRecord
    from dagmaster.session.context import OrchContext
    from dagmaster.session.job_display import JobTable, JobWatch

_ID_DIGITS: Final = 19


class Job:
    """A job as it was when it was read last. `get_job` and `run_job_test` read it again."""

    __slots__ = (
        "completed_at",
        "context",
        "created_at",
        "error",
        "id",
        "name",
        "result",
        "server",
        "started_at",
        "status",
        "table",
        "traceback",
    )

    def __init__(
        self, job_id: int, name: str, context: OrchContext | None = None, *, server: str | None = None
    ) -> None:
        self.id = job_id
        self.name = name
        self.context = context
        self.server = server
        """The address of the server that has it; None: it is in a database, or in memory."""
        self.status = JobStatus.PENDING
        self.created_at: datetime | None = None
        self.started_at: datetime | None = None
        self.completed_at: datetime | None = None
        self.error: str | None = None
        self.traceback: str | None = None
        """That of the task that failed the job."""
        self.result: Any = None
        self.table: JobTable | None = None
        """Its nodes, as a notebook showed them last."""

    @property
    def is_finished(self) -> bool:
        """Return whether the job has ended."""
        return self.status in TERMINAL_JOB

    def update(self, view: JobRecord, result: Any = None) -> Job:
        """Set everything from what was read; return self."""
        self.name = view.name
        self.status = JobStatus(view.status)
        self.created_at = to_datetime(view.created_at)
        self.started_at = to_datetime(view.started_at)
        self.completed_at = to_datetime(view.finished_at)
        self.error = None if view.error is None else str(view.error.get("message", view.error))
        self.traceback = traceback_of(view.error)
        self.result = result
        return self

    def watch(self, *, seconds: float = 1.0) -> JobWatch:
        """Show a table of the job here, and read it again every so many seconds until the job has ended.

        Returns at once. In a notebook the table is updated where it stands; elsewhere a line is printed when
        something changed. `with job.watch():` ends with the block, `job.watch().wait()` with the job.
        """
        from dagmaster.session.job_display import JobWatch

        return JobWatch(self, seconds)

    def _repr_html_(self) -> str:
        """Return a table of the job and its nodes as they are now; as last read if its context is closed."""
        from dagmaster.session.job_display import snapshot

        return snapshot(self)._repr_html_()

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} {self.status}>"


def job_number(job_id: object) -> int:
    """Return the id of a job as a number; raise `JobNotFound` if it cannot be one."""
    digits = id_digits(job_id)
    if not digits:
        hint = "give its id: job.id" if isinstance(job_id, Job) else "the id of a job is a whole number"
        raise JobNotFound(f"there is no job {short_repr(job_id)}: {hint}")
    return int(digits)


def id_digits(value: object) -> str:
    """Return the digits of an id, which is a whole number or its text; an empty text if no id can be this."""
    text = value if isinstance(value, str) else ""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        text = str(operator.index(value))
    return text if text.isascii() and text.isdecimal() and len(text) <= _ID_DIGITS else ""


def to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
