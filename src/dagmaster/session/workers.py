"""Workers and the health of the system."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dagmaster.application.queries import fleet
from dagmaster.application.views.health import HealthState
from dagmaster.errors import Category, DagmasterError, QueryInvalid, ServerUnavailable, WorkerExpired
from dagmaster.session import claimed_tasks
from dagmaster.session.current_context import a_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from dagmaster.records.fleet import WorkerRecord

EXTERNAL_VERSION: Final = "python"
"""The version of workers that code registers: they run no tasks of a queue."""


class WorkerStatus(StrEnum):
    """The status of a worker: with work, without, or stopped or dead. One that code registered is active."""

    ACTIVE = "ACTIVE"
    IDLE = "IDLE"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker as it was when it was read."""

    id: int
    hostname: str
    pid: int
    status: WorkerStatus
    silent_seconds: float = 0.0
    lease_seconds: float = 0.0
    tasks_completed: int = 0
    tasks_failed: int = 0
    started_at: datetime
    last_heartbeat: datetime


class Health(dict[str, bool]):
    """Whether each part of the system works, by name; true if all do. `details`: a sentence about each."""

    def __init__(self, states: Mapping[str, bool], details: Mapping[str, str]) -> None:
        super().__init__(states)
        self.details = dict(details)

    def __bool__(self) -> bool:
        """Return whether every part works."""
        return all(self.values())


async def register_worker(
    hostname: str | None = None,
    pid: int | None = None,
    *,
    handlers: Sequence[str] = (),
    queues: Sequence[str] = (),
    url: str | None = None,
    key: str | None = None,
) -> WorkerInfo:
    """Register a worker that this code runs itself: it is listed with the workers.

    `claim_next_task` gives it tasks of these `handlers` (`module.function`) and `queues` (without: of every
    queue); without handlers it gets none. It has to call `worker_heartbeat` or `claim_next_task` within
    `lease_seconds`, or it counts as dead, and what it claimed runs elsewhere. What it does is not known here:
    its status is `ACTIVE`, never `IDLE`, until it stops.
    """
    hostname, pid = (
        socket.gethostname() if hostname is None else hostname,
        os.getpid() if pid is None else pid,
    )
    async with a_context(url, key) as context:
        registered = await context.backend.register_worker(hostname, pid, tuple(queues), tuple(handlers))
    claimed_tasks.note_worker(registered.worker_id, has_handlers=bool(handlers))
    return WorkerInfo(
        id=int(registered.worker_id),
        hostname=hostname,
        pid=pid,
        status=WorkerStatus.ACTIVE,
        lease_seconds=registered.lease_seconds,
        started_at=(now := datetime.now(UTC)),
        last_heartbeat=now,
    )


async def worker_heartbeat(worker_id: int | str, *, url: str | None = None, key: str | None = None) -> bool:
    """Renew the lease of a worker, and of the tasks that it claimed here; return whether it is known.

    False: it was not registered here, it stopped, or its lease has ended. It registers again.
    """
    async with a_context(url, key) as context:
        return await _is_known(context.backend.renew_worker(str(worker_id), claimed_tasks.held_by(worker_id)))


async def deregister_worker(worker_id: int | str, *, url: str | None = None, key: str | None = None) -> bool:
    """Deregister a worker, and release its tasks; return whether it was known."""
    async with a_context(url, key) as context:
        is_known = await _is_known(context.backend.deregister_worker(str(worker_id)))
    claimed_tasks.forget_worker(worker_id)
    return is_known


async def _is_known(request: Awaitable[object]) -> bool:
    try:
        await request
    except WorkerExpired:
        return False
    return True


async def list_workers(
    status: WorkerStatus | str | None = None, *, url: str | None = None, key: str | None = None
) -> list[WorkerInfo]:
    """Return workers by id: those with this status ("active", or a `WorkerStatus`), or all.

    All are those that are alive, with work (`WorkerStatus.ACTIVE`) or without (`IDLE`), and those that
    stopped or died within the last hour (`STOPPED`), at most the last 200 of these. One of `register_worker`
    is always `ACTIVE` while it is alive. A worker that was killed counts as alive until its lease ends. An
    hour after its last heartbeat it is not listed any more.
    """
    only = None if status is None else _parse_status(status)
    async with a_context(url, key) as context:
        views = (await context.backend.call(fleet.fleet)).workers
    workers = [_worker_info(view) for view in sorted(views, key=lambda view: int(view.worker_id))]
    return [worker for worker in workers if only in {None, worker.status}]


async def health_check(*, url: str | None = None, key: str | None = None) -> Health:
    """Check the database, its schema, orchestrators, workers, queues and stale tasks: true if all work.

    If the server or the database cannot be used at all, that is the only part, with the reason in `details`.
    """
    try:
        async with a_context(url, key) as context:
            view = await context.backend.check_health()
    except DagmasterError as error:
        if error.category is not Category.UNAVAILABLE:
            raise
        part = "server" if isinstance(error, ServerUnavailable) else "database"
        return Health({part: False}, {part: str(error)})
    parts = view.parts.items()
    states = {name: part.state is HealthState.HEALTHY for name, part in parts}
    return Health(states, {name: part.detail for name, part in parts})


def _parse_status(text: str) -> WorkerStatus:
    try:
        return WorkerStatus(str(text).upper())
    except ValueError:
        names = ", ".join(status.lower() for status in WorkerStatus)
        raise QueryInvalid(
            f"{str(text)[:100]!r} is not a status of a worker: {names}", field="status"
        ) from None


def _worker_info(view: WorkerRecord) -> WorkerInfo:
    is_busy = view.running or view.version == EXTERNAL_VERSION
    status = WorkerStatus.ACTIVE if is_busy else WorkerStatus.IDLE
    now = datetime.now(UTC)
    counters = {name: count for name, count in view.counters.items() if isinstance(count, int)}
    return WorkerInfo(
        id=int(view.worker_id),
        hostname=view.host,
        pid=view.pid,
        status=status if view.is_alive else WorkerStatus.STOPPED,
        silent_seconds=view.silent_seconds,
        lease_seconds=view.lease_seconds,
        tasks_completed=counters.get("completed", 0),
        tasks_failed=counters.get("failed", 0),
        started_at=now - timedelta(seconds=view.age_seconds),
        last_heartbeat=now - timedelta(seconds=view.silent_seconds),
    )
