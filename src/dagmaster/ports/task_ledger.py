"""The worker's registration, its heartbeat, and the leases and reports of the tasks it holds.

Every write is fenced by the task's lease token: a worker that lost the lease changes nothing. Every method
raises `DatabaseUnavailable` if the store cannot be reached; the call then took effect as a whole or not at
all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.engine.status import AttemptStatus
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import BatchRows
    from dagmaster.ports.handler_definitions import HandlerDefinition
    from dagmaster.ports.json_text import JsonText

EXCLUSIVE_BUSY_SECONDS: Final = 10.0
"""How long an exclusive task is left to idle workers. Then one that holds tasks lets them finish, and runs
it; a second worker does so after twice this time, and so on."""


@dataclass(slots=True)
class TaskReport:
    """The outcome of a task."""

    task_id: str
    token: int
    status: AttemptStatus
    permanent: bool = False
    output: JsonText | None = None
    error: str | None = None
    metrics: str | None = None
    handler_version: str | None = None
    has_checkpoints: bool = False
    """Whether the attempt saved checkpoints: they are stored with its progress, and read with the result."""
    added_rows: Callable[[int], BatchRows] | None = None
    """Nodes that the attempt added to its job, by the number of their batch: they are stored with the
    report."""
    added_at_once: bool = False
    """Whether the attempt added nodes at once: the row of the result says that commands have to be read
    before it."""
    running_seconds: float | None = None
    """How long its handler ran; None if it never started."""
    returns_to_queue: bool = False
    """A task that never started and keeps its position in the queue: no attempt is recorded."""


class DrainRequest(NamedTuple):
    """A worker has to drain.

    `seconds_left`: until it releases what still runs; None: it lets every task finish.
    """

    seconds_left: float | None = None


class HeartbeatAnswer(NamedTuple):
    """What a worker has to do: tasks to stop, whether to run an exclusive task, and whether to drain.

    `has_exclusive`: a task for a handler of this worker waits that must run alone. A worker that holds other
    tasks learns that only when no idle worker has taken it for a while.
    """

    stops: set[str]
    has_exclusive: bool = False
    drain: DrainRequest | None = None


class TaskLedger(Protocol):
    """The registration of a worker, and the reports of its tasks."""

    stops: asyncio.Event
    """Set when a held task has to stop, or the worker to drain; the next heartbeat returns which."""

    on_disconnect: Callable[[], None]
    """Called when a connection to the store was lost."""

    async def register(
        self, queues: Sequence[str], concurrency: int, handlers: Mapping[str, str] | None = None
    ) -> None:
        """Register as alive under a new worker id. No queues: serve every queue. `handlers`: version by name.

        A request to drain the registration before is kept.
        """

    async def publish_handlers(self, definitions: Sequence[HandlerDefinition]) -> None:
        """Publish what a server without the code of handlers needs; if it is published already, one read."""

    async def heartbeat(
        self, held: Collection[str], counters: Mapping[str, JsonValue]
    ) -> HeartbeatAnswer | None:
        """Renew the lease; return what to do. To stop are also held tasks that this worker no longer holds.

        Return None if this worker has expired: it holds nothing any more.
        """

    async def other_worker_has_handler(self, task_id: str, *, by_package: bool = True) -> bool:
        """Return whether another live worker serves the queue of this task and has its handler.

        One that offers it and waits for an administrator to trust it counts. `by_package`: or has a package
        that may have it (`engine/served_handlers.py`). If so, this worker claims no tasks of the handler for
        some seconds: it would claim what it releases again, before the other can.
        """

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        """Report outcomes; return the tasks that were still held."""

    async def release(self, reports: Sequence[TaskReport]) -> set[str]:
        """Release tasks that never started, keeping their position in the queue; no attempt is recorded.

        Return the released tasks: not those that are no longer held, nor those that have to stop.
        """

    async def deregister(self) -> None:
        """Release all claimed tasks and deregister."""
