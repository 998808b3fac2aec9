"""The state machine: which move takes a job or a node from one status to another.

The engine, the store's guards, the legend of the pages and the docs all read these two tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dagmaster.engine.status import JobStatus, NodeStatus


class Move(StrEnum):
    """The moves of a node or a job."""

    READY = "ready"
    DISPATCH = "dispatch"
    START = "start"
    WAIT = "wait"
    REQUEUE = "requeue"
    COMPLETE = "complete"
    FAIL = "fail"
    SKIP = "skip"
    CANCEL = "cancel"
    REOPEN = "reopen"
    SUPERSEDE = "supersede"


NODE_MOVES: Final[dict[NodeStatus, dict[Move, NodeStatus]]] = {
    NodeStatus.PENDING: {
        Move.READY: NodeStatus.READY,
        Move.FAIL: NodeStatus.FAILED,
        Move.SKIP: NodeStatus.SKIPPED,
        Move.CANCEL: NodeStatus.CANCELLED,
    },
    NodeStatus.READY: {
        Move.DISPATCH: NodeStatus.DISPATCHED,
        Move.START: NodeStatus.RUNNING,
        Move.WAIT: NodeStatus.WAITING,
        Move.COMPLETE: NodeStatus.COMPLETED,
        Move.FAIL: NodeStatus.FAILED,
        Move.SKIP: NodeStatus.SKIPPED,
        Move.CANCEL: NodeStatus.CANCELLED,
    },
    NodeStatus.DISPATCHED: {
        Move.START: NodeStatus.RUNNING,
        Move.REQUEUE: NodeStatus.READY,
        Move.COMPLETE: NodeStatus.COMPLETED,
        Move.FAIL: NodeStatus.FAILED,
        Move.CANCEL: NodeStatus.CANCELLED,
    },
    NodeStatus.RUNNING: {
        Move.REQUEUE: NodeStatus.READY,
        Move.COMPLETE: NodeStatus.COMPLETED,
        Move.FAIL: NodeStatus.FAILED,
        Move.CANCEL: NodeStatus.CANCELLED,
    },
    NodeStatus.WAITING: {
        Move.COMPLETE: NodeStatus.COMPLETED,
        Move.FAIL: NodeStatus.FAILED,
        Move.SKIP: NodeStatus.SKIPPED,
        Move.CANCEL: NodeStatus.CANCELLED,
    },
    # Terminal within a run. Only a new run reopens them, or supersedes them together with the list they came
    # from.
    NodeStatus.COMPLETED: {Move.REOPEN: NodeStatus.PENDING, Move.SUPERSEDE: NodeStatus.SKIPPED},
    NodeStatus.FAILED: {Move.REOPEN: NodeStatus.PENDING, Move.SUPERSEDE: NodeStatus.SKIPPED},
    NodeStatus.SKIPPED: {Move.REOPEN: NodeStatus.PENDING, Move.SUPERSEDE: NodeStatus.SKIPPED},
    NodeStatus.CANCELLED: {Move.REOPEN: NodeStatus.PENDING, Move.SUPERSEDE: NodeStatus.SKIPPED},
}

JOB_MOVES: Final[dict[JobStatus, dict[Move, JobStatus]]] = {
    JobStatus.PENDING: {Move.START: JobStatus.RUNNING, Move.CANCEL: JobStatus.CANCELLED},
    JobStatus.RUNNING: {
        Move.COMPLETE: JobStatus.COMPLETED,
        Move.FAIL: JobStatus.FAILED,
        Move.CANCEL: JobStatus.CANCELLED,
    },
    JobStatus.COMPLETED: {Move.REOPEN: JobStatus.RUNNING},
    JobStatus.FAILED: {Move.REOPEN: JobStatus.RUNNING},
    JobStatus.CANCELLED: {Move.REOPEN: JobStatus.RUNNING},
}


def mermaid(moves: dict[NodeStatus, dict[Move, NodeStatus]] | dict[JobStatus, dict[Move, JobStatus]]) -> str:
    """Draw one of the tables as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> PENDING"]
    for source, steps in moves.items():
        lines += [f"    {source} --> {target}: {move}" for move, target in steps.items()]
    return "\n".join(lines) + "\n"
