"""Records of orchestrators, workers and queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dagmaster.engine.diagnosis.context import QueueState
from dagmaster.json_types import JsonObject
from dagmaster.records.record import INTERNAL, Record, Timestamp, shown


class FleetCounts(NamedTuple):
    """How many orchestrators and workers are alive and claim.

    Those that drain are alive, and claim nothing. `hindered_orchestrators`: live ones that lately met a
    condition of the database in which they cannot write.
    """

    orchestrators: int
    workers: int
    draining_orchestrators: int = 0
    hindered_orchestrators: int = 0


class QueueBacklog(NamedTuple):
    """The tasks of a job that no worker has claimed, by queue, and the live workers of that queue (`state`).

    `is_exclusive`: those that wait for a worker without other tasks.
    """

    queue: str
    tasks: int
    oldest_seconds: float
    state: QueueState = QueueState()
    is_exclusive: bool = False


class StaleTasks(NamedTuple):
    """Claimed tasks that nothing runs or ends.

    `of_dead_workers`: those that should have been reclaimed. `overdue`: live workers should have stopped and
    reported them, for their timeouts are over.
    """

    of_dead_workers: int = 0
    overdue: int = 0


NO_STALE_TASKS: Final = StaleTasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftJobsRecord(Record):
    """The jobs that an orchestrator owned when it left.

    `reassigned`: they finished, or others owned and left them.
    """

    jobs: int
    owned_again: int
    unowned: int
    not_reclaimed: int
    reassigned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNodeRecord(Record):
    """The node that a task was an attempt at."""

    job_id: str
    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTasksRecord(Record):
    """The tasks that a worker held when it left. `now`: how many of their nodes have which status.

    `alone_with`: the only task that it held when it died. `crashed`: of several tasks those that since ended
    their process, or workers that ran nothing else: one of them probably also ended this worker. At most 10.
    """

    tasks: int
    not_reclaimed: int
    now: Mapping[str, int]
    alone_with: TaskNodeRecord | None = None
    crashed: tuple[TaskNodeRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRecord(Record):
    """A request to drain a service. `is_seen`: the service has seen it; older versions never do."""

    requested_seconds: float
    is_seen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord(Record):
    """A service of the fleet, and when it last renewed its lease."""

    host: str
    pid: int
    version: str
    is_alive: bool
    has_died: bool
    lease_seconds: float
    silent_seconds: float
    age_seconds: float
    stopped_seconds: float | None
    is_draining: bool = False
    drain: DrainRecord | None = None
    counters: JsonObject

    @property
    def place(self) -> str:
        return f"{self.host}:{self.pid}"

    @property
    def held_count(self) -> int:
        raise NotImplementedError

    @property
    @shown(after="is_draining")
    def is_drained(self) -> bool:
        return self.drain is not None and self.drain.is_seen and self.held_count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorRecord(ServiceRecord, order={"orchestrator_id": "", "jobs": "drain"}):
    """An orchestrator. `left`: what became of the jobs of one that stopped or died.

    `is_draining`: it claims nothing more. `is_drained`: it was asked to drain, and owns no job any more.
    """

    orchestrator_id: str
    jobs: int
    left: LeftJobsRecord | None = None

    @property
    def held_count(self) -> int:
        return self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord(
    ServiceRecord,
    order={
        "worker_id": "",
        "queues": "version",
        "concurrency": "queues",
        "is_draining": "has_died",
        "drain": "is_draining",
        "counters": "finished_last_minute",
    },
):
    """A worker. No queues: it serves all. `left`: what became of the tasks of one that stopped or died.

    `finished_last_minute`: how many tasks of each queue it finished, as of its last heartbeat. `is_draining`:
    it claims nothing more. `is_drained`: it was asked to drain, and holds no task any more.
    """

    worker_id: str
    queues: tuple[str, ...]
    concurrency: int
    running: int
    prefetched: int
    processes: int
    processes_busy: int
    finished_last_minute: Mapping[str, int] = field(default_factory=dict)
    left: LeftTasksRecord | None = None

    @property
    def held_count(self) -> int:
        return self.running + self.prefetched


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord(Record):
    """A queue with tasks. `workers`: live workers that claim from it. `note`: why tasks wait, if it is known.

    `waiting_exclusive`: how many of the waiting tasks wait for a worker without other tasks.
    `finished_last_minute`: by live workers, as of their last heartbeats.
    """

    queue: str
    waiting: int
    waiting_exclusive: int
    claimed: int
    oldest_seconds: float | None
    finished_last_minute: int = 0
    """This and what follows comes from the workers of the fleet (`application.queries.fleet`)."""
    workers: int = 0
    note: str | None = None

    @property
    def is_stuck(self) -> bool:
        """Return whether its tasks wait for a worker that does not exist."""
        return self.waiting > 0 and not self.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord(Record):
    """Orchestrators and workers that are alive or left within the last hour, and queues with tasks.

    `read_at`: when a server read this, if the database does not answer now; null: it was read now.
    """

    orchestrators: tuple[OrchestratorRecord, ...]
    workers: tuple[WorkerRecord, ...]
    queues: tuple[QueueRecord, ...]
    unowned_jobs: int
    read_at: Timestamp | None = None
    stale_tasks: StaleTasks = field(default=NO_STALE_TASKS, metadata=INTERNAL)
