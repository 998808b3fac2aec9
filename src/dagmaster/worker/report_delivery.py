"""Delivery of reports: in batches, until the store has accepted or dropped them.

And the counters of a heartbeat.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import DatabaseUnavailable, StatementFailed
from dagmaster.telemetry.logs import task_fields
from dagmaster.worker.queue_throughput import QueueThroughput
from dagmaster.worker.task_lines import log_dropped, log_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dagmaster.errors import DagmasterError
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.task_ledger import TaskLedger, TaskReport
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.worker.held_tasks import HeldTasks
    from dagmaster.worker.telemetry_buffer import TelemetryBuffer
    from dagmaster.worker.telemetry_flush import TelemetryFlush

_LOGGER = logging.getLogger("dagmaster.worker")

BATCH_ABOVE_PER_SECOND: Final = 1_000.0
BATCH_SECONDS: Final = 0.003
"""Above this rate of tasks, a report waits this long for others, unless nothing else runs."""


_COUNTERS: Final = {status: status.lower() for status in AttemptStatus} | {AttemptStatus.LOST: "released"}


class ReportDelivery:
    """Delivers the reports of a worker, and lets go of a task when its report is accepted or dropped."""

    def __init__(
        self,
        ledger: TaskLedger,
        held: HeldTasks,
        telemetry: TelemetryBuffer,
        flush: TelemetryFlush,
        counters: dict[str, int],
        *,
        back_off: Callable[[DagmasterError], Awaitable[None]],
        enqueue: Callable[[list[ClaimedTask]], None],
        on_delivery: Callable[[], None],
    ) -> None:
        self._ledger, self._held, self._telemetry, self._flush = ledger, held, telemetry, flush
        self._counters = counters
        self.throughput = QueueThroughput()
        self._back_off = back_off
        self._enqueue = enqueue
        self._on_delivery = on_delivery
        # May change a report before it is delivered.
        self.judge: Callable[[TaskReport], None] | None = None
        self._reports: list[TaskReport] = []
        self._has_reports = asyncio.Event()

    def add(self, reports: list[TaskReport]) -> None:
        if self.judge is not None:
            for report in reports:
                self.judge(report)
        self._reports += reports
        self._has_reports.set()

    def add_one(self, report: TaskReport) -> None:
        """Deliver this one with the next batch."""
        self.add([report])

    async def run(self) -> None:
        while True:
            await self._has_reports.wait()
            if self._held.rate > BATCH_ABOVE_PER_SECOND and len(self._held) > len(self._reports):
                # Other tasks finish in a moment: reporting many costs hardly more than reporting one.
                await asyncio.sleep(BATCH_SECONDS)
            self._has_reports.clear()
            reports, self._reports = self._reports, []
            if reports:
                await self._flush.end_files(reports)
                await self._deliver(reports)

    async def _deliver(self, reports: list[TaskReport]) -> None:
        accepted: set[str] | None = None
        is_rejected = is_unanswered = False
        while accepted is None:
            try:
                for report in reports:
                    held = self._held.get(report.task_id)
                    report.token = report.token if held is None else held.token
                    report.added_at_once = report.task_id in self._held.growing
                if self._flush.is_due():
                    await self._flush.run_once({report.task_id for report in reports})
                accepted = await deliver_reports(self._ledger, reports)
            except DatabaseUnavailable as error:
                is_unanswered = True
                await self._back_off(error)
            except StatementFailed as error:
                if len(reports) > 1:
                    # One rejected report must not hold up the others.
                    for report in reports:
                        await self._deliver([report])
                    return
                # Rejected twice: drop it. Its task is released by the next reconciliation.
                accepted = set() if is_rejected else None
                is_rejected = True
                mark_rejected(reports[0], self._held.get(reports[0].task_id), error)
        self._after_delivery(reports, accepted, is_unanswered=is_unanswered)

    def _after_delivery(self, reports: list[TaskReport], accepted: set[str], *, is_unanswered: bool) -> None:
        dropped: list[ClaimedTask] = []
        for report in reports:
            held = self._held.get(report.task_id)
            is_reported = report.task_id in accepted and not report.returns_to_queue
            if held is not None and held.token != report.token and not is_reported:
                # A newer claim replaced this one. A task that never started has to run under it.
                self._enqueue([held]) if report.returns_to_queue else self.add([report])
                continue
            if held is not None:
                self._held.remove(report)
                if held.isolation:
                    log_crash(held, report)
                if is_reported:
                    self.throughput.add(held.queue)
                if self._held.observer is not None:
                    self._held.observer.ended(held, report, is_accepted=report.task_id in accepted)
            self._telemetry.end(report.task_id)
            counter = counter_of(report) if report.task_id in accepted else "dropped"
            self._counters[counter] += 1
            if held is not None and counter == "dropped":
                dropped.append(held)
        if dropped:
            log_dropped(dropped, is_unanswered=is_unanswered)
        self._on_delivery()


def heartbeat_counters(
    counters: Mapping[str, Any],
    running: int,
    processes: int,
    busy: int,
    *,
    draining: bool,
    last_minute: Mapping[str, int],
) -> JsonObject:
    """Return the counters of a heartbeat, with the number of running tasks and of busy processes.

    `last_minute`: how many tasks of each queue finished.
    """
    of_processes = {"processes": processes, "processes_busy": min(busy, processes)} if processes else {}
    return {
        **counters,
        "running": running,
        "draining": draining,
        "finished_last_minute": dict(last_minute),
        **of_processes,
    }


async def deliver_reports(ledger: TaskLedger, reports: list[TaskReport]) -> set[str]:
    """Report tasks and return those to the queue that never started; return the accepted ones."""
    returned = [report for report in reports if report.returns_to_queue]
    if not returned:
        return await ledger.report(reports)
    released = await ledger.release(returned)
    rest = [report for report in reports if report.task_id not in released]
    return released | await ledger.report(rest) if rest else released


def log_crash(task: ClaimedTask, report: TaskReport) -> None:
    """Log an isolated task that crashed its process: it is what killed earlier workers."""
    if report.error and json.loads(report.error).get("kind") == "crashed":
        _LOGGER.warning(
            "node %s of job %s (attempt %d) crashed its process, after workers that ran it had died",
            task.node_id, task.job_id, task.attempt, extra=task_fields(task),
        )  # fmt: skip


def counter_of(report: TaskReport) -> str:
    """Return the counter of a report. A task that stopped when asked to has not failed."""
    if (
        report.error
        and report.status == AttemptStatus.FAILED
        and json.loads(report.error).get("kind") == "cancelled"
    ):
        return "stopped"
    return _COUNTERS[report.status]


def mark_rejected(report: TaskReport, task: ClaimedTask | None, error: StatementFailed) -> None:
    """Turn a report that the database rejected into a failure with the reason."""
    if task is not None:
        log_task(logging.ERROR, f"fails: its report was rejected: {error}", task)
    report.status, report.permanent, report.output, report.metrics = AttemptStatus.FAILED, True, None, None
    # They may be what was rejected.
    report.added_rows = None
    report.error = json.dumps({"kind": "internal", "message": f"the report was rejected: {error}"})
