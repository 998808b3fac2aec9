"""The port of finished tasks across jobs, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dagmaster.ports.audit_events import EventType

if TYPE_CHECKING:
    from dagmaster.engine.status import AttemptStatus
    from dagmaster.records.page import Position
    from dagmaster.records.tasks import AttemptRecord

ENDS: Final = (
    EventType.NODE_COMPLETED,
    EventType.ATTEMPT_FAILED,
    EventType.ATTEMPT_LOST,
    EventType.ATTEMPT_RELEASED,
)
"""The events that end an attempt. Tasks are found by them: they have an index on time, and a number in their
job."""
MAX_SCANNED: Final = 5_000
"""How many ends of attempts one page looks at. With a filter that few match, a page may be short, or
empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTaskFilter:
    """A filter of finished tasks. Fields that are None or empty do not filter; all others must match."""

    queue: str | None = None
    worker_id: str | None = None
    job_id: str | None = None
    statuses: frozenset[AttemptStatus] = frozenset()
    since: float | None = None
    """When a task finished, or later."""


class FinishedTaskRecord(NamedTuple):
    """A finished attempt.

    The position is (at, job id, number) of the event that ended it.
    """

    attempt: AttemptRecord
    position: Position


class FinishedTaskPage(NamedTuple):
    """Some finished tasks. `after`: where the next page begins; None after the last page."""

    records: list[FinishedTaskRecord]
    after: Position | None


class FinishedTaskReader(Protocol):
    """Reads finished tasks. Times are seconds since the epoch by the store's clock."""

    async def page(
        self, task_filter: FinishedTaskFilter, *, after: Position | None = None, limit: int = 100
    ) -> FinishedTaskPage:
        """Return finished tasks of visible jobs, newest first, from among the next `MAX_SCANNED` ones."""
