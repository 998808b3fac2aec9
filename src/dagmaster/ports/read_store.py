"""The read port: everything that can be looked up, as plain records. It writes nothing and decides nothing.

Lists are keyset-paged: `after` is the position of the last record of the page before, and a page that is shorter than
`limit` is the last one. Positions compare stored columns that never change, so a list is stable under inserts.
Times are seconds since the epoch by the store's clock; `now` is that clock when the record was read.
Secret inputs are *not* hidden here: `application` redacts before anything leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from dagmaster.engine.diagnosis.context import AdvanceFailure, FinishedAttempt, InFlightTask, QueueState, Service
    from dagmaster.engine.model import JobRow, NodeRow
    from dagmaster.ports.audit_events import StoredEvent

Position = tuple[int | float | str, ...]
"""Where a page ended: the key of its last record."""


# ── Jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs. What is None or empty does not filter; everything given must match."""

    statuses: frozenset[JobStatus] = frozenset()
    workflow_id: str | None = None
    version: int | None = None
    name: str | None = None
    submitted_by: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    parent_job_id: str | None = None
    created_after: float | None = None
    created_before: float | None = None
    finished_after: float | None = None
    finished_before: float | None = None
    text: str | None = None
    """A prefix of the id, the name, the submitter or the correlation id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """The orchestrator that owns a job, and how long ago its last heartbeat was."""

    owner_id: str
    host: str
    pid: int
    silent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job. `status` is the displayed one (see `engine.status.displayed_status`).

    `inputs`, `result` and `result_ref` are loaded by `job` only, not by lists.
    """

    id: str
    name: str
    workflow_id: str
    version: int
    content_hash: str
    status: JobStatus
    run: int
    priority: int
    submitted_by: str
    correlation_id: str | None
    idempotency_key: str | None
    queue: str | None
    parent_job_id: str | None
    parent_node_id: str | None
    resumed_from: str | None
    event_seq: int
    is_cancelling: bool
    is_ending: bool
    error: dict[str, Any] | None
    nodes_total: int
    nodes_finished: int
    created_at: float
    updated_at: float
    started_at: float | None
    resumed_at: float | None
    finished_at: float | None
    deadline_at: float | None
    now: float
    owner: OwnerRecord | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    result_ref: str | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether the job has ended."""
        return self.status in TERMINAL_JOB

    @property
    def duration_seconds(self) -> float | None:
        """Return how long the last run takes or took; None before it starts."""
        began = self.started_at if self.resumed_at is None else self.resumed_at
        return None if began is None else max((self.finished_at or self.now) - began, 0.0)


# ── Nodes, attempts, tasks ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    """Which nodes, across jobs or of one job."""

    job_id: str | None = None
    statuses: frozenset[NodeStatus] = frozenset()
    workflow_id: str | None = None
    parent_node_id: str | None = None
    """Children of this fan-out; needs `job_id`."""
    top_level: bool = False
    """No children of fan-outs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node that has a row, with its task while that is in flight. A node nothing happened to has no row."""

    node_id: str
    status: NodeStatus
    job_id: str = ""
    workflow_id: str = ""
    skip_reason: str | None = None
    attempt: int = 0
    failed_attempts: int = 0
    lost_attempts: int = 0
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


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """How many children of a fan-out have which status, and when the first of them started."""

    counts: Mapping[NodeStatus, int] = field(default_factory=dict)
    first_started_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt at a node. One in flight has not completed; `worker` is the host and pid of its worker."""

    node_id: str
    attempt: int
    task_id: str
    status: str
    queue: str
    worker_id: str | None
    worker: str | None
    dispatched_at: float
    claimed_at: float | None
    completed_at: float | None = None
    error: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeValues:
    """The values of one node. Params are stored only while its task is in flight; `hidden` are secrets in them."""

    output: Any = None
    output_ref: str | None = None
    params: Any = None
    hidden: tuple[str, ...] = ()
    has_item: bool = False
    item: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which tasks in flight."""

    queue: str | None = None
    worker_id: str | None = None
    job_id: str | None = None
    handler: str | None = None
    is_claimed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task that waits in a queue or is claimed by a worker."""

    task_id: str
    job_id: str
    node_id: str
    attempt: int
    queue: str
    priority: int
    handler: str
    dispatched_at: float
    worker_id: str | None
    claimed_at: float | None
    stop_requested_at: float | None
    progress: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class WaitInfo:
    """What a waiting node waits for: since when, an approval's message, a wait's end."""

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


