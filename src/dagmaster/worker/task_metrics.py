"""Counts the tasks whose reports were accepted, for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.status import AttemptStatus
from dagmaster.host.clocks import loop_time

if TYPE_CHECKING:
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.telemetry.prometheus import ProcessMetrics

_COUNTERS: Final = {
    AttemptStatus.COMPLETED: "dagmaster_tasks_completed_total",
    AttemptStatus.FAILED: "dagmaster_tasks_failed_total",
}


class TaskMetrics:
    """An observer of the tasks that a worker holds."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics
        # When each task was dispatched, by the clock of this loop.
        self._dispatched: dict[str, float] = {}

    def claimed(self, task: ClaimedTask) -> None:
        self._dispatched[task.task_id] = loop_time() - max(0.0, task.claimed_at - task.dispatched_at)

    def ended(self, task: ClaimedTask, report: TaskReport, *, is_accepted: bool) -> None:
        """Count a task that this worker does not hold any more."""
        dispatched_at = self._dispatched.pop(task.task_id, None)
        counter = _COUNTERS.get(report.status)
        if not is_accepted or counter is None:
            return
        metrics, handler = self._metrics, task.handler
        metrics.count(counter, handler)
        if report.running_seconds is not None:
            metrics.observe("dagmaster_worker_task_execution_time", handler, seconds=report.running_seconds)
        if dispatched_at is not None:
            metrics.observe("dagmaster_task_duration_seconds", handler, seconds=loop_time() - dispatched_at)
