"""Records of metrics: what finished jobs show. A job counts in the period in which it finished.

Durations are in seconds, of what completed: from the start of the run to its end. `percentiles` says how
exact p50 and p95 are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypedDict

from dagmaster.records.record import INTERNAL, SECRETS, Record, Timestamp, shown
from dagmaster.records.redacted import SecretRecord


class Percentiles(StrEnum):
    """EXACT: from every duration. HISTOGRAM: at most 1 % (or 1 ms) from the exact value."""

    EXACT = "exact"
    HISTOGRAM = "histogram"


class MetricWindow(NamedTuple):
    """A period of time. `pending_jobs`: finished ones that are not counted yet, up to `MAX_EXACT`."""

    since: float
    until: float
    pending_jobs: int


class Durations(TypedDict, total=False):
    """The fields of a record that are about durations; None if nothing completed."""

    avg_duration: float | None
    p50_duration: float | None
    p95_duration: float | None
    percentiles: Percentiles


class DurationBin(NamedTuple):
    """Finished executions of nodes that took about as long; `seconds` is at most 1 % (or 1 ms) off."""

    seconds: float
    completed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord(SecretRecord):
    """Failed jobs with the same message, in which numbers, ids, paths and URIs are replaced.

    `node_id` is null if no node caused the failure. `job_id`: the last of these jobs.
    """

    workflow_id: str
    node_id: str | None
    message: str = field(metadata=SECRETS)
    count: int
    job_id: str
    last_at: Timestamp
    content_hash: str | None = field(default=None, metadata=INTERNAL)
    """Of the last job, unless it was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesRecord(Record):
    """What finished, by its outcome. `avg_duration`: seconds of what completed."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    avg_duration: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRecord(OutcomesRecord):
    """What finished, and how long it took, in seconds."""

    p50_duration: float | None = None
    p95_duration: float | None = None
    percentiles: Percentiles = Percentiles.EXACT


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowMetricsRecord(MetricsRecord, order={"workflow_id": ""}):
    """The jobs of a workflow that finished. `success_rate`: completed of completed and failed, from 0 to 1.

    A job that was resumed counts each time it finished. `avg_duration`, `p50_duration` and `p95_duration`:
    seconds.
    """

    workflow_id: str
    common_failures: tuple[FailureRecord, ...] = ()

    @property
    @shown(after="workflow_id")
    def total_jobs(self) -> int:
        return self.completed + self.failed + self.cancelled

    @property
    @shown(after="cancelled")
    def success_rate(self) -> float | None:
        """Return the part of completed jobs; None if no job completed or failed."""
        return _success_rate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetricsRecord(
    MetricsRecord, order={"node_id": "", "skipped": "failed", "total_retries": "cancelled"}
):
    """The executions of a node in jobs that finished. Children of a fan-out count for the fan-out.

    `success_rate`: completed of completed and failed, from 0 to 1. `avg_duration`, `p50_duration` and
    `p95_duration`: seconds of the last attempt.
    """

    node_id: str
    skipped: int
    total_retries: int

    @property
    @shown(after="node_id")
    def total_executions(self) -> int:
        return self.completed + self.failed + self.skipped + self.cancelled

    @property
    @shown(after="total_retries")
    def success_rate(self) -> float | None:
        """Return the part of completed executions; None if none completed or failed."""
        return _success_rate(self)


def _success_rate(outcomes: OutcomesRecord) -> float | None:
    ended = outcomes.completed + outcomes.failed
    return outcomes.completed / ended if ended else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodRecord(OutcomesRecord, order={"at": ""}):
    """The jobs of a workflow that finished in `period_seconds` from `at` on; seconds of completed ones."""

    at: Timestamp
    p50_duration: float | None = None
    p95_duration: float | None = None
    percentiles: Percentiles = field(default=Percentiles.HISTOGRAM, metadata=INTERNAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputBucketRecord(OutcomesRecord, order={"at": "", "submitted": "at"}):
    """The jobs of a period: submitted in it, finished in it.

    `avg_duration`: seconds of the completed ones.
    """

    at: Timestamp
    submitted: int
