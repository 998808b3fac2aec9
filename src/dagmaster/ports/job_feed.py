"""The feed of a process that follows many jobs: which of them changed, and what is new in all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import ChildCounts, NodeRecord
    from dagmaster.records.tasks import TaskRecord

EventPosition = tuple[str, int]
"""A job, and the number of the last event of it that is known."""
NodeKey = tuple[str, str]
"""A job and a node."""
WATCH_SECONDS: Final = 30.0
"""How long owners notify of each turn after `watch`."""


class JobFeed(Protocol):
    """Reads many jobs, each kind of record in one query. Jobs and nodes that do not exist are left out."""

    @property
    def has_notifications(self) -> bool:
        """Return whether notifications arrive.

        Behind a pooler without a direct URL none do, and callers poll.
        """

    async def watch(self, job_ids: Collection[str]) -> None:
        """Call back on every change of exactly these jobs. Repeat it within `WATCH_SECONDS`.

        A notification may be missed: before an owner knows that the job is watched, and while a connection is
        lost.
        """

    async def events(self, positions: Sequence[EventPosition], *, limit: int) -> list[list[StoredEvent]]:
        """Return for each position the next audit events, `limit` at most, in order."""

    async def jobs(self, job_ids: Collection[str]) -> list[JobRecord]:
        """Return jobs without their inputs and results, newest first."""

    async def nodes(self, keys: Collection[NodeKey]) -> list[NodeRecord]:
        """Return the rows of nodes."""

    async def child_counts(self, fan_outs: Collection[NodeKey]) -> Mapping[NodeKey, ChildCounts]:
        """Count the children of fan-outs by status."""

    async def claimed_tasks(self, job_ids: Collection[str], *, limit: int) -> list[TaskRecord]:
        """Return the tasks that workers have claimed, `limit` of each job at most, by job and node."""
