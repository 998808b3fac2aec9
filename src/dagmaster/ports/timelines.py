"""The port of timelines: when the attempts of a job were queued, started and finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.records.page import Position


class TimelineRecord(NamedTuple):
    """When one attempt was queued, started and finished, and by whom. Attempt 0: a node that has no task.

    `status`: of an attempt that has finished (`AttemptStatus`), else as the node is displayed (`NodeStatus`).
    """

    node_id: str
    attempt: int
    status: str
    worker: str | None
    queued_at: float | None
    started_at: float | None
    finished_at: float | None


class TimelineReader(Protocol):
    """Reads timelines. Times are seconds since the epoch by the store's clock."""

    async def rows(
        self, job_id: str, *, after: Position | None = None, limit: int = 1000
    ) -> list[TimelineRecord]:
        """Return the attempts of a job, also those in flight, and nodes that ran without a task.

        The position is (node id, attempt).
        """

    async def last_children(self, job_id: str, fan_outs: Sequence[str]) -> dict[str, str]:
        """Return of each fan-out the child that finished last, if one has."""
