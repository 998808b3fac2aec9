"""Views of nodes, their attempts and their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dagmaster.engine.graph import Kind
from dagmaster.engine.status import TERMINAL_NODE, AttemptStatus, Isolation, JobStatus, NodeStatus, SkipReason
from dagmaster.json_types import JsonObject, JsonValue
from dagmaster.records.record import READ_AT, Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView(Record):
    """The progress that a handler reported. Without a total, only the message says how far it is."""

    current: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildrenView(Record):
    """The children of a fan-out by status. Those that are not created yet count as PENDING."""

    total: int
    counts: Mapping[str, int]

    def count(self, *statuses: NodeStatus) -> int:
        """Return how many children have one of these statuses."""
        return sum(self.counts.get(status, 0) for status in statuses)

    @property
    def finished(self) -> int:
        """Return how many children have ended."""
        return self.count(*TERMINAL_NODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView(Record):
    """A node, or a child of a fan-out.

    `action`: what it does, in a few words; unknown (None) in lists across jobs.

    `status`: DISPATCHED while its task is in a queue, CLAIMED when a worker has claimed the task, RUNNING when the
    handler has been running for a moment. `started_at`: when the handler started. `attempt`: the number of the last
    attempt. `lost_attempts`: how often its worker died while it ran nothing else. `shared_losses`: how often beside
    other tasks, which is not charged; because of these, the last attempt runs with this `isolation`. `message` is that
    of an approval that waits. `is_reused`: its result comes from another job. `is_cancelling`: it was asked to
    stop, and has not ended. A group is RUNNING from the start of its first member on, until all of them have ended;
    lists across nodes show the stored status, PENDING until then.
    """

    job_id: str
    node_id: str
    kind: Kind | None
    action: str | None
    status: NodeStatus
    skip_reason: SkipReason | None
    branch: str | None
    attempt: int
    failed_attempts: int
    lost_attempts: int
    shared_losses: int
    isolation: Isolation
    is_reused: bool
    is_cancelling: bool
    parent_node_id: str | None
    fan_out_index: int | None
    started_at: Timestamp | None
    finished_at: Timestamp | None
    updated_at: Timestamp | None
    wake_at: Timestamp | None
    queue: str | None
    worker_id: str | None
    progress: ProgressView | None
    message: str | None
    children: ChildrenView | None
    child_job_id: str | None
    child_job_status: JobStatus | None
    error: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView(Record):
    """One attempt at a node. `worker`: host and process id of its worker. One in flight has not finished.

    `status`: that of its node while it is in flight. `started_at`: when its handler started; null if it did not, or if
    a worker of an older version ran it. `duration_seconds` counts from there.
    """

    job_id: str
    node_id: str
    attempt: int
    task_id: str
    status: AttemptStatus | NodeStatus
    queue: str
    worker_id: str | None
    worker: str | None
    dispatched_at: Timestamp
    claimed_at: Timestamp | None
    started_at: Timestamp | None
    finished_at: Timestamp | None
    duration_seconds: float | None
    progress: ProgressView | None
    error: JsonObject | None
    metrics: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetailView(NodeView):
    """A node with its attempts and values, without secrets.

    `attempts`: the last 100, oldest first. `params` are known while its task is in flight. `has_item`: it is a child of
    a fan-out whose item is known.
    """

    workflow_id: str
    version: int
    handler_version: str | None
    attempts: tuple[AttemptView, ...]
    has_item: bool
    item: JsonValue
    params: JsonValue
    output: JsonValue
    read_at: Timestamp = field(metadata=READ_AT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView(Record):
    """A task that waits in a queue or that a worker has claimed. `status`: that of its node.

    `isolation`: `exclusive` if it has to be the only task of its worker, since workers died that ran it beside others.
    """

    task_id: str
    job_id: str
    node_id: str
    attempt: int
    queue: str
    priority: int
    handler: str
    isolation: Isolation
    status: NodeStatus
    dispatched_at: Timestamp
    worker_id: str | None
    claimed_at: Timestamp | None
    started_at: Timestamp | None
    stop_requested_at: Timestamp | None
    progress: ProgressView | None
