"""The results of an orchestrator's jobs, notified or read. Each result is delivered once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.turn_records import TaskResult, TurnCommit

MAX_RESULTS: Final = 4_000
PREFETCH_THRESHOLD: Final = 200
"""With so many results at once, more are likely: they are prefetched while the turn is committed."""

FULL_READ_EVERY: Final = 5
"""Every so many full batches all results are read again, because a smaller id may be committed later."""

DEDUP_SIZE: Final = 4_000
"""The number of delivered results in each of two generations that are remembered for deduplication."""


class ResultReader:
    """Reads results and deduplicates them: a notified result may have been read a moment ago."""

    def __init__(self, store: OrchestratorStore) -> None:
        self._store = store
        self._prefetched: list[TaskResult] = []
        self._full_reads = 0
        self._delivered: set[int] = set()
        self._delivered_before: set[int] = set()

    def clear(self) -> None:
        """Forget everything: all results are read again."""
        self._prefetched.clear()
        self._store.notified_results.clear()
        self._delivered.clear()
        self._delivered_before.clear()

    async def read(self, waiting: Collection[str], quarantined: Collection[str]) -> list[TaskResult]:
        """Return the stored results, if it is time to read."""
        if "results" not in waiting:
            return []
        results, self._prefetched = self._prefetched, []
        if not results:
            results = await self._store.read_results(MAX_RESULTS, quarantined)
        self._remember(results)
        return results

    def take_notified(self) -> list[TaskResult]:
        """Return the notified results that were not delivered yet."""
        inbox = self._store.notified_results
        if not inbox:
            return []
        old, older = self._delivered, self._delivered_before
        new = {result.id: result for result in inbox if result.id not in old and result.id not in older}
        inbox.clear()
        results = list(new.values())
        self._remember(results)
        return results

    def _remember(self, results: Sequence[TaskResult]) -> None:
        if len(self._delivered) > DEDUP_SIZE:
            self._delivered, self._delivered_before = set(), self._delivered
        self._delivered.update([result.id for result in results])

    def should_prefetch(self, turns: Sequence[TurnCommit]) -> bool:
        """Return whether the next results are to be read while these turns are committed."""
        taken = sum(len(turn.results) for turn in turns)
        self._full_reads = self._full_reads + 1 if taken >= PREFETCH_THRESHOLD else 0
        return self._full_reads % FULL_READ_EVERY > 0

    @contextlib.asynccontextmanager
    async def prefetching(
        self, turns: Sequence[TurnCommit], quarantined: Collection[str]
    ) -> AsyncIterator[asyncio.Task[bool]]:
        """Prefetch while turns are committed; do not prefetch past a turn that was not committed."""
        task = asyncio.create_task(self.prefetch(turns, quarantined))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def prefetch(self, turns: Sequence[TurnCommit], quarantined: Collection[str]) -> bool:
        """Read the results that follow these turns; return whether there are any."""
        last = max(result for turn in turns for result in turn.results)
        self._prefetched = await self._store.read_results(MAX_RESULTS, quarantined, after=last)
        return bool(self._prefetched)
