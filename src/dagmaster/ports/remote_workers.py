"""Workers without a connection to the store: a server acts for them, whatever server their requests reach.

Such a worker is registered like any other: its heartbeat keeps its lease, and its tasks are lost when it is
silent. It has the three roles of a worker (`task_source`, `task_ledger`, `task_journal`), and a server adds
what a worker with a connection knows by itself: which tasks it holds, and what it has reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from dagmaster.ports.task_journal import TaskJournal
from dagmaster.ports.task_ledger import TaskLedger
from dagmaster.ports.task_source import TaskSource
from dagmaster.ports.tasks import Task

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dagmaster.engine.status import AttemptStatus
    from dagmaster.ports.handler_contracts import HandlerContracts, HandlerOffer
    from dagmaster.ports.task_ledger import HeartbeatAnswer, TaskReport
    from dagmaster.ports.task_source import ClaimedTask


HTTP_VERSION: Final = "http"
"""The version of a worker that does not say one: it is not software of this project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    """A worker to register. No queues: it serves every queue.

    `registered_by`: the id of the key that alone may act for it; names of keys are not unique.
    """

    registered_by: str
    host: str
    pid: int = 0
    version: str = ""
    queues: tuple[str, ...] = ()
    concurrency: int = 1
    handlers: Mapping[str, str] = field(default_factory=dict)
    """The version of each handler that it may have, by name: it gets tasks of these only."""
    offer: HandlerOffer | None = None
    """What it offers, to compare again; None: what it has does not change."""

    @property
    def offered(self) -> dict[str, str]:
        """Return the version of each handler that it offers, by name."""
        return {} if self.offer is None else {one.name: one.version for one in self.offer.definitions}


@dataclass(slots=True, kw_only=True)
class HeldTask(Task):
    """A task that a worker holds. `is_stopping`: it has to stop."""

    token: int
    attempt: int
    secrets: str | None
    is_stopping: bool
    running_seconds: float
    timeout_seconds: float
    progress: str | None


class RemoteWorker(TaskSource, TaskLedger, TaskJournal, Protocol):
    """A registered worker."""

    handlers: Mapping[str, str]

    @property
    def id(self) -> str:
        """Return its worker id."""

    async def renew(self, held: Collection[str]) -> HeartbeatAnswer | None:
        """Renew the lease like a heartbeat; the list of held tasks may be old: release none for it."""

    async def claim_exclusive(self) -> ClaimedTask | None:
        """Claim an exclusive task if the store knows no task that this worker holds.

        Parallel claims wait for it.
        """

    async def claim_handled(self, limit: int) -> list[ClaimedTask]:
        """Claim up to `limit` tasks whose handler the worker has: it releases none to others.

        A worker that holds an exclusive task gets none.
        """

    async def refresh_handlers(self) -> None:
        """Read which handlers the worker may have now, unless that was read a moment ago."""

    async def keep_fingerprints(self, fingerprints: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
        """Store fingerprints of the secrets that tasks got, by task and with its token."""

    def waiting(self) -> AbstractContextManager[asyncio.Event]:
        """Provide the wake-up of one request that waits for tasks, instead of `wakeup`.

        Of the requests that wait for the same tasks, one is woken. It leaves the event set where more tasks
        may be left: then the next request is woken.
        """

    async def report_with_receipts(self, reports: Sequence[TaskReport]) -> set[str]:
        """Report outcomes, and keep receipts of those that are accepted, in one transaction; return these."""

    def count(self, counter: str, number: int = 1) -> None:
        """Add to a counter that the fleet shows of a worker. It is stored with a later heartbeat."""

    async def overdue_tasks(self, task_ids: Collection[str], grace_seconds: float) -> list[HeldTask]:
        """Return the held tasks among these that have run for longer than their timeout and the grace."""

    async def held_task(self, task_id: str, token: int) -> HeldTask | None:
        """Return a task while this worker holds it under this token."""


class RemoteWorkers(Protocol):
    """Registers such workers and finds them again. Every method raises `DatabaseUnavailable`."""

    def for_tenant(self, tenant: str) -> RemoteWorkers:
        """Return the workers of a tenant, which claim its tasks alone, over the same connections."""

    @property
    def contracts(self) -> HandlerContracts:
        """Return whose contracts of handlers are."""

    async def register(self, worker: NewWorker) -> str:
        """Register a worker as alive; return its id."""

    async def find(self, worker_id: str, registered_by: str) -> RemoteWorker | None:
        """Return a worker that this caller registered, unless it has expired or stopped."""

    async def receipt(self, task_id: str, token: int) -> AttemptStatus | None:
        """Return what was reported of a task under this token in the last days, also by an expired worker."""
