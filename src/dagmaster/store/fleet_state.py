"""The state of orchestrators and workers, derived from their registrations.

Shared by the stores; reads no database.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.diagnosis.context import AdvanceFailure, QueueState, Service
from dagmaster.engine.status import TERMINAL_NODE, NodeStatus
from dagmaster.ports.run_queues import is_orphaned_queue, is_served
from dagmaster.records.fleet import (
    DrainRecord,
    LeftJobsRecord,
    LeftTasksRecord,
    OrchestratorRecord,
    StaleTasks,
    TaskNodeRecord,
    WorkerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RECENT_SECONDS: Final = 3600.0
"""How long services that stopped or died are still listed."""
MAX_STOPPED: Final = 200
"""How many of these are listed. Live ones are listed however many they are."""
UNKNOWN_PLACE: Final = "unknown host"
"""The place of a service whose registration was pruned."""
OVERDUE_SECONDS: Final = 60.0
"""How long after its timeout a task of a live worker is overdue: the worker asks it to stop, kills it and
reports."""
_LATE_HEARTBEAT_SECONDS: Final = 10.0


@dataclass(slots=True, kw_only=True)
class ServiceRow:
    """What an orchestrator or a worker registered and reports. No queues: every queue."""

    started_at: float
    heartbeat_at: float
    stopped_at: float | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    concurrency: int = 1
    drain_requested_at: float | None = None
    drain_seen_at: float | None = None


@dataclass(slots=True, kw_only=True)
class Registration(ServiceRow):
    """A registered orchestrator or worker, as it was read. `now`: the clock of the store then."""

    id: str
    host: str
    pid: int
    version: str
    lease_seconds: float
    now: float

    @property
    def is_draining(self) -> bool:
        """Return whether it is alive and claims nothing more: it was asked to drain, or it stops."""
        return self.is_alive and (self.drain_requested_at is not None or bool(self.counters.get("draining")))

    @property
    def may_claim(self) -> bool:
        return self.is_alive and not self.is_draining

    @property
    def drain(self) -> DrainRecord | None:
        """Return the request to drain it, if it is alive."""
        requested_at = self.drain_requested_at
        if requested_at is None or not self.is_alive:
            return None
        return DrainRecord(requested_seconds=self.now - requested_at, is_seen=self.drain_seen_at is not None)

    @property
    def is_alive(self) -> bool:
        return self.stopped_at is None and self.now - self.heartbeat_at < self.lease_seconds

    @property
    def has_died(self) -> bool:
        """Return whether it died: one that stops normally deregisters right after its last heartbeat."""
        if self.stopped_at is None:
            return not self.is_alive
        return self.stopped_at - self.heartbeat_at > self.lease_seconds

    @property
    def silent_seconds(self) -> float:
        """Return how long ago its last heartbeat was, also if it was expired before its lease ended."""
        return heartbeat_age(self.now, self.heartbeat_at, self.counters.get("last_heartbeat_at"))

    @property
    def age_seconds(self) -> float:
        return self.now - self.started_at

    @property
    def stopped_seconds(self) -> float | None:
        return None if self.stopped_at is None else self.now - self.stopped_at

    @property
    def running(self) -> int:
        """Return how many tasks it executes, as of its last heartbeat."""
        return min(self.count("running"), self.concurrency)

    def count(self, name: str) -> int:
        """Return a counter as of its last heartbeat; 0 if the service does not report it."""
        return int(self.counters.get(name) or 0)


def heartbeat_age(now: float, heartbeat_at: float, last_heartbeat_at: float | None) -> float:
    """Return how long ago the last heartbeat was. `last_heartbeat_at`: if it was expired before its time."""
    return now - (heartbeat_at if last_heartbeat_at is None else last_heartbeat_at)


def is_over(last_heartbeat_at: float | None, *, has_stopped: bool) -> bool:
    """Return whether a service stopped, or was expired before its lease ended."""
    return has_stopped or last_heartbeat_at is not None


def recent(registrations: Iterable[Registration]) -> list[Registration]:
    """Return live services, and those that stopped within the last hour, live ones first, newest first."""
    listed = [row for row in registrations if row.now - row.heartbeat_at < RECENT_SECONDS]
    registered = [row for row in listed if row.stopped_at is None]
    stopped = sorted(
        (row for row in listed if row.stopped_at is not None), key=lambda row: -(row.stopped_at or 0.0)
    )
    return [
        *sorted(registered, key=lambda row: -int(row.id)),
        *sorted(stopped[:MAX_STOPPED], key=lambda row: (row.stopped_at or 0.0, -int(row.id))),
    ]


def service_of(registration: Registration) -> Service:
    return Service(
        id=registration.id,
        where=f"{registration.host}:{registration.pid}",
        silent_seconds=registration.silent_seconds,
        lease_seconds=registration.lease_seconds,
        is_over=is_over(
            registration.counters.get("last_heartbeat_at"), has_stopped=registration.stopped_at is not None
        ),
        is_draining=registration.is_draining,
    )


def unknown_service(service_id: str, lease_seconds: float) -> Service:
    """Return a service whose registration was pruned: it has stopped."""
    return Service(
        id=service_id,
        where=UNKNOWN_PLACE,
        silent_seconds=0.0,
        lease_seconds=lease_seconds,
        is_over=True,
        is_registered=False,
    )


def advance_failure(counters: Mapping[str, Any], job_id: str, now: float) -> AdvanceFailure | None:
    """Return why an owner quarantined a job, and when it tries again, from its counters."""
    entry = (counters.get("quarantined") or {}).get(job_id)
    if entry is None:
        return None
    until, error = entry
    remaining = until - now
    # The next heartbeat of the owner removes an entry that is past.
    return (
        AdvanceFailure(error=error, retry_in_seconds=remaining)
        if remaining > -_LATE_HEARTBEAT_SECONDS
        else None
    )


# ── Queues ──


def queue_state(workers: Iterable[Registration], queue: str) -> QueueState:
    """Return the capacity of the live workers that serve a queue; those that drain are only counted."""
    registered = [row for row in workers if row.stopped_at is None]
    is_orphaned = is_orphaned_queue(queue, [row.queues for row in registered])
    alive = [
        row for row in registered if row.is_alive and is_served(queue, row.queues, is_orphaned=is_orphaned)
    ]
    serving = [row for row in alive if row.may_claim]
    return QueueState(
        draining=len(alive) - len(serving),
        drained_worker=next((row.id for row in alive if row.drain_requested_at is not None), None),
        workers=len(serving),
        slots=sum(row.concurrency for row in serving),
        busy=sum(row.running for row in serving),
        processes=sum(row.count("processes") for row in serving),
        processes_busy=sum(row.count("processes_busy") for row in serving),
    )


# ── Stale tasks ──


class ClaimedTasks(NamedTuple):
    """How many tasks a worker has claimed, and how many of them are `OVERDUE_SECONDS` past their timeouts."""

    tasks: int
    overdue: int = 0


def count_stale(
    claimed: Mapping[str, ClaimedTasks], workers: Iterable[Registration], lease_seconds: float
) -> StaleTasks:
    """Count claimed tasks that nothing runs or ends. A worker that is not among these is dead for long.

    `lease_seconds`: that of orchestrators. They look for dead workers several times in it.
    """
    by_id = {row.id: row for row in workers}
    of_dead_workers = overdue = 0
    for worker_id, tasks in claimed.items():
        row = by_id.get(worker_id)
        if row is None or _is_long_dead(row, lease_seconds):
            of_dead_workers += tasks.tasks
        elif row.is_alive:
            overdue += tasks.overdue
    return StaleTasks(of_dead_workers, overdue)


def _is_long_dead(row: Registration, lease_seconds: float) -> bool:
    if row.stopped_seconds is not None:
        return row.stopped_seconds > lease_seconds
    return row.silent_seconds > row.lease_seconds + lease_seconds


# ── Records ──


CRASH_KINDS: Final = frozenset({"crashed", "out_of_memory", "lost"})
"""The kinds of errors of a task that ended its process, or workers that ran nothing else."""
MAX_CRASHED: Final = 10
"""How many nodes of a dead worker are listed that crashed since."""


@dataclass(slots=True)
class LeftNodes:
    """The nodes of the tasks that a dead worker left: how many have which status, and which crashed since."""

    statuses: dict[str, int] = field(default_factory=dict)
    crashed: list[tuple[str, str]] = field(default_factory=list)


def left_status(status: NodeStatus) -> str:
    """Return the key under which a node whose worker died is counted."""
    return "finished" if status in TERMINAL_NODE else status.lower()


def orchestrator_record(
    registration: Registration, jobs: int, left_statuses: Mapping[str, int]
) -> OrchestratorRecord:
    """Describe an orchestrator that owns `jobs`. `left_statuses`: where the open jobs are that it left."""
    return OrchestratorRecord.of(
        registration,
        orchestrator_id=registration.id,
        jobs=jobs,
        counters=_without(registration.counters, _ORCHESTRATOR_KEYS),
        left=None if registration.is_alive else _left_jobs(registration, jobs, left_statuses),
    )


def _left_jobs(registration: Registration, jobs: int, left_statuses: Mapping[str, int]) -> LeftJobsRecord:
    owned, unowned = left_statuses.get("owned", 0), left_statuses.get("unowned", 0)
    # One that was not reclaimed yet still owns its jobs.
    total = max(int(registration.counters.get("left", jobs)), owned + unowned)
    return LeftJobsRecord(
        jobs=total,
        owned_again=owned,
        unowned=unowned,
        not_reclaimed=jobs,
        # They have finished, or others owned and left them since.
        reassigned=max(total - owned - unowned - jobs, 0),
    )


def without_counts(registration: Registration) -> Registration:
    """Return a registration without what the service counted and left, which may be of other tenants."""
    kept = {name: value for name, value in registration.counters.items() if name in _OF_NO_TENANT}
    return replace(registration, counters=kept)


def worker_record(registration: Registration, claimed: int, nodes: LeftNodes | None) -> WorkerRecord:
    """Describe a worker that has claimed so many tasks. `nodes`: the nodes of the tasks that it left."""
    counters = registration.counters
    # Its heartbeat may be older than the rows: it executes no more than it has claimed.
    running = min(int(counters.get("running", claimed)), claimed)
    finished = dict(counters.get("finished_last_minute") or {}) if registration.is_alive else {}
    return WorkerRecord.of(
        registration,
        worker_id=registration.id,
        running=running,
        prefetched=claimed - running,
        processes=int(counters.get("processes", 0)),
        processes_busy=int(counters.get("processes_busy", 0)),
        finished_last_minute=finished,
        counters=_without(counters, _WORKER_KEYS),
        left=None if registration.is_alive else _left_tasks(registration, claimed, nodes or LeftNodes()),
    )


def _left_tasks(registration: Registration, claimed: int, nodes: LeftNodes) -> LeftTasksRecord:
    total = max(int(registration.counters.get("left", claimed)), claimed)
    # The jobs of the others were pruned since.
    pruned = max(total - claimed - sum(nodes.statuses.values()), 0)
    statuses = {**nodes.statuses, "pruned": pruned} if pruned else nodes.statuses
    left = LeftTasksRecord(tasks=total, not_reclaimed=claimed, now=statuses)
    if not registration.has_died:
        return left
    tasks = registration.counters.get("left_tasks") or []
    if len(tasks) == 1:
        # The only task that it held is the one that it was running when it died.
        return replace(left, alone_with=_task_node(*tasks[0]))
    crashed = sorted(nodes.crashed)[:MAX_CRASHED]
    return replace(left, crashed=tuple(_task_node(*node) for node in crashed))


def _task_node(job_id: int | str, node_id: str) -> TaskNodeRecord:
    return TaskNodeRecord(job_id=str(job_id), node_id=str(node_id))


_OF_NO_TENANT: Final = frozenset({"last_heartbeat_at", "draining", "database_condition"})
_ORCHESTRATOR_KEYS: Final = frozenset({"last_heartbeat_at", "left"})
# `begun` is of workers before version 0003 of the schema.
_WORKER_KEYS: Final = frozenset(
    {
        "last_heartbeat_at",
        "left",
        "left_tasks",
        "running",
        "begun",
        "processes",
        "processes_busy",
        "draining",
        "finished_last_minute",
    }
)


def _without(counters: Mapping[str, Any], internal: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in counters.items() if name not in internal}
