"""Where a worker's tasks come from: wake-up, claim, rescan. A broker or a remote service implements it.

A source delivers tasks that are claimed already. The claim itself, which gives the task its lease token, is
fenced in the store whatever delivers the message; the token then guards every later write (`task_ledger`,
`task_journal`).

A source and the ledger of its worker belong together: `TaskLedger.register` creates the worker id under which
`claim` claims, and starts the notifications that set `wakeup`. A source does not claim before that, nor after
the ledger has expired or deregistered the worker: a new registration has a new id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from dagmaster.ports.ids import EPOCH_MS
from dagmaster.ports.tasks import NewTask

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection

_FENCE_TIME_BITS: Final = 41


@dataclass(slots=True)
class ClaimedTask(NewTask):
    """A task that this worker holds under a lease token."""

    token: int = field(kw_only=True)
    dispatched_at: float
    checkpoint: str | None = None
    workflow: str = ""
    claimed_at: float = 0.0
    """By the clock of the store, which orders the claims of all workers."""
    trace_parent: str | None = None

    @property
    def fencing_token(self) -> int:
        """Return a number that is greater for every later execution of the node; it fits into a BIGINT.

        The attempt decides: a turn numbers it in a synchronous commit, so it never comes back, whatever
        clocks do. An attempt is executed twice only if the database lost its claim in a crash: then nothing
        of the first claim is left that could be counted up, and the time of the claims, a recovery apart,
        orders them (ADR 0019).
        """
        return (self.attempt << _FENCE_TIME_BITS) + max(0, int(self.claimed_at * 1000) - EPOCH_MS)


class TaskSource(Protocol):
    """Delivers claimed tasks. Methods raise `DatabaseUnavailable` while the source cannot be reached."""

    wakeup: asyncio.Event
    """Set when there may be tasks to claim."""

    async def claim(
        self, limit: int, process_bound: Collection[str] = (), process_slots: int | None = None
    ) -> list[ClaimedTask]:
        """Claim up to `limit` tasks by priority, then age; at most `process_slots` that need a process.

        These are the tasks of `process_bound` handlers and isolated ones. None: this worker has no processes,
        and isolated tasks are claimed like the others. Exclusive tasks are never claimed here. Fewer tasks
        than `limit`, and fewer that need a process than `process_slots`, mean that there are no more.
        """

    async def claim_exclusive(self) -> ClaimedTask | None:
        """Claim one exclusive task whose handler this worker has, if there is one.

        The worker holds no other task.
        """

    def rescan_queues(self) -> None:
        """Make the next claim check every served queue, not only those with a notification."""
