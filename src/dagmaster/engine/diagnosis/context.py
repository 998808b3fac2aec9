"""What an explanation knows beside the job itself: who is alive, what is out, what was said. Read by a store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An orchestrator or a worker, and how long ago it was heard. `is_over`: it stopped, or was given up."""

    id: str
    where: str
    silent_seconds: float
    lease_seconds: float
    is_over: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether its lease is over."""
        return self.is_over or self.silent_seconds >= self.lease_seconds

    @property
    def is_silent(self) -> bool:
        """Whether it should have been heard. It beats about three times in a lease."""
        return self.silent_seconds > self.lease_seconds / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceFailure:
    """An owner that could not advance the job: what it stumbled over, and when it tries again."""

    error: str
    again_in_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightTask:
    """A task in a queue, or at a worker. `has_begun` is None while its worker has not said so."""

    queue: str
    dispatched_at: float
    worker: Service | None = None
    claimed_at: float | None = None
    has_begun: bool | None = None
    begun_at: float | None = None
    stop_requested_at: float | None = None
    progress: Mapping[str, Any] | None = None
    ahead: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The live workers that serve a queue, and how many tasks these run of how many they can.

    Of the seats, plain functions have the processes.
    """

    workers: int = 0
    seats: int = 0
    busy: int = 0
    processes: int = 0
    processes_busy: int = 0

    @property
    def lacks_processes(self) -> bool:
        """Whether there are seats, but none for plain functions: what waits for long is one."""
        return self.busy < self.seats and 0 < self.processes <= self.processes_busy


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAttempt:
    """An attempt that is over, and where it ran."""

    attempt: int
    status: str
    at: float
    seconds: float | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildJob:
    """A job that was started for a node."""

    id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisContext:
    """What surrounds a job. Values (`inputs`, `outputs`) are without secrets. Mappings are by node, if not said."""

    now: float
    created_at: float = 0.0
    finished_at: float | None = None
    error: Mapping[str, Any] | None = None
    owner: Service | None = None
    orchestrators: int = 1
    trouble: AdvanceFailure | None = None
    is_of_a_run: bool = False
    cancelled_by: str | None = None
    cancelled_at: float | None = None
    tasks: Mapping[str, InFlightTask] = field(default_factory=dict)
    reports: Mapping[str, FinishedAttempt] = field(default_factory=dict)
    attempts: Mapping[str, FinishedAttempt] = field(default_factory=dict)
    child_jobs: Mapping[str, ChildJob] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, QueueState] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
