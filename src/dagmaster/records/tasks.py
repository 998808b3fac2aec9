"""Tasks in flight, and attempts: tasks that may have ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagmaster.engine.status import AttemptStatus, Isolation, NodeStatus
from dagmaster.json_types import JsonObject
from dagmaster.records.nodes import ProgressRecord
from dagmaster.records.record import SECRETS, Timestamp, shown
from dagmaster.records.redacted import SecretRecord
from dagmaster.text_format import seconds_between


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKeyRecord(SecretRecord):
    """A task, and the attempt that it is."""

    job_id: str
    node_id: str
    attempt: int
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord(TaskKeyRecord):
    """The way of a task to its handler."""

    queue: str
    worker_id: str | None
    dispatched_at: Timestamp
    claimed_at: Timestamp | None
    started_at: Timestamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord(
    ClaimRecord,
    order={
        "task_id": "",
        "priority": "queue",
        "handler": "priority",
        "isolation": "handler",
        "status": "isolation",
        "worker_id": "dispatched_at",
    },
):
    """A task that waits in a queue or that a worker has claimed. `status`: that of its node.

    `isolation`: `exclusive` if it has to be the only task of its worker, since workers died that ran it next
    to others.
    """

    priority: int
    handler: str
    isolation: Isolation
    status: NodeStatus
    stop_requested_at: Timestamp | None
    progress: ProgressRecord | None = field(metadata=SECRETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord(ClaimRecord, order={"status": "task_id", "worker": "worker_id"}):
    """One attempt at a node. `worker`: host and process id of its worker. One in flight has not finished.

    `status`: that of its node while it is in flight. `started_at`: when its handler started; null if it did
    not, or if a worker of an older version ran it. `duration_seconds` counts from there.
    """

    status: AttemptStatus | NodeStatus
    worker: str | None
    finished_at: Timestamp | None = None
    progress: ProgressRecord | None = field(default=None, metadata=SECRETS)
    error: JsonObject | None = field(default=None, metadata=SECRETS)
    metrics: JsonObject | None = field(default=None, metadata=SECRETS)

    @property
    @shown(after="finished_at")
    def duration_seconds(self) -> float | None:
        if self.started_at is None or self.finished_at is None:
            return None
        return seconds_between(self.started_at, self.finished_at)
