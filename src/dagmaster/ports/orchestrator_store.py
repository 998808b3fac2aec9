"""The orchestrator's port to the store: ownership of jobs, their pending input, and the commit of turns.

The store persists, fences and wakes up; it makes no decisions. JSON crosses as text wherever it need not be
parsed. Every method raises `DatabaseUnavailable` if the store cannot be reached; the call then took effect as
a whole or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dagmaster.ports.reusable_results import ReusableResults

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.node_values import ValueKey
    from dagmaster.ports.turn_records import Command, TaskResult, TurnCommit


class OrchestratorStore(ReusableResults, Protocol):
    """What an orchestrator needs."""

    wakeup: asyncio.Event
    """Set when something may wait for this orchestrator; `pending_kinds` says what: results, commands, jobs,
    drain."""

    pending_kinds: set[str]

    notified_results: list[TaskResult]
    """Results from notifications. Possibly stale or for jobs of other owners; the commit verifies them."""

    on_disconnect: Callable[[], None]
    """Called when a connection to the store was lost."""

    @property
    def clock(self) -> Clock:
        """Return the clock of the store, which decides about leases and timers."""

    @property
    def ids(self) -> Ids:
        """Return the source of new ids."""

    async def register(self) -> None:
        """Register as alive under a new owner id. A request to drain the registration before is kept."""

    async def heartbeat(self, counters: Mapping[str, Any]) -> bool:
        """Renew the lease; return whether this orchestrator has to drain.

        Raise `OwnershipLost` if the lease has expired: then every job has to be dropped.
        """

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        """Claim up to `limit` unowned jobs by priority, then age; with a queue, only jobs of this queue.

        None while this orchestrator drains.
        """

    async def claim_job(self, job_id: str) -> list[ClaimedJob]:
        """Claim this job if nobody owns it, and it is open or has a command; return it, or nothing."""

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        """Load owned jobs, all or some, under a new epoch: after a call whose effect is not known."""

    async def read_results(
        self, limit: int, quarantined: Collection[str] = (), *, after: int = 0
    ) -> list[TaskResult]:
        """Read task results of owned jobs, but not of quarantined ones.

        They stay until a turn commits them.
        """

    async def read_commands(self, limit: int | None, quarantined: Collection[str] = ()) -> list[Command]:
        """Read commands to owned jobs, but not to quarantined ones. They stay until a turn commits them."""

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        """Commit turns; return the ids of the jobs whose turn was accepted.

        The others are unchanged: they are not owned any more, or a notified result of them is not stored.
        """

    async def load_outputs(self, job_id: str, node_ids: Collection[str]) -> Mapping[str, JsonValue]:
        """Load outputs: see `ports.node_values.Values`."""

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, JsonValue]:
        """Load values of fan-outs."""

    async def blob_bytes(
        self, job_id: str, node_ids: Collection[str], reported: Collection[JsonText] = ()
    ) -> int:
        """Return the size of the stored and reported outputs of nodes that are blobs; others are short."""

    async def owned_job_ids(self) -> set[str]:
        """Return the ids of the jobs that this orchestrator owns."""

    async def reclaim(self) -> list[str]:
        """Expire dead orchestrators and release their jobs; return the ids of these jobs, in order."""

    async def mark_lost_tasks(self) -> list[str]:
        """Mark tasks of expired workers as lost; return the job id of each, in order."""

    async def release_stopped(self) -> int:
        """Release unclaimed tasks that were requested to stop; return how many."""

    async def roll_up_metrics(self) -> int:
        """Count a batch of finished jobs in the metrics; return how many, 0 if another process counts."""

    async def prune_metrics(self, retention_seconds: float) -> int:
        """Delete a batch of sums of periods that ended longer ago; return how many workflows and periods.

        0 if there are none, or while another process counts.
        """

    async def collect_handlers(self, older_than_seconds: float) -> int:
        """Remove a batch of contracts of callers whose workers are gone; return how many."""

    async def release_jobs(self) -> int:
        """Release every job, for other orchestrators to claim; return how many."""

    async def deregister(self) -> None:
        """Release every job and deregister."""