# ── Commands, events, logs ──────────────────────────────────────────────────────────────────────────────────────────


class PendingCommand(NamedTuple):
    """A command that no owner has processed yet."""

    kind: str
    sent_by: str
    age_seconds: float


class JobEvent(NamedTuple):
    """An audit event and the job it is of."""

    job_id: str
    event: StoredEvent


class LogRecord(NamedTuple):
    """A chunk of a task's log."""

    node_id: str
    attempt: int
    at: float
    text: str
    position: Position


# ── Workflows ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRecord:
    """A published workflow."""

    workflow_id: str
    name: str | None
    versions: int
    newest_version: int
    active_version: int | None
    published_at: float
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """A published version of a workflow."""

    workflow_id: str
    version: int
    content_hash: str
    is_active: bool
    published_at: float
    now: float


# ── The fleet ───────────────────────────────────────────────────────────────────────────────────────────────────────


class FleetCounts(NamedTuple):
    """How many orchestrators and workers are alive."""

    orchestrators: int
    workers: int


class QueueBacklog(NamedTuple):
    """The tasks of a job that no worker has claimed, by queue, and the live workers of that queue."""

    queue: str
    tasks: int
    oldest_seconds: float
    workers: int = 0
    slots: int = 0
    busy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue with tasks."""

    queue: str
    waiting: int
    claimed: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorRecord:
    """An orchestrator: alive, stopped or dead. `left`: what became of the jobs of one that is gone."""

    owner_id: str
    host: str
    pid: int
    version: str
    is_alive: bool
    has_died: bool
    lease_seconds: float
    silent_seconds: float
    age_seconds: float
    stopped_seconds: float | None
    jobs: int
    counters: Mapping[str, Any]
    left: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker: alive, stopped or dead. `left`: what became of the tasks of one that is gone."""

    worker_id: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    concurrency: int
    is_alive: bool
    has_died: bool
    is_draining: bool
    lease_seconds: float
    silent_seconds: float
    age_seconds: float
    stopped_seconds: float | None
    running: int
    prefetched: int
    processes: int
    processes_busy: int
    counters: Mapping[str, Any]
    left: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord:
    """Who is alive, who left lately, what waits."""

    orchestrators: Sequence[OrchestratorRecord]
    workers: Sequence[WorkerRecord]
    queues: Sequence[QueueRecord]
    unowned_jobs: int


# ── What diagnosis needs ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisFacts:
    """A job as its owner would load it, and the facts around it that `engine.diagnosis` explains it with.

    Values are not among them: inputs come with `job`, outputs are asked for with `outputs`, and `application` redacts
    both.
    """

    job: JobRow
    nodes: Sequence[NodeRow]
    owner: Service | None
    orchestrators: int
    failure: AdvanceFailure | None
    cancelled_by: str | None
    cancelled_at: float | None
    tasks: Mapping[str, InFlightTask]
    reports: Mapping[str, FinishedAttempt]
    attempts: Mapping[str, FinishedAttempt]
    queues: Mapping[str, QueueState]


