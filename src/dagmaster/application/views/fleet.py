"""Views of orchestrators, workers and queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagmaster.json_types import JsonObject
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftJobsView(Record):
    """The jobs that an orchestrator owned when it left.

    `reassigned`: they finished, or others owned and left them.
    """

    jobs: int
    owned_again: int
    unowned: int
    not_reclaimed: int
    reassigned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNodeView(Record):
    """The node that a task was an attempt at."""

    job_id: str
    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTasksView(Record):
    """The tasks that a worker held when it left. `now`: how many of their nodes have which status.

    `alone_with`: the only task that it held when it died. `crashed`: of several tasks those that since ended their
    process, or workers that ran nothing else: one of them probably ended this worker, too. At most 10.
    """

    tasks: int
    not_reclaimed: int
    now: Mapping[str, int]
    alone_with: TaskNodeView | None
    crashed: tuple[TaskNodeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView(Record):
    """A request to drain a service. `is_seen`: the service has seen it; those of older versions never do."""

    requested_seconds: float
    is_seen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorView(Record):
    """An orchestrator. `left`: what became of the jobs of one that stopped or died.

    `is_draining`: it claims nothing more. `is_drained`: it was asked to drain, and owns no job any more.
    """

    orchestrator_id: str
    host: str
    pid: int
    version: str
    is_alive: bool
    has_died: bool
    lease_seconds: float
    silent_seconds: float
    age_seconds: float
    stopped_seconds: float | None
    is_draining: bool
    is_drained: bool
    drain: DrainView | None
    jobs: int
    counters: JsonObject
    left: LeftJobsView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorStatusView(Record):
    """What the orchestrators did that are alive or stopped within the last hour, in sum."""

    alive: int
    jobs: int
    unowned_jobs: int
    jobs_claimed: int
    jobs_reclaimed: int
    jobs_finished: int
    turns: int
    results: int
    orchestrators: tuple[OrchestratorView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView(Record):
    """A worker. No queues: it serves all. `left`: what became of the tasks of one that stopped or died.

    `finished_last_minute`: how many tasks of each queue it finished, as of its last heartbeat. `is_draining`: it claims
    nothing more. `is_drained`: it was asked to drain, and holds no task any more.
    """

    worker_id: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    concurrency: int
    is_alive: bool
    has_died: bool
    is_draining: bool
    is_drained: bool
    drain: DrainView | None
    lease_seconds: float
    silent_seconds: float
    age_seconds: float
    stopped_seconds: float | None
    running: int
    prefetched: int
    processes: int
    processes_busy: int
    finished_last_minute: Mapping[str, int]
    counters: JsonObject
    left: LeftTasksView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView(Record):
    """A queue with tasks. `workers`: live workers that claim from it. `note`: why tasks wait, if it is known.

    `waiting_exclusive`: how many of the waiting tasks wait for a worker without other tasks. `finished_last_minute`: by
    live workers, as of their last heartbeats.
    """

    queue: str
    waiting: int
    waiting_exclusive: int
    claimed: int
    oldest_seconds: float | None
    finished_last_minute: int
    workers: int
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView(Record):
    """Orchestrators and workers that are alive or left within the last hour, and queues with tasks."""

    orchestrators: tuple[OrchestratorView, ...]
    workers: tuple[WorkerView, ...]
    queues: tuple[QueueView, ...]
    unowned_jobs: int
