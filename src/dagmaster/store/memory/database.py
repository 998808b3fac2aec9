"""The tables of the store as plain objects, shared by the stores in memory. They last as long as the process.

There is one event loop: each call of a store runs without a pause, and so is atomic like a transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagmaster.engine.status import AttemptStatus, JobStatus, in_flight_status
from dagmaster.engine.stored_rows import JobRow
from dagmaster.host.clocks import SystemClock
from dagmaster.host.snowflakes import LEASED_MACHINES, Snowflakes
from dagmaster.ports.audit_events import StoredEvent
from dagmaster.ports.job_records import JobState
from dagmaster.ports.tasks import NewTask
from dagmaster.ports.turn_records import Command, TaskResult
from dagmaster.records.handlers import INSTALLATION
from dagmaster.store.fleet_state import ServiceRow
from dagmaster.store.memory.audit_trail import MemoryAuditTrail
from dagmaster.store.memory.output_blobs import MemoryBlobs
from dagmaster.store.result_notifications import encode_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dagmaster.engine.status import NodeStatus
    from dagmaster.engine.stored_rows import NodeRow
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.command_kinds import CommandKind
    from dagmaster.ports.handler_definitions import HandlerDefinition
    from dagmaster.ports.job_records import NewJob, StoredWorkflow
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.read_records import LogRecord
    from dagmaster.ports.remote_workers import NewWorker
    from dagmaster.store.memory.added_nodes import JobBatch
    from dagmaster.store.memory.metrics import JobSample

OPEN_JOB = (JobStatus.PENDING, JobStatus.RUNNING)


@dataclass(slots=True)
class StoredNode:
    """A node: the engine's row, and the other columns."""

    row: NodeRow
    task_id: str | None = None
    source: str | None = None
    output: JsonText | None = None
    started_at: float | None = None
    finished_at: float | None = None
    updated_at: float | None = None


@dataclass(slots=True)
class StoredJob(JobState):
    """A job: its submission and its current state."""

    created_at: float
    owner_id: str | None = None
    previous_owner_id: str | None = None
    result: JsonText | None = None
    error: JsonObject | None = None
    started_at: float | None = None
    finished_at: float | None = None
    updated_at: float = 0.0
    cancel_requested_at: float | None = None
    nodes: dict[str, StoredNode] = field(default_factory=dict)
    events: list[StoredEvent] = field(default_factory=list)
    batches: dict[int, JobBatch] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.row.status in OPEN_JOB

    @property
    def rank(self) -> tuple[int, int]:
        """Return the sort key: highest priority first, then oldest."""
        return -self.new.priority, int(self.new.id)


@dataclass(slots=True)
class StoredTask(NewTask):
    """A task in a queue, unclaimed or claimed by a worker."""

    priority: int
    dispatched_at: float
    worker_id: str | None = None
    token: int | None = None
    claimed_at: float | None = None
    started_at: float | None = None
    stop_requested_at: float | None = None
    progress: str | None = None
    batches: tuple[int, ...] = ()

    @property
    def status(self) -> NodeStatus:
        return in_flight_status(
            is_claimed=self.worker_id is not None, has_started=self.started_at is not None
        )

    @property
    def rank(self) -> tuple[int, int]:
        """Return the sort key: highest priority first, then oldest."""
        return -self.priority, int(self.task_id)


@dataclass(slots=True)
class StoredResult:
    """A reported result with its task. Once it is processed, it is a finished attempt."""

    result: TaskResult
    task: StoredTask
    metrics: str | None


@dataclass(slots=True)
class StoredCheckpoint:
    """The newest checkpoint of a node."""

    attempt: int
    phase: str
    data: str
    artifacts: tuple[str, ...]


@dataclass(slots=True)
class StoredLog:
    """A chunk of the log of a task."""

    job_id: str
    record: LogRecord


@dataclass(slots=True, kw_only=True)
class StoredService(ServiceRow):
    """An orchestrator or a worker."""

    handlers: dict[str, str] = field(default_factory=dict)
    untrusted: frozenset[str] = frozenset()
    drain_deadline_at: float | None = None
    remote: NewWorker | None = None
    """The registration of a worker that speaks HTTP. None: it is in this process."""

    @property
    def may_claim(self) -> bool:
        return self.stopped_at is None and self.drain_requested_at is None

    def keep_drain(self, previous: StoredService | None) -> None:
        """Keep the request to drain the registration before, which it may not have seen."""
        if previous is not None:
            self.drain_requested_at, self.drain_deadline_at = (
                previous.drain_requested_at,
                previous.drain_deadline_at,
            )

    def renew(self, now: float) -> None:
        """Renew the lease; a request to drain is seen now."""
        self.heartbeat_at = now
        if self.drain_requested_at is not None and self.drain_seen_at is None:
            self.drain_seen_at = now


