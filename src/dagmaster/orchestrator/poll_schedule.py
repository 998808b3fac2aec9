"""When an orchestrator looks for what: when it was woken, and now and then, because a wake-up may be lost."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dagmaster.ports.orchestrator_store import OrchestratorStore

FIRST_SECONDS: Final = 0.05
LAST_SECONDS: Final = 0.5


class PollSchedule:
    """Knows what to look for, and until when nothing is to be done. Its times stand: no wake-up moves them on."""

    def __init__(self, store: OrchestratorStore, poll_seconds: float) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._poll_at = 0.0
        self._recheck = self._recheck_at = inf

    def waiting(self) -> set[str]:
        """What to look for: what was heard of; and all of it once a poll, also when there is no quiet moment."""
        store, now = self._store, self._store.clock.now()
        store.wakeup.clear()
        waiting = set(store.pending_kinds)
        store.pending_kinds.clear()
        if now >= self._poll_at:
            self._poll_at = now + self._poll_seconds
            waiting.update(("results", "commands", "jobs"))
        if now >= self._recheck_at:
            waiting.add("jobs")
        return waiting

    def has_claimed(self, *, some: bool) -> None:
        """A job that was stored while a claim ran may have found another waiting, and woken nobody: look again soon."""
        self._recheck = FIRST_SECONDS if some else (inf if self._recheck > LAST_SECONDS else self._recheck * 4)
        self._recheck_at = self._store.clock.now() + self._recheck

    def until(self) -> float:
        """When to look next, if nobody is woken."""
        return min(self._poll_at, self._recheck_at)
