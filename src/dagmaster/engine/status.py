"""The statuses of jobs, nodes and attempts. The allowed transitions are in `transitions`."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class JobStatus(StrEnum):
    """The status of a job. WAITING is never stored: see `displayed_status`."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class NodeStatus(StrEnum):
    """The status of a node. CLAIMED is never stored: see `in_flight_status`."""

    PENDING = "PENDING"
    READY = "READY"
    DISPATCHED = "DISPATCHED"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class AttemptStatus(StrEnum):
    """The status of a finished attempt."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    LOST = "LOST"
    RELEASED = "RELEASED"


class Isolation(IntEnum):
    """How the next attempt of a node is executed; `isolation_after` decides.

    If a worker dies with several tasks, one of them may be the cause.
    SHARED: next to other tasks. PROCESS: in a separate child process, next to other tasks.
    EXCLUSIVE: in a separate child process, and as the only task of its worker.
    """

    SHARED = 0
    PROCESS = 1
    EXCLUSIVE = 2


class SkipReason(StrEnum):
    """Why a node was skipped."""

    NOT_TAKEN = "not_taken"
    UPSTREAM_FAILED = "upstream_failed"
    JOB_FAILED = "job_failed"
    SUPERSEDED = "superseded"


EXCLUSIVE_AFTER = 3
"""After so many losses next to other tasks, a task runs alone. Fewer may be machines that were taken away."""


# Asked twice a task. CPython 3.11 finds a member of an enum in five times the time of a global name.
_SHARED = Isolation.SHARED


def isolation_after(shared_losses: int) -> Isolation:
    """Return how a node runs after its worker died so often with several tasks."""
    if shared_losses == 0:
        return _SHARED
    return Isolation.PROCESS if shared_losses < EXCLUSIVE_AFTER else Isolation.EXCLUSIVE


TERMINAL_NODE = frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.SKIPPED, NodeStatus.CANCELLED})
NOT_STARTED_NODE = frozenset({NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING})
NOT_BEGUN_MEMBER = frozenset({NodeStatus.PENDING, NodeStatus.READY, NodeStatus.SKIPPED})
"""The statuses of members with which a group has not begun. It is RUNNING once a member has another one."""
TERMINAL_JOB = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})


def displayed_status(status: JobStatus, *, waiting: int, active: int) -> JobStatus:
    """Return WAITING for a RUNNING job whose open nodes are only approvals, waits, signals or child jobs.

    `waiting` counts its WAITING nodes, `active` those that are READY, DISPATCHED or RUNNING, without
    fan-outs. The SQL of the read store asks the same, and one conformance suite compares both.
    """
    return JobStatus.WAITING if status is JobStatus.RUNNING and waiting and not active else status


def in_flight_status(*, is_claimed: bool, has_started: bool) -> NodeStatus:
    """Return how a DISPATCHED node is displayed: CLAIMED, or RUNNING once its handler has started.

    The SQL of the read store asks the same, and one conformance suite compares both.
    """
    if has_started:
        return NodeStatus.RUNNING
    return NodeStatus.CLAIMED if is_claimed else NodeStatus.DISPATCHED
