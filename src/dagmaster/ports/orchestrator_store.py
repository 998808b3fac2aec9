"""The orchestrator's port to the store: ownership of jobs, their pending input, and the commit of turns.

The store persists, fences and wakes up; it makes no decisions. JSON crosses as text wherever it need not be parsed.
Every method raises `DatabaseUnavailable` if the store cannot be reached; the call then took effect as a whole or not
at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dagmaster.ports.reusable_results import ReusableResults

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.ports.clock import Clock
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.node_values import ValueKey
    from dagmaster.ports.turn_records import Command, TaskResult, TurnCommit


class OrchestratorStore(ReusableResults, Protocol):
    """What an orchestrator needs."""

    wakeup: asyncio.Event
    """Set when something may wait for this orchestrator; `pending_kinds` says what: results, commands, jobs."""

    pending_kinds: set[str]

    notified_results: list[TaskResult]
    """What came with a wake-up. It may be taken already, or of others' jobs: who writes a turn with it says so."""

    on_disconnect: Callable[[], None]
    """Called when a connection to the store broke off."""

    @property
    def clock(self) -> Clock:
        """Return the store's time, which decides."""

    @property
    def ids(self) -> Ids:
        """New ids."""

    async def register(self) -> None:
        """Be known, as alive."""

    async def heartbeat(self, counters: Mapping[str, Any]) -> None:
        """Stay alive. `OwnershipLost` if others may believe otherwise: then every job is to be dropped."""

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        """Own jobs that nobody owns: the most urgent first, then the oldest. With a queue: jobs of this queue only."""

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        """Load the jobs that this orchestrator owns, under a new epoch: after a doubt."""

    async def read_results(self, limit: int, resting: Collection[str] = (), *, after: int = 0) -> list[TaskResult]:
        """Read what was reported of this orchestrator's jobs, but for those that rest. It stays until it is written."""

    async def read_commands(self, limit: int, resting: Collection[str] = ()) -> list[Command]:
        """Read what was asked of this orchestrator's jobs, likewise."""

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        """Write turns, and give the jobs that were written.

        Of the others nothing changed: they are not held any more, or what was pushed of them is not stored.
        """

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Load values: see `ports.values.Values`."""

    async def owned_job_ids(self) -> set[str]:
        """Return the ids of the jobs that this orchestrator owns."""

    async def reclaim(self) -> int:
        """Let go of the jobs of orchestrators that died, so that anybody may claim them. How many."""

    async def mark_lost_tasks(self) -> int:
        """Report the tasks of workers that died as lost. How many."""

    async def release_stopped(self) -> int:
        """Hand back the tasks that are to stop and that no worker holds. How many."""

    async def deregister(self) -> None:
        """Release every job, and be known as stopped."""
