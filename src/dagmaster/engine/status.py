"""The words for where a job and a node stand. What may follow what is in `transitions`."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """Where a job stands. WAITING is never stored: a RUNNING job is shown so while only outsiders can move it."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class NodeStatus(StrEnum):
    """Where a node stands."""

    PENDING = "PENDING"
    READY = "READY"
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class AttemptStatus(StrEnum):
    """How an attempt ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    LOST = "LOST"
    RELEASED = "RELEASED"


class SkipReason(StrEnum):
    """Why a node was skipped."""

    NOT_TAKEN = "not_taken"
    UPSTREAM_FAILED = "upstream_failed"
    JOB_FAILED = "job_failed"
    SUPERSEDED = "superseded"


TERMINAL_NODE = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.SKIPPED, NodeStatus.CANCELLED})
TERMINAL_JOB = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})


def displayed_status(status: JobStatus, *, waiting: int, active: int) -> JobStatus:
    """Return WAITING for a RUNNING job of which only approvals, waits, signals or child jobs are open.

    `waiting` counts its WAITING nodes, `active` those that are READY, DISPATCHED or RUNNING, without fan-outs. The SQL
    of the read store asks the same, and one conformance suite compares both.
    """
    return JobStatus.WAITING if status is JobStatus.RUNNING and waiting and not active else status