@dataclass(slots=True)
class StoredHandler:
    """The published definition of a handler, and whose it is; or one that a caller has proposed."""

    definition: HandlerDefinition
    published_at: float
    owner: str = INSTALLATION
    trusted_at: float | None = None
    by: str | None = None
    """The caller in whom the trust of an administrator made this the contract."""
    replaced: StoredHandler | None = None
    """What there was before."""


class MemoryDatabase:
    """All rows. The clock decides which leases have expired."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.blobs = MemoryBlobs()
        self.audit_trail = MemoryAuditTrail(self.clock)
        # After an outage nothing expires for one lease: no service could renew its own.
        self.up_since = self.clock.now()
        self.graphs: dict[str, str] = {}
        self.workflows: dict[tuple[str, int], StoredWorkflow] = {}
        self.published_at: dict[tuple[str, int], float] = {}
        self.active: dict[str, int] = {}
        self.jobs: dict[str, StoredJob] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.queue: dict[str, StoredTask] = {}
        self.results: dict[int, StoredResult] = {}
        self.inbox: dict[int, Command] = {}
        self.attempts: dict[tuple[str, str, int], StoredResult] = {}
        self.logs: dict[tuple[str, int], StoredLog] = {}
        self.checkpoints: dict[tuple[str, str], StoredCheckpoint] = {}
        self.orchestrators: dict[str, StoredService] = {}
        self.workers: dict[str, StoredService] = {}
        # Finished jobs to count with their run, in order, and the counted ones: see store/memory/metrics.py.
        self.metric_pending: dict[tuple[str, int], None] = {}
        self.metric_samples: list[JobSample] = []
        self.receipts: dict[str, tuple[int, AttemptStatus]] = {}
        self.handlers: dict[tuple[str, str], StoredHandler] = {}
        # Changes of contracts by name, actor and version; who trusts which actor with which handler.
        self.handler_changes: dict[tuple[str, str, str], StoredHandler] = {}
        self.handler_trust: dict[tuple[str, str], str] = {}
        self.is_queue_sorted = True
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self._last = 0
        self._machines = 0

    # ── Leases ──

    def new_ids(self) -> Snowflakes:
        self._machines = (self._machines + 1) % LEASED_MACHINES
        return Snowflakes(self.clock, self._machines)

    def has_expired(self, registration: StoredService, lease_seconds: float) -> bool:
        """Return whether a lease has expired; none does within one lease after an outage."""
        now = self.clock.now()
        return registration.heartbeat_at <= now - lease_seconds and now >= self.up_since + lease_seconds

    def is_fresh(self, registration: StoredService | None, lease_seconds: float) -> bool:
        return registration is not None and registration.heartbeat_at > self.clock.now() - lease_seconds

    # ── Notifications ──

    def listen(self, channel: str, callback: Callable[[str], None]) -> None:
        self._listeners.setdefault(channel, []).append(callback)

    def unlisten(self, callbacks: Iterable[Callable[[str], None]]) -> None:
        removed = set(callbacks)
        for channel, listeners in self._listeners.items():
            self._listeners[channel] = [callback for callback in listeners if callback not in removed]

    def notify(self, channel: str, payload: str = "") -> None:
        for callback in tuple(self._listeners.get(channel, ())):
            callback(payload)

    def notify_owners(self, job_ids: Iterable[str]) -> None:
        owners = [self.jobs[job_id].owner_id for job_id in job_ids]
        for owner in dict.fromkeys(owners):
            if owner is not None:
                self.notify(f"owner {owner}", "results")

    def notify_results(self, results: Iterable[TaskResult]) -> None:
        by_owner: dict[str | None, list[TaskResult]] = {}
        for result in results:
            by_owner.setdefault(self.jobs[result.job_id].owner_id, []).append(result)
        for owner, of_owner in by_owner.items():
            if owner is not None:
                self.notify(f"owner {owner}", encode_results(of_owner))

    # ── Rows ──

    def number(self) -> int:
        self._last += 1
        return self._last

    def add_job(self, new: NewJob, now: float, by: str) -> None:
        if new.content_hash not in self.graphs:
            raise ValueError(f"the graph {new.content_hash!r} of job {new.id} is not stored")
        if new.id in self.jobs:
            raise ValueError(f"there is a job {new.id} already")
        if new.resumed_from is not None and new.resumed_from not in self.jobs:
            raise ValueError(f"there is no job {new.resumed_from} to resume {new.id} from")
        job = self.jobs[new.id] = StoredJob(new, JobRow(id=new.id), now, updated_at=now)
        if new.idempotency_key is not None:
            self.keys[new.submitted_by, new.idempotency_key] = new.id
        data = None if new.resumed_from is None else json.dumps({"resumed_from": new.resumed_from})
        add_event(job, now, "JobSubmitted", by, data=data)

    def add_command(self, job_id: str, kind: CommandKind, body: str, sent_by: str, now: float) -> int:
        """Put a command into a job's inbox, and notify its owner, or the orchestrators that may claim it."""
        number = self.number()
        self.inbox[number] = Command(number, job_id, kind, json.loads(body), sent_by, now)
        owner = self.jobs[job_id].owner_id
        self.notify("jobs" if owner is None else f"owner {owner}", "commands")
        return number

    def enqueue(self, task: StoredTask) -> None:
        last = next(reversed(self.queue.values()), None)
        self.is_queue_sorted = self.is_queue_sorted and (last is None or last.rank <= task.rank)
        self.queue[task.task_id] = task

    def tasks_by_rank(self) -> Iterable[StoredTask]:
        """Return all tasks by rank. They are sorted only if they were enqueued out of order."""
        if not self.is_queue_sorted:
            self.queue = {
                task.task_id: task for task in sorted(self.queue.values(), key=lambda task: task.rank)
            }
            self.is_queue_sorted = True
        return self.queue.values()

    def finish_task(
        self,
        task: StoredTask,
        status: AttemptStatus,
        now: float,
        *,
        permanent: bool = False,
        output: JsonText | None = None,
        error: str | None = None,
        metrics: str | None = None,
        handler_version: str | None = None,
    ) -> TaskResult:
        del self.queue[task.task_id]
        result = TaskResult(
            self.number(), task.job_id, task.node_id, task.attempt, status, permanent, output, error,
            task.started_at, now, handler_version, _with_checkpoints(task.progress),
            ",".join(map(str, task.batches)) or None,
        )  # fmt: skip
        # Params may be large, and nobody reads the params of a finished task.
        task.params = ""
        self.results[result.id] = StoredResult(result, task, metrics)
        return result

    def finish_tasks(
        self, status: AttemptStatus, of: Callable[[str | None], bool], *, only_stopped: bool = False
    ) -> list[StoredTask]:
        """Finish the tasks of some workers with this status; return them. None stands for no worker."""
        now = self.clock.now()
        finished = [
            task
            for task in self.queue.values()
            if of(task.worker_id) and (task.stop_requested_at is not None or not only_stopped)
        ]
        held = Counter(task.worker_id for task in finished)
        for task in finished:
            error = None
            if status is AttemptStatus.LOST:
                # The only task that a worker held is the one that it was running when it died.
                error = json.dumps({"worker": task.worker_id, "alone": held[task.worker_id] == 1})
            self.finish_task(task, status, now, error=error)
        self.notify_owners(task.job_id for task in finished)
        return finished

    def claimed_task(self, task_id: str, token: int) -> StoredTask | None:
        task = self.queue.get(task_id)
        return task if task is not None and task.token == token else None


def _with_checkpoints(progress: str | None) -> str | None:
    body = None if progress is None else json.loads(progress)
    return progress if isinstance(body, dict) and "checkpoints" in body else None


def add_event(
    job: StoredJob,
    at: float,
    kind: str,
    by: str,
    *,
    node: str | None = None,
    attempt: int | None = None,
    data: str | None = None,
) -> None:
    fields = {} if data is None else json.loads(data)
    seq = len(job.events) + 1
    job.events.append(
        StoredEvent(seq=seq, type=kind, at=at, by=by, node_id=node, attempt=attempt, data=fields)
    )
