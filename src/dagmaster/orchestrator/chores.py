"""Chores of orchestrators: what any of them does now and then for all, besides its own jobs."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DatabaseUnavailable, StatementFailed
from dagmaster.orchestrator import job_log

if TYPE_CHECKING:
    from dagmaster.ports.orchestrator_store import OrchestratorStore

PRUNE_SECONDS: Final = 3600.0
"""How often an orchestrator looks for metrics that are too old."""
COLLECT_SECONDS: Final = 3600.0
"""How often an orchestrator looks for contracts of handlers that nobody uses."""
UNUSED_SECONDS: Final = 7 * 86_400.0
"""How long after its publication the contract of a worker that is gone is kept."""
_LOGGER = logging.getLogger("dagmaster.orchestrator")


async def expire_workers(store: OrchestratorStore) -> None:
    """Mark the tasks of dead workers as lost, and release those that were requested to stop."""
    if job_ids := await store.mark_lost_tasks():
        job_log.log_lost_tasks(job_ids)
    await store.release_stopped()


class HandlerCollector:
    """Removes contracts of handlers that callers published, and whose workers are gone, now and then."""

    def __init__(self, store: OrchestratorStore) -> None:
        self._store = store
        self._collect_at = -inf

    async def run_once(self) -> None:
        """Remove a batch if it is time. Jobs never wait for it, nor do they stop if it fails."""
        now = self._store.clock.now()
        if now < self._collect_at:
            return
        self._collect_at = now + COLLECT_SECONDS
        try:
            while await self._store.collect_handlers(UNUSED_SECONDS):
                pass
        except (StatementFailed, DatabaseUnavailable) as error:
            _LOGGER.warning("%s; unused contracts of handlers are removed later", error)


class MetricRollup:
    """Counts finished jobs, and now and then deletes sums that are older than `retention_seconds`, if given.

    Jobs never wait for it, nor do they stop if it fails.
    """

    def __init__(self, store: OrchestratorStore, retention_seconds: float | None = None) -> None:
        self._store = store
        self._retention_seconds = retention_seconds
        self._prune_at = -inf

    async def run_once(self) -> None:
        """Count until no job waits, and prune if it is time."""
        try:
            while await self._store.roll_up_metrics():
                pass
            await self._prune()
        except (StatementFailed, DatabaseUnavailable) as error:
            _LOGGER.warning("%s; finished jobs are counted in the metrics later", error)

    async def _prune(self) -> None:
        now = self._store.clock.now()
        if self._retention_seconds is None or now < self._prune_at:
            return
        self._prune_at = now + PRUNE_SECONDS
        while await self._store.prune_metrics(self._retention_seconds):
            pass
