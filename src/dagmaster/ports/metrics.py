"""The port that reads the metrics of finished jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.records.metrics import (
        DurationBin,
        FailureRecord,
        MetricWindow,
        NodeMetricsRecord,
        PeriodRecord,
        ThroughputBucketRecord,
        WorkflowMetricsRecord,
    )

MAX_EXACT: Final = 100_000
"""Percentiles of more jobs are read from a histogram, whose values are at most 1 % (or 1 ms) off."""
MAX_EXACT_NODES: Final = 20_000
"""The same for executions of nodes: they are found through their jobs, which takes five times as long."""
PERIOD_SECONDS: Final = 6 * 3600.0
"""Jobs are counted in periods of this length, from midnight (UTC) on."""


class MetricReader(Protocol):
    """Reads metrics."""

    async def window(self, seconds: float, step_seconds: float) -> MetricWindow:
        """Return the last so many seconds, from the start of a step on. Steps are counted from the epoch."""

    async def workflows(
        self, since: float, *, workflow_id: str | None = None
    ) -> Sequence[WorkflowMetricsRecord]:
        """Return the metrics of every workflow with finished jobs, most jobs first; or of one."""

    async def nodes(self, workflow_id: str, since: float) -> Sequence[NodeMetricsRecord]:
        """Return the metrics of every node of a workflow, by id."""

    async def history(self, workflow_id: str, since: float) -> Sequence[PeriodRecord]:
        """Return the periods in which jobs of a workflow finished, oldest first."""

    async def node_durations(self, since: float, *, workflow_id: str | None = None) -> Sequence[DurationBin]:
        """Return how long nodes took that completed or failed, of all workflows or of one, shortest first."""

    async def failures(
        self, since: float, *, workflow_id: str | None = None, per_workflow: int | None = None, limit: int
    ) -> Sequence[FailureRecord]:
        """Return the most frequent failures of all workflows or of one; `per_workflow`: how many of each."""

    async def throughput(
        self, since: float, until: float, step_seconds: float
    ) -> Sequence[ThroughputBucketRecord]:
        """Return a bucket for each step, oldest first, also for those without jobs."""
