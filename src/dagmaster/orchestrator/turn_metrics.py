"""Counts what committed turns did, for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.events import JobStarted, TaskLost
from dagmaster.engine.status import JobStatus
from dagmaster.host.snowflakes import time_of

if TYPE_CHECKING:
    from dagmaster.engine.model import Job
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.telemetry.prometheus import ProcessMetrics

_FINISHED: Final = {
    JobStatus.COMPLETED: "dagmaster_jobs_completed_total",
    JobStatus.FAILED: "dagmaster_jobs_failed_total",
    JobStatus.CANCELLED: "dagmaster_jobs_cancelled_total",
}
_LATER: Final = (*_FINISHED.values(), "dagmaster_attempts_lost_total")


class TurnMetrics:
    """An observer of turns. Ids are made by the clock of the store."""

    def __init__(self, metrics: ProcessMetrics, store: OrchestratorStore) -> None:
        self._metrics = metrics
        self._store = store

    def turn(self, job: Job, result: TurnResult) -> None:
        metrics, workflow = self._metrics, job.graph.workflow_id
        for _, event in result.events:
            if isinstance(event, JobStarted):
                metrics.count("dagmaster_jobs_created_total", workflow)
                for name in _LATER:
                    # From zero on: Prometheus does not see an increase in a series that begins with 1.
                    metrics.count(name, workflow, amount=0)
            elif isinstance(event, TaskLost):
                metrics.count("dagmaster_attempts_lost_total", workflow)
        for task in result.tasks:
            metrics.count("dagmaster_tasks_created_total", task.task.queue)
        if result.finished is not None:
            metrics.count(_FINISHED[result.finished.status], workflow)
            if job.run == 1:
                seconds = max(0.0, self._store.clock.now() - time_of(job.id))
                metrics.observe("dagmaster_job_duration_seconds", workflow, seconds=seconds)
