"""What was reported of an orchestrator's jobs: pushed to it, or read. Each report is given once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.turn_records import TaskResult, TurnCommit

MAX_RESULTS: Final = 4_000
MANY_RESULTS: Final = 200
"""With so many at once there are more in a moment: they are read while the turn is written."""

READS_AHEAD: Final = 5
REMEMBERED: Final = 4_000
"""So many reports that were given are remembered, and as many more."""


class ResultReader:
    """Reads what was reported, and knows what it gave already: what is pushed may have been read a moment ago."""

    def __init__(self, store: OrchestratorStore) -> None:
        self._store = store
        self._ahead: list[TaskResult] = []
        self._times_ahead = 0
        self._given: set[int] = set()
        self._given_before: set[int] = set()

    def forget(self) -> None:
        """Everything is read anew."""
        self._ahead.clear()
        self._store.notified_results.clear()
        self._given.clear()
        self._given_before.clear()

    def is_due(self, waiting: Collection[str]) -> bool:
        """Whether there is something to take."""
        return "results" in waiting or bool(self._store.notified_results)

    async def read(self, waiting: Collection[str], resting: Collection[str]) -> list[TaskResult]:
        """What is stored, if it is time to read."""
        if "results" not in waiting:
            return []
        results, self._ahead = self._ahead, []
        if not results:
            results = await self._store.read_results(MAX_RESULTS, resting)
        self._remember(results)
        return results

    def take_notified(self) -> list[TaskResult]:
        """What was pushed, and not given yet."""
        waiting = self._store.notified_results
        found = {each.id: each for each in waiting if each.id not in self._given and each.id not in self._given_before}
        waiting.clear()
        results = list(found.values())
        self._remember(results)
        return results

    def _remember(self, results: Sequence[TaskResult]) -> None:
        if len(self._given) > REMEMBERED:
            self._given, self._given_before = set(), self._given
        self._given.update([result.id for result in results])

    def are_more(self, turns: Sequence[TurnCommit]) -> bool:
        """Whether the next results are to be read while these turns are written.

        A number that was given earlier may be committed later, so every few times all are read again.
        """
        in_hand = sum(len(turn.results) for turn in turns)
        self._times_ahead = self._times_ahead + 1 if in_hand >= MANY_RESULTS else 0
        return self._times_ahead % READS_AHEAD > 0

    async def read_on(self, turns: Sequence[TurnCommit], resting: Collection[str]) -> bool:
        """Read the results after the ones in hand. Whether there are any."""
        last = max(result for turn in turns for result in turn.results)
        self._ahead = await self._store.read_results(MAX_RESULTS, resting, after=last)
        return bool(self._ahead)
