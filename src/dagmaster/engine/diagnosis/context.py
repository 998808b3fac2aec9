"""The facts that an explanation needs in addition to the job itself: services, tasks in flight, reports.

Read by a store.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import in_flight_status
from dagmaster.text_format import age

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.status import NodeStatus
    from dagmaster.json_types import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An orchestrator or a worker, and the age of its last heartbeat.

    `is_over`: it stopped, or it was expired.
    """

    id: str
    where: str
    silent_seconds: float
    lease_seconds: float
    is_over: bool = False
    is_draining: bool = False
    is_registered: bool = True

    @property
    def death(self) -> str:
        """Return when a dead one died: at its last heartbeat.

        That is not known if its registration was pruned.
        """
        return f"died {age(self.silent_seconds)} ago" if self.is_registered else "died long ago"

    @property
    def is_dead(self) -> bool:
        return self.is_over or self.silent_seconds >= self.lease_seconds

    @property
    def is_silent(self) -> bool:
        """Return whether its heartbeat is late. There are about three heartbeats in a lease."""
        return self.silent_seconds > self.lease_seconds / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceFailure:
    """An owner that failed to advance the job: the error, and when it retries."""

    error: str
    retry_in_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightTask:
    """A task that is queued, or claimed by a worker.

    `started_at`: when its handler started, if it runs for a while.
    """

    queue: str
    dispatched_at: float
    worker: Service | None = None
    claimed_at: float | None = None
    started_at: float | None = None
    stop_requested_at: float | None = None
    progress: Mapping[str, JsonValue] | None = None
    queue_position: int | None = None
    handler: str = ""
    untrusted_caller: str | None = None
    """Whose live workers offer the handler and may not have it, while no other live worker has it."""

    @property
    def status(self) -> NodeStatus:
        return in_flight_status(is_claimed=self.worker is not None, has_started=self.started_at is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The live workers that claim from a queue, their slots, and how many of these are busy.

    Plain functions can only use as many slots as there are `processes`. `draining`: workers of the queue that
    claim nothing more; `drained_worker`: the id of one that was asked to, and can be undrained.
    """

    workers: int = 0
    draining: int = 0
    drained_worker: str | None = None
    slots: int = 0
    busy: int = 0
    processes: int = 0
    processes_busy: int = 0

    @property
    def lacks_processes(self) -> bool:
        """Return whether slots are free, but no process for plain functions."""
        return self.busy < self.slots and 0 < self.processes <= self.processes_busy


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAttempt:
    """A finished attempt, and the worker that ran it."""

    attempt: int
    status: str
    at: float
    seconds: float | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildJob:
    """The child job of a node."""

    id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSurroundings:
    """The services, tasks and reports around a job. Mappings are keyed by node id, `queues` by queue."""

    owner: Service | None = None
    orchestrators: int = 1
    """How many are alive and claim jobs."""
    draining_orchestrators: int = 0
    advance_failure: AdvanceFailure | None = None
    cancelled_by: str | None = None
    cancelled_at: float | None = None
    tasks: Mapping[str, InFlightTask] = field(default_factory=dict)
    reports: Mapping[str, FinishedAttempt] = field(default_factory=dict)
    attempts: Mapping[str, FinishedAttempt] = field(default_factory=dict)
    queues: Mapping[str, QueueState] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(JobSurroundings)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisContext(JobSurroundings):
    """The context of a job. `inputs` and `outputs` are redacted."""

    now: float
    created_at: float = 0.0
    finished_at: float | None = None
    error: Mapping[str, JsonValue] | None = None
    is_local_run: bool = False
    child_jobs: Mapping[str, ChildJob] = field(default_factory=dict)
    approval_messages: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, JsonValue] = field(default_factory=dict)
    outputs: Mapping[str, JsonValue] = field(default_factory=dict)


def format_busy_processes(whose: str, count: int) -> str:
    """Format that all processes for plain functions are busy, although the workers have free slots."""
    noun = "process for plain functions is" if count == 1 else "processes for plain functions are"
    return f"{whose} {count:,} {noun} busy (DAGMASTER_PROCESSES)"
