"""Metrics in memory: one sample for each counted job. They have the meaning of the roll-ups on PostgreSQL."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.host.snowflakes import time_of
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.metrics import MAX_EXACT, PERIOD_SECONDS
from dagmaster.records.metrics import (
    DurationBin,
    Durations,
    FailureRecord,
    MetricWindow,
    NodeMetricsRecord,
    Percentiles,
    PeriodRecord,
    ThroughputBucketRecord,
    WorkflowMetricsRecord,
)
from dagmaster.store.metric_rules import bin_seconds, duration_bin, failure_message, top_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dagmaster.store.memory.database import MemoryDatabase, StoredJob


@dataclass(frozen=True, slots=True)
class NodeSample:
    """A finished node of a counted job. `seconds` is None if it never started."""

    node_id: str
    status: NodeStatus
    seconds: float | None
    retries: int


@dataclass(frozen=True, slots=True)
class JobSample:
    """A counted job, as it was when it finished."""

    job_id: str
    workflow_id: str
    status: JobStatus
    finished_at: float
    seconds: float | None
    nodes: tuple[NodeSample, ...]
    failure: tuple[str, str]

    @property
    def period(self) -> float:
        return self.finished_at // PERIOD_SECONDS * PERIOD_SECONDS


def roll_up(database: MemoryDatabase, limit: int) -> int:
    """Count finished jobs that are pending; return how many were taken."""
    taken = list(islice(database.metric_pending, limit))
    for job_id, run in taken:
        del database.metric_pending[job_id, run]
        job = database.jobs[job_id]
        if job.finished_at is not None and job.row.run == run and not job.new.is_hidden:
            database.metric_samples.append(_sample(job, job.finished_at))
    return len(taken)


def prune(database: MemoryDatabase, retention_seconds: float) -> int:
    """Forget the samples of periods that ended longer ago; return how many."""
    first = (database.clock.now() - retention_seconds) // PERIOD_SECONDS * PERIOD_SECONDS
    kept = [sample for sample in database.metric_samples if sample.period >= first]
    count = len(database.metric_samples) - len(kept)
    database.metric_samples[:] = kept
    return count


def _sample(job: StoredJob, finished_at: float) -> JobSample:
    started_at = job.started_at
    if job.row.run > 1:
        started_at = max(event.at for event in job.events if event.type == EventType.JOB_RESUMED)
    error: dict[str, Any] = job.error or {}
    message = (error.get("cause") or {}).get("message") or error.get("message") or ""
    return JobSample(
        job.new.id,
        job.new.workflow_id,
        job.row.status,
        finished_at,
        None if started_at is None else max(0.0, finished_at - started_at),
        tuple(_node_samples(job, started_at or 0.0)),
        (top_node(error.get("node") or ""), failure_message(message)),
    )


def _node_samples(job: StoredJob, run_started_at: float) -> Iterator[NodeSample]:
    """Yield the nodes that finished in the last run of a job, without fan-outs: their children count."""
    for node in job.nodes.values():
        if node.row.finished_seq is None or node.row.total is not None or node.finished_at is None:
            continue
        if job.row.run == 1 or node.finished_at >= run_started_at:
            seconds = None if node.started_at is None else max(0.0, node.finished_at - node.started_at)
            yield NodeSample(top_node(node.row.id), node.row.status, seconds, max(0, node.row.attempt - 1))


class MemoryMetricReader:
    """Metrics in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def window(self, seconds: float, step_seconds: float) -> MetricWindow:
        now = self._database.clock.now()
        since = (now - seconds) // step_seconds * step_seconds
        return MetricWindow(since, now, min(len(self._database.metric_pending), MAX_EXACT))

    async def workflows(
        self, since: float, *, workflow_id: str | None = None
    ) -> Sequence[WorkflowMetricsRecord]:
        samples = self._samples(since, workflow_id)
        metrics = []
        for name in {sample.workflow_id for sample in samples}:
            of_workflow = [sample for sample in samples if sample.workflow_id == name]
            count = Counter(sample.status for sample in of_workflow)
            completed = [sample for sample in of_workflow if sample.status is JobStatus.COMPLETED]
            seconds = (sample.seconds for sample in completed)
            metrics.append(
                WorkflowMetricsRecord(
                    workflow_id=name,
                    completed=count[JobStatus.COMPLETED],
                    failed=count[JobStatus.FAILED],
                    cancelled=count[JobStatus.CANCELLED],
                    **_durations(seconds, is_exact=self._are_current(completed)),
                )
            )
        return sorted(metrics, key=lambda one: (-one.completed - one.failed - one.cancelled, one.workflow_id))

    async def nodes(self, workflow_id: str, since: float) -> Sequence[NodeMetricsRecord]:
        samples = self._samples(since, workflow_id)
        is_exact = self._are_current(samples)
        nodes = [node for sample in samples for node in sample.nodes]
        metrics = []
        for node_id in sorted({node.node_id for node in nodes}):
            of_node = [node for node in nodes if node.node_id == node_id]
            count = Counter(node.status for node in of_node)
            completed = [node for node in of_node if node.status is NodeStatus.COMPLETED]
            metrics.append(
                NodeMetricsRecord(
                    node_id=node_id,
                    completed=count[NodeStatus.COMPLETED],
                    failed=count[NodeStatus.FAILED],
                    skipped=count[NodeStatus.SKIPPED],
                    cancelled=count[NodeStatus.CANCELLED],
                    total_retries=sum(node.retries for node in of_node),
                    **_durations((node.seconds for node in completed), is_exact=is_exact),
                )
            )
        return metrics

    async def history(self, workflow_id: str, since: float) -> Sequence[PeriodRecord]:
        samples = self._samples(since, workflow_id)
        periods = []
        for at in sorted({sample.period for sample in samples}):
            of_period = [sample for sample in samples if sample.period == at]
            count = Counter(sample.status for sample in of_period)
            completed = (sample.seconds for sample in of_period if sample.status is JobStatus.COMPLETED)
            periods.append(
                PeriodRecord(
                    at=at,
                    completed=count[JobStatus.COMPLETED],
                    failed=count[JobStatus.FAILED],
                    cancelled=count[JobStatus.CANCELLED],
                    **_durations(completed, is_exact=False),
                )
            )
        return periods

    async def node_durations(self, since: float, *, workflow_id: str | None = None) -> Sequence[DurationBin]:
        counts = Counter(
            (duration_bin(node.seconds), node.status)
            for sample in self._samples(since, workflow_id)
            for node in sample.nodes
            if node.seconds is not None and node.status in (NodeStatus.COMPLETED, NodeStatus.FAILED)
        )
        return [
            DurationBin(
                bin_seconds(number), counts[number, NodeStatus.COMPLETED], counts[number, NodeStatus.FAILED]
            )
            for number in sorted({number for number, _ in counts})
        ]

    async def failures(
        self, since: float, *, workflow_id: str | None = None, per_workflow: int | None = None, limit: int
    ) -> Sequence[FailureRecord]:
        groups: dict[tuple[str, str, str], FailureRecord] = {}
        for sample in self._samples(since, workflow_id):
            if sample.status is not JobStatus.FAILED:
                continue
            key = (sample.workflow_id, *sample.failure)
            group = FailureRecord(
                workflow_id=key[0], node_id=key[1] or None, message=key[2], count=1, job_id=sample.job_id,
                last_at=sample.finished_at, content_hash=self._database.jobs[sample.job_id].new.content_hash,
            )  # fmt: skip
            previous = groups.get(key)
            if previous is not None:
                newest = max(previous, group, key=lambda one: (one.last_at, int(one.job_id)))
                group = replace(newest, count=previous.count + 1)
            groups[key] = group
        ranked = sorted(
            groups.values(), key=lambda one: (-one.count, one.workflow_id, one.node_id or "", one.message)
        )
        if per_workflow is not None:
            rank: Counter[str] = Counter()
            shown = []
            for group in ranked:
                rank[group.workflow_id] += 1
                if rank[group.workflow_id] <= per_workflow:
                    shown.append(group)
            ranked = shown
        return ranked[:limit]

    async def throughput(
        self, since: float, until: float, step_seconds: float
    ) -> Sequence[ThroughputBucketRecord]:
        submitted = Counter(
            time_of(job_id) // step_seconds
            for job_id, job in self._database.jobs.items()
            if since <= time_of(job_id) < until and not job.new.is_hidden
        )
        samples = [sample for sample in self._database.metric_samples if since <= sample.finished_at < until]
        buckets = []
        for step in range(int(since // step_seconds), math.ceil(until / step_seconds)):
            of_step = [sample for sample in samples if sample.finished_at // step_seconds == step]
            count = Counter(sample.status for sample in of_step)
            completed = (sample.seconds for sample in of_step if sample.status is JobStatus.COMPLETED)
            buckets.append(
                ThroughputBucketRecord(
                    at=step * step_seconds,
                    submitted=submitted[step],
                    completed=count[JobStatus.COMPLETED],
                    failed=count[JobStatus.FAILED],
                    cancelled=count[JobStatus.CANCELLED],
                    avg_duration=_durations(completed, is_exact=True).get("avg_duration"),
                )
            )
        return buckets

    def _samples(self, since: float, workflow_id: str | None = None) -> list[JobSample]:
        samples = self._database.metric_samples
        return [one for one in samples if one.period >= since and workflow_id in (None, one.workflow_id)]

    def _are_current(self, samples: Sequence[JobSample]) -> bool:
        """Return whether the rows of jobs still show what was counted: none was resumed since."""
        return all(self._database.jobs[sample.job_id].finished_at == sample.finished_at for sample in samples)


def _durations(durations: Iterable[float | None], *, is_exact: bool) -> Durations:
    ordered = sorted(seconds for seconds in durations if seconds is not None)
    if not ordered:
        return {}
    p50, p95 = (ordered[math.ceil(part * len(ordered)) - 1] for part in (0.5, 0.95))
    if not is_exact:
        p50, p95 = bin_seconds(duration_bin(p50)), bin_seconds(duration_bin(p95))
    return {
        "avg_duration": sum(ordered) / len(ordered),
        "p50_duration": p50,
        "p95_duration": p95,
        "percentiles": Percentiles.EXACT if is_exact else Percentiles.HISTOGRAM,
    }
