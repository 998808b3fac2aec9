"""Records of orchestrators, workers and queues, as a read store returns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.diagnosis.context import QueueState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class FleetCounts(NamedTuple):
    """How many orchestrators and workers are alive and claim.

    Those that drain are alive, and claim nothing.
    """

    orchestrators: int
    workers: int
    draining_orchestrators: int = 0


class QueueBacklog(NamedTuple):
    """The tasks of a job that no worker has claimed, by queue, and the live workers of that queue (`state`).

    `is_exclusive`: those that wait for a worker without other tasks.
    """

    queue: str
    tasks: int
    oldest_seconds: float
    state: QueueState = QueueState()
    is_exclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue with tasks. `waiting_exclusive`: those that wait for a worker without other tasks."""

    queue: str
    waiting: int
    waiting_exclusive: int
    claimed: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRecord:
    """A request to drain.

    `is_seen`: a heartbeat has seen it; services of versions before 0007 never see one.
    """

    requested_seconds: float
    is_seen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorRecord:
    """An orchestrator: alive, stopped or dead. `left`: where the jobs of a stopped or dead one are now."""

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
    is_draining: bool = False
    drain: DrainRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker: alive, stopped or dead. `left`: where the tasks of a stopped or dead one are now."""

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
    finished_last_minute: Mapping[str, int] = field(default_factory=dict)
    """By queue, as of its last heartbeat."""
    left: Mapping[str, Any] | None = None
    drain: DrainRecord | None = None


class StaleTasks(NamedTuple):
    """Claimed tasks that nothing runs or ends.

    `of_dead_workers`: those that should have been reclaimed. `overdue`: live workers should have stopped and reported
    them, for their timeouts are over.
    """

    of_dead_workers: int = 0
    overdue: int = 0


NO_STALE_TASKS: Final = StaleTasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord:
    """Live and recently stopped services, and queues."""

    orchestrators: Sequence[OrchestratorRecord]
    workers: Sequence[WorkerRecord]
    queues: Sequence[QueueRecord]
    unowned_jobs: int
    stale_tasks: StaleTasks = NO_STALE_TASKS
