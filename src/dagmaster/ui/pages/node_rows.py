"""A node as a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.application.views import TERMINAL_NODE, NodeStatus
from dagmaster.text_format import format_error
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.times import Duration, Moment, duration, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import NodeRecord


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a table. `needs`: the nodes that it waits for."""

    record: NodeRecord
    now: float
    needs: Sequence[str] = ()

    @property
    def href(self) -> str:
        return node_path(self.record.job_id, self.record.node_id)

    @property
    def job_href(self) -> str:
        return job_path(self.record.job_id)

    @property
    def worker_href(self) -> str:
        return with_query("/ui/tasks", worker_id=self.record.worker_id)

    @property
    def started(self) -> Moment | None:
        return moment(self.record.started_at, self.now)

    @property
    def duration(self) -> Duration | None:
        node = self.record
        if node.status is NodeStatus.SKIPPED:
            return None
        return duration(node.started_at, node.finished_at if node.status in TERMINAL_NODE else None, self.now)

    @property
    def percent(self) -> int | None:
        """Return how far a fan-out is, or what its handler reported."""
        node = self.record
        if node.children is not None and node.children.total:
            return node.children.finished * 100 // node.children.total
        if node.progress is not None and node.progress.total and node.status not in TERMINAL_NODE:
            return max(0, min(100, int(node.progress.current * 100 / node.progress.total)))
        return None

    @property
    def detail(self) -> str:
        node = self.record
        if node.skip_reason is not None:
            return node.skip_reason.value.replace("_", " ")
        if node.is_reused:
            return "result of another job"
        if node.message:
            return node.message
        if node.progress is not None and node.progress.message and node.status not in TERMINAL_NODE:
            return node.progress.message
        if node.status is NodeStatus.READY and node.wake_at is not None:
            next_attempt = moment(node.wake_at, self.now)
            return "" if next_attempt is None else f"next attempt {next_attempt.relative}"
        return f"took branch {node.branch}" if node.branch else ""

    @property
    def error(self) -> str:
        return "" if self.record.error is None else format_error(self.record.error)

    @property
    def children(self) -> tuple[tuple[str, str], ...]:
        """Return the children of a fan-out by status, those that exist."""
        counts = {} if self.record.children is None else self.record.children.counts
        return tuple((status.value, f"{counts[status]:,}") for status in NodeStatus if counts.get(status))

    @property
    def has_children(self) -> bool:
        return self.record.children is not None and self.record.children.total > 0


def node_path(job_id: str, node_id: str, *parts: str) -> str:
    """Return the path of a node's page, or of what is below it."""
    return job_path(job_id, "nodes", node_id, *parts)