class Subscription(Protocol):
    """Wakes a reader when a job may have changed: it finished, or a command to it was processed."""

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait for the next wake-up; return whether one came. Behind a pooler none comes, and callers poll."""


class ReadStore(Protocol):
    """Reads. `lease_seconds` and `worker_lease_seconds`: how long a process may be silent before it counts as dead."""

    @property
    def lease_seconds(self) -> float:
        """Return the lease of orchestrators."""

    @property
    def worker_lease_seconds(self) -> float:
        """Return the lease of workers."""

    # Jobs: newest first; the position is (id,).

    async def jobs(self, wanted: JobFilter, *, after: Position | None = None, limit: int = 20) -> list[JobRecord]:
        """Return the newest jobs that match."""

    async def job(self, job_id: str) -> JobRecord | None:
        """Return one job with its inputs and result."""

    async def newest_job_id(self) -> str | None:
        """Return the id of the newest job that is no child job."""

    async def job_counts(self, wanted: JobFilter) -> Mapping[JobStatus, int]:
        """Count jobs by displayed status."""

    async def child_jobs(self, job_id: str) -> Mapping[str, tuple[str, JobStatus]]:
        """Return the newest child job of each node: (id, status) by node id."""

    async def definition(self, content_hash: str) -> Mapping[str, Any] | None:
        """Return a stored graph."""

    # Nodes: of one job by (parent, index, node id); across jobs newest job first, by (job id, node id).

    async def nodes(self, job_id: str, node_ids: Sequence[str]) -> list[NodeRecord]:
        """Return the rows of these nodes of a job."""

    async def list_nodes(
        self, wanted: NodeFilter, *, after: Position | None = None, limit: int = 100
    ) -> list[NodeRecord]:
        """Return nodes that match, with children of fan-outs."""

    async def child_counts(self, job_id: str, fan_outs: Sequence[str]) -> Mapping[str, ChildCounts]:
        """Count the children of fan-outs by status."""

    async def node_values(self, job_id: str, node_id: str, *, child_of: tuple[str, int] | None = None) -> NodeValues:
        """Return the output, params and item of a node. `child_of`: its fan-out and index."""

    async def attempts(self, job_id: str, node_id: str) -> list[AttemptRecord]:
        """Return the attempts at a node, oldest first, with the one in flight."""

    async def attempt_count(self, job_id: str) -> int:
        """Count the finished attempts of a job."""

    async def tasks(self, wanted: TaskFilter, *, after: Position | None = None, limit: int = 100) -> list[TaskRecord]:
        """Return tasks in flight across jobs, oldest first; the position is (task id,)."""

    async def waits(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, WaitInfo]:
        """Return what waiting nodes wait for."""

    async def backlog(self, job_id: str) -> list[QueueBacklog]:
        """Return the unclaimed tasks of a job by queue."""

    async def footprints(self, job_id: str) -> list[FootprintRecord]:
        """Return the children of fan-outs that have a footprint."""

    # Commands, events, logs.

    async def pending_commands(self, job_id: str) -> list[PendingCommand]:
        """Return the commands that no owner has processed, oldest first."""

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 1000, node_ids: Collection[str] | None = None
    ) -> list[StoredEvent]:
        """Return audit events after a number. With nodes: the job's, theirs, and every failure."""

    async def recent_events(
        self,
        *,
        types: Collection[str] = (),
        since: float | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> list[JobEvent]:
        """Return events across jobs, newest first; the position is (at, job id, seq)."""

    async def event_counts(self, *, since: float | None = None, until: float | None = None) -> Mapping[str, int]:
        """Count events across jobs by type."""

    async def logs(
        self,
        job_id: str,
        *,
        node_id: str | None = None,
        attempt: int | None = None,
        after: Position | None = None,
        limit: int = 1000,
    ) -> list[LogRecord]:
        """Return log chunks in the order in which they were written."""

    # Workflows.

    async def workflows(self, *, after: Position | None = None, limit: int = 100) -> list[WorkflowRecord]:
        """Return the published workflows by id; the position is (workflow id,)."""

    async def versions(self, workflow_id: str) -> list[VersionRecord]:
        """Return the versions of a workflow, oldest first."""

    # The fleet.

    async def fleet_counts(self) -> FleetCounts:
        """Count live orchestrators and workers."""

    async def fleet(self) -> FleetRecord:
        """Return orchestrators, workers and queues."""

    # Diagnosis.

    async def diagnosis(self, job_id: str) -> DiagnosisFacts | None:
        """Return the facts that explain why a job and its nodes are where they are."""

    async def outputs(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, Any]:
        """Return the outputs of nodes that are stored in their rows."""

    # Wake-ups.

    def subscribe(self, job_id: str) -> AbstractAsyncContextManager[Subscription]:
        """Listen for changes of a job."""
