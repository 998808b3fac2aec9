"""Nodes, and what surrounds them: progress, children, values, waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.engine.graph import Kind
from dagmaster.engine.status import (
    TERMINAL_NODE,
    Isolation,
    JobStatus,
    NodeStatus,
    SkipReason,
    isolation_after,
)
from dagmaster.json_types import JsonObject
from dagmaster.records.record import INTERNAL, SECRETS, Record, Timestamp, derived, shown
from dagmaster.records.redacted import SecretRecord

if TYPE_CHECKING:
    from dagmaster.records.page import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCountsRecord(Record):
    """Nodes by what people ask: `running` includes queued ones, `pending` waiting ones, and so on."""

    total: int
    completed: int
    running: int
    pending: int
    failed: int
    skipped: int
    cancelled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord(SecretRecord):
    """The progress that a handler reported. Without a total, only the message says how far it is."""

    current: float
    total: float | None
    message: str = field(metadata=SECRETS)


def progress_record(progress: Mapping[str, Any] | None) -> ProgressRecord | None:
    """Return the progress that is stored of a task; None if its handler reported none."""
    # A task that only saved checkpoints has a list of those.
    if progress is None or "current" not in progress:
        return None
    return ProgressRecord(
        current=progress.get("current") or 0.0,
        total=progress.get("total"),
        message=str(progress.get("message") or ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildrenRecord(Record):
    """The children of a fan-out by status. Those that are not created yet count as PENDING."""

    total: int
    counts: Mapping[str, int]

    def count(self, *statuses: NodeStatus) -> int:
        return sum(self.counts.get(status, 0) for status in statuses)

    @property
    def finished(self) -> int:
        return self.count(*TERMINAL_NODE)


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """How many children of a fan-out have which status, and when the first of them started."""

    counts: Mapping[NodeStatus, int] = field(default_factory=dict)
    first_started_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatusRecord(SecretRecord):
    """A node, and how far it is. `attempt`: the number of the last attempt."""

    node_id: str
    status: NodeStatus
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutcomeRecord(NodeStatusRecord):
    """A node, and what came of it."""

    branch: str | None = None
    skip_reason: SkipReason | None = None
    error: JsonObject | None = field(default=None, metadata=SECRETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord(
    NodeOutcomeRecord,
    order={
        "job_id": "",
        "status": "action",
        "skip_reason": "status",
        "branch": "skip_reason",
        "attempt": "branch",
        "error": "child_job_status",
    },
):
    """A node, or a child of a fan-out.

    `action`: what it does, in a few words; unknown (None) in lists across jobs.

    `status`: DISPATCHED while its task is in a queue, CLAIMED when a worker has claimed the task, RUNNING
    when the handler has been running for a moment. `started_at`: when the handler started. `attempt`: the
    number of the last attempt. `lost_attempts`: how often its worker died while it ran nothing else.
    `shared_losses`: how often next to other tasks, which is not charged; because of these, the last attempt
    runs with this `isolation`. `message` is that of an approval that waits. `is_reused`: its result comes
    from another job. `is_cancelling`: it was asked to stop, and has not ended. A group is RUNNING from the
    start of its first member on, until all of them have ended; lists across nodes show the stored status,
    PENDING until then.
    """

    job_id: str = ""
    kind: Kind | None = None
    """As `action`, `is_reused`, `message`, `children` and the child job, known with the graph of the job
    only."""
    action: str | None = None
    failed_attempts: int = 0
    lost_attempts: int = 0
    shared_losses: int = 0
    is_reused: bool = False
    parent_node_id: str | None = None
    fan_out_index: int | None = None
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    updated_at: Timestamp | None = None
    wake_at: Timestamp | None = None
    queue: str | None = None
    worker_id: str | None = None
    progress: ProgressRecord | None = field(default=None, metadata=SECRETS)
    message: str | None = field(default=None, metadata=SECRETS)
    children: ChildrenRecord | None = None
    child_job_id: str | None = None
    child_job_status: JobStatus | None = None
    workflow_id: str = field(default="", metadata=INTERNAL)
    stopped: bool = field(default=False, metadata=derived(lambda values, _: values["is_cancelling"]))
    """Whether a node in flight was asked to stop alone, or a fan-out admits no further child."""
    source_count: int | None = field(default=None, metadata=INTERNAL)
    expanded_count: int = field(default=0, metadata=INTERNAL)
    output_ref: str | None = field(default=None, metadata=INTERNAL)
    handler_version: str | None = field(default=None, metadata=INTERNAL)
    task_id: str | None = field(default=None, metadata=INTERNAL)
    dispatched_at: float | None = field(default=None, metadata=INTERNAL)

    @property
    @shown(after="shared_losses")
    def isolation(self) -> Isolation:
        return isolation_after(self.shared_losses)

    @property
    @shown(after="is_reused")
    def is_cancelling(self) -> bool:
        return self.cancel_request is not None

    @property
    def cancel_request(self) -> JsonObject | None:
        """Return the request to cancel this node, while it is in flight."""
        is_requested = self.stopped and (self.error or {}).get("kind") == "cancelled"
        return self.error if is_requested and self.status not in TERMINAL_NODE else None

    @property
    def place_in_job(self) -> Position:
        index = -1 if self.fan_out_index is None else self.fan_out_index
        return (self.parent_node_id or "", index, self.node_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeValues:
    """The values of one node.

    Params are stored only while its task is in flight; `hidden` are secrets in them.
    """

    output: Any = None
    output_ref: str | None = None
    params: Any = None
    hidden: tuple[str, ...] = ()
    has_item: bool = False
    item: Any = None


@dataclass(frozen=True, slots=True)
class WaitInfo:
    """Why a node waits: since when, the message of an approval, the end of a wait."""

    since: float
    message: str = ""
    until: str | None = None
