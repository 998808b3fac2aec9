"""When an orchestrator polls: when it is woken, and at intervals, because a notification may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.ports.default_settings import (
    ORCHESTRATOR_LEASE_SECONDS,
    POLL_SECONDS,
    RECONNECT_MAX_SECONDS,
    WORKER_LEASE_SECONDS,
)

if TYPE_CHECKING:
    from dagmaster.ports.orchestrator_store import OrchestratorStore

FIRST_SECONDS: Final = 0.05
LAST_SECONDS: Final = 0.5


class ClaimScope(NamedTuple):
    """The jobs that an orchestrator may claim: all, those of a queue, or one for a process that serves it."""

    queue: str | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The intervals of an orchestrator's polls, heartbeats and scans, and how long it keeps metrics."""

    poll_seconds: float = POLL_SECONDS
    heartbeat_seconds: float = ORCHESTRATOR_LEASE_SECONDS / 3
    scan_seconds: float = ORCHESTRATOR_LEASE_SECONDS / 3
    worker_scan_seconds: float = WORKER_LEASE_SECONDS / 6
    max_backoff_seconds: float = RECONNECT_MAX_SECONDS
    metric_retention_seconds: float | None = None


class PollSchedule:
    """Decides what to poll, and when next. A wake-up never postpones a poll."""

    def __init__(self, store: OrchestratorStore, poll_seconds: float) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._poll_at = 0.0
        self._recheck = self._recheck_at = inf
        self._has_finished_jobs = False

    def due(self) -> set[str]:
        """Return the kinds to read now: the notified ones, and all of them once in a poll interval."""
        store, now = self._store, self._store.clock.now()
        store.wakeup.clear()
        waiting = set(store.pending_kinds)
        store.pending_kinds.clear()
        if now >= self._poll_at:
            self._poll_at = now + self._poll_seconds
            waiting.update(("results", "commands", "jobs"))
        if now >= self._recheck_at:
            waiting.add("jobs")
        if self._has_finished_jobs and "commands" in waiting:
            # The command may be for one of them. It was sent to its owner, has none now, and is claimed for
            # it.
            self._has_finished_jobs = False
            waiting.add("jobs")
        return waiting

    def on_claim(self, *, has_jobs: bool) -> None:
        """Claim again at once after a claim with jobs, and a few times soon after it.

        A job that is stored during a claim may have sent no notification.
        """
        if has_jobs:
            self._store.pending_kinds.add("jobs")
            self._store.wakeup.set()
            self._recheck = FIRST_SECONDS
        elif self._recheck > LAST_SECONDS:
            self._recheck = inf
        else:
            self._recheck *= 4
        self._recheck_at = self._store.clock.now() + self._recheck

    def on_finish(self) -> None:
        """Record that a job has finished: commands that are sent to it now reach no owner."""
        self._has_finished_jobs = True

    def next_poll_at(self) -> float:
        return min(self._poll_at, self._recheck_at)
