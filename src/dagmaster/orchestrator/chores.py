"""Chores of orchestrators: what any of them does now and then for all, beside its own jobs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dagmaster.errors import DatabaseUnavailable, StatementFailed
from dagmaster.orchestrator import job_log

if TYPE_CHECKING:
    from dagmaster.ports.orchestrator_store import OrchestratorStore

_LOGGER = logging.getLogger("dagmaster.orchestrator")


async def expire_workers(store: OrchestratorStore) -> None:
    """Mark the tasks of dead workers as lost, and release those that were requested to stop."""
    if job_ids := await store.mark_lost_tasks():
        job_log.log_lost_tasks(job_ids)
    await store.release_stopped()


async def roll_up_metrics(store: OrchestratorStore) -> None:
    """Count finished jobs until none waits. Jobs never wait for it, nor do they stop if it fails."""
    try:
        while await store.roll_up_metrics():
            pass
    except (StatementFailed, DatabaseUnavailable) as error:
        _LOGGER.warning("%s; finished jobs are counted in the metrics later", error)
