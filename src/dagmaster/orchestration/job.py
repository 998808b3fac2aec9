"""A job as Python code has it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import TERMINAL_JOB, JobStatus

if TYPE_CHECKING:
    from dagmaster.application.views import JobView
    from dagmaster.orchestration.context import OrchContext


class Job:
    """A job as it was when it was read last. `get_job` and `run_job_test` read it again."""

    __slots__ = ("completed_at", "context", "created_at", "error", "id", "name", "result", "started_at", "status")

    def __init__(self, job_id: int, name: str, context: OrchContext | None = None) -> None:
        self.id = job_id
        self.name = name
        self.context = context
        self.status = JobStatus.PENDING
        self.created_at: datetime | None = None
        self.started_at: datetime | None = None
        self.completed_at: datetime | None = None
        self.error: str | None = None
        self.result: Any = None

    @property
    def is_finished(self) -> bool:
        """Return whether the job has ended."""
        return self.status in TERMINAL_JOB

    def update(self, view: JobView, result: Any = None) -> Job:
        """Set everything from what was read; return self."""
        self.name = view.name
        self.status = JobStatus(view.status)
        self.created_at = to_datetime(view.created_at)
        self.started_at = to_datetime(view.started_at)
        self.completed_at = to_datetime(view.finished_at)
        self.error = None if view.error is None else str(view.error.get("message", view.error))
        self.result = result
        return self

    def __repr__(self) -> str:
        """Return the id, the name and the status."""
        return f"<Job {self.id} {self.name!r} {self.status}>"


def to_datetime(seconds: float | None) -> datetime | None:
    """Return a time of a view as a datetime."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
