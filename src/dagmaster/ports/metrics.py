"""The metrics of finished jobs as plain records, and the port that reads them.

A job counts in the period in which it finished. Durations are of what completed: from the start of the run to
its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_EXACT: Final = 100_000
"""Percentiles of more jobs are read from a histogram, whose values are at most 1 % (or 1 ms) off."""
MAX_EXACT_NODES: Final = 20_000
"""The same for executions of nodes: they are found through their jobs, which takes five times as long."""
PERIOD_SECONDS: Final = 6 * 3600.0
"""Jobs are counted in periods of this length, from midnight (UTC) on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricWindow:
    """A period of time. `pending`: jobs that finished and are not counted yet, up to `MAX_EXACT`."""

    since: float
    until: float
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationMetrics:
    """Durations in seconds; None if there are none. `is_exact`: the percentiles are not from a histogram."""

    average: float | None = None
    p50: float | None = None
    p95: float | None = None
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowMetrics:
    """The finished jobs of a workflow."""

    workflow_id: str
    completed: int
    failed: int
    cancelled: int
    durations: DurationMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetrics:
    """The finished executions of a node. Children of a fan-out count for the fan-out."""

    node_id: str
    completed: int
    failed: int
    skipped: int
    cancelled: int
    retries: int
    durations: DurationMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failed jobs with the same message. `node_id`: '' if no node caused the failure.

    `job_id`: the last of them, and its `content_hash`, unless it was deleted.
    """

    workflow_id: str
    node_id: str
    message: str
    count: int
    job_id: str
    last_at: float
    content_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputBucket:
    """The jobs of a period: submitted in it, finished in it. `average`: seconds of the completed ones."""

    at: float
    submitted: int
    completed: int
    failed: int
    cancelled: int
    average: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodMetrics:
    """The finished jobs of a workflow in a period of `PERIOD_SECONDS`.

    Percentiles are read from the histogram.
    """

    at: float
    completed: int
    failed: int
    cancelled: int
    durations: DurationMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationBin:
    """Finished executions of nodes that took about as long; `seconds` is at most 1 % (or 1 ms) off."""

    seconds: float
    completed: int
    failed: int


class MetricReader(Protocol):
    """Reads metrics."""

    async def window(self, seconds: float, step_seconds: float) -> MetricWindow:
        """Return the last so many seconds, from the start of a step on. Steps are counted from the epoch."""

    async def workflows(self, since: float, *, workflow_id: str | None = None) -> Sequence[WorkflowMetrics]:
        """Return the metrics of every workflow with finished jobs, most jobs first; or of one."""

    async def nodes(self, workflow_id: str, since: float) -> Sequence[NodeMetrics]:
        """Return the metrics of every node of a workflow, by id."""

    async def history(self, workflow_id: str, since: float) -> Sequence[PeriodMetrics]:
        """Return the periods in which jobs of a workflow finished, oldest first."""

    async def node_durations(self, since: float, *, workflow_id: str | None = None) -> Sequence[DurationBin]:
        """Return how long nodes took that completed or failed, of all workflows or of one, shortest first."""

    async def failures(
        self, since: float, *, workflow_id: str | None = None, per_workflow: int | None = None, limit: int
    ) -> Sequence[FailureGroup]:
        """Return the most frequent failures, of all workflows or of one; `per_workflow`: that many of each."""

    async def throughput(self, since: float, until: float, step_seconds: float) -> Sequence[ThroughputBucket]:
        """Return a bucket for each step, oldest first, also for those without jobs."""
