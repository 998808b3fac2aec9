"""The view of a job's timeline: every attempt, in columns."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.engine.status import JobStatus
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView(Record):
    """When the attempts of a job were queued, started and finished: columns with a row for each attempt.

    Rows are ordered by node and attempt. A node that has no task, as an approval, has one row with attempt 0.
    Times are seconds after `origin_at`; one that is null is not known, or not reached. `workers` has numbers
    of `worker_names`. `critical_path`: the nodes that decided how long the job took, in order; only on the
    first page. `next_cursor` is null on the last page.
    """

    job_id: str
    status: JobStatus
    origin_at: Timestamp
    now_seconds: float
    finished_seconds: float | None
    worker_names: tuple[str, ...]
    node_ids: tuple[str, ...]
    attempts: tuple[int, ...]
    statuses: tuple[str, ...]
    workers: tuple[int | None, ...]
    queued: tuple[float | None, ...]
    started: tuple[float | None, ...]
    finished: tuple[float | None, ...]
    critical_path: tuple[str, ...]
    next_cursor: str | None
