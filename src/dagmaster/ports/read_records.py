"""The records of the read port: plain values of jobs, nodes, attempts, events and workflows.

Times are seconds since the epoch by the store's clock; `now` is that clock when the record was read.
Secret inputs are *not* hidden here: `application` redacts before anything leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.status import (
    TERMINAL_NODE,
    AttemptStatus,
    Isolation,
    NodeStatus,
    SkipReason,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.engine.diagnosis.context import (
        AdvanceFailure,
        FinishedAttempt,
        InFlightTask,
        QueueState,
        Service,
    )
    from dagmaster.engine.model import JobRow, NodeRow
    from dagmaster.ports.audit_events import StoredEvent

Position = tuple[int | float | str, ...]
"""Where a page ended: the key of its last record."""


# ── Nodes, attempts, tasks ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    """A filter of nodes, across jobs or of one job."""

    job_id: str | None = None
    statuses: frozenset[NodeStatus] = frozenset()
    workflow_id: str | None = None
    parent_node_id: str | None = None
    """Children of this fan-out; needs `job_id`."""
    top_level: bool = False
    """No children of fan-outs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node that has a row, with its task while that is in flight.

    A node that has not changed has no row.
    """

    node_id: str
    status: NodeStatus
    job_id: str = ""
    workflow_id: str = ""
    skip_reason: SkipReason | None = None
    attempt: int = 0
    failed_attempts: int = 0
    lost_attempts: int = 0
    shared_losses: int = 0
    stopped: bool = False
    """Whether a node in flight was asked to stop alone, or a fan-out admits no further child."""
    branch: str | None = None
    parent_node_id: str | None = None
    fan_out_index: int = -1
    source_count: int | None = None
    expanded_count: int = 0
    error: dict[str, Any] | None = None
    output_ref: str | None = None
    wake_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    updated_at: float | None = None
    handler_version: str | None = None
    task_id: str | None = None
    queue: str | None = None
    worker_id: str | None = None
    dispatched_at: float | None = None
    progress: dict[str, Any] | None = None

    @property
    def cancel_request(self) -> dict[str, Any] | None:
        """Return the request to cancel this node, while it is in flight."""
        is_requested = self.stopped and (self.error or {}).get("kind") == "cancelled"
        return self.error if is_requested and self.status not in TERMINAL_NODE else None


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """How many children of a fan-out have which status, and when the first of them started."""

    counts: Mapping[NodeStatus, int] = field(default_factory=dict)
    first_started_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt at a node.

    One in flight has the status of its node; `worker` is the host and pid of its worker.

    `started_at`: when its handler started; None if it did not, or if a worker of an older version ran it.
    """

    node_id: str
    attempt: int
    task_id: str
    status: AttemptStatus | NodeStatus
    queue: str
    worker_id: str | None
    worker: str | None
    dispatched_at: float
    claimed_at: float | None
    started_at: float | None = None
    completed_at: float | None = None
    error: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """A filter of tasks in flight."""

    queue: str | None = None
    worker_id: str | None = None
    job_id: str | None = None
    handler: str | None = None
    is_claimed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task that waits in a queue or is claimed by a worker: DISPATCHED, CLAIMED, or RUNNING for a while."""

    task_id: str
    job_id: str
    node_id: str
    attempt: int
    queue: str
    priority: int
    handler: str
    isolation: Isolation
    dispatched_at: float
    status: NodeStatus
    worker_id: str | None
    claimed_at: float | None
    started_at: float | None
    stop_requested_at: float | None
    progress: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class WaitInfo:
    """Why a node waits: since when, the message of an approval, the end of a wait."""

    since: float
    message: str = ""
    until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintRecord:
    """A child of a fan-out, with the footprint of its item or output."""

    node_id: str
    parent_node_id: str
    fan_out_index: int
    status: NodeStatus
    attempt: int
    error: dict[str, Any] | None
    footprint: Any


# ── Commands, events, logs ──────────────────────────────────────────────────────────────────────────────────


class PendingCommand(NamedTuple):
    """A command that no owner has processed yet."""

    command_id: str
    kind: str
    sent_by: str
    age_seconds: float


class JobEvent(NamedTuple):
    """An audit event and the job it is of."""

    job_id: str
    event: StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which log chunks of a job. Without nodes: of all. `since` and `until` are times, both included.

    `contains`: a text, whose ASCII letters match in either case. `words`: at least one of them, as it is written.
    Either may begin at the end of the chunk. With both, a chunk that begins within a line needs no word.
    """

    node_ids: tuple[str, ...] = ()
    attempt: int | None = None
    since: float | None = None
    until: float | None = None
    contains: str | None = None
    words: tuple[str, ...] = ()


ALL_LOGS: Final = LogFilter()


class LogRecord(NamedTuple):
    """A chunk of a task's log."""

    node_id: str
    attempt: int
    at: float
    text: str
    position: Position


# ── Diagnosis ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisFacts:
    """A job as its owner would load it, and the facts around it that `engine.diagnosis` explains it with.

    Values are not among them: inputs are read with `job`, outputs with `outputs`; `application` redacts both.
    """

    job: JobRow
    nodes: Sequence[NodeRow]
    owner: Service | None
    orchestrators: int
    """How many are alive and claim jobs."""
    draining_orchestrators: int
    failure: AdvanceFailure | None
    cancelled_by: str | None
    cancelled_at: float | None
    tasks: Mapping[str, InFlightTask]
    reports: Mapping[str, FinishedAttempt]
    attempts: Mapping[str, FinishedAttempt]
    queues: Mapping[str, QueueState]
