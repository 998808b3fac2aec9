"""Delivery of reports: heartbeat counters, reports and releases, and reports that the store rejects or drops."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import AttemptStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.errors import StatementFailed
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.task_ledger import TaskLedger, TaskReport

_LOGGER = logging.getLogger("dagmaster.worker")


MAX_NAMED: Final = 256
"""Most running tasks that a heartbeat lists by id; more are only counted."""


def heartbeat_counters(
    counters: Mapping[str, int], begun: Mapping[str, float], processes: int, busy: int, *, draining: bool
) -> JsonObject:
    """Return the counters of a heartbeat, with the running tasks and how long each has run."""
    details: dict[str, Any] = {"begun": begun} if len(begun) <= MAX_NAMED else {}
    if processes:
        details |= {"processes": processes, "processes_busy": min(busy, processes)}
    return {**counters, "running": len(begun), "draining": draining, **details}


async def deliver_reports(ledger: TaskLedger, reports: list[TaskReport]) -> set[str]:
    """Report tasks and release those that never started; return the accepted ones."""
    unstarted = [report for report in reports if not report.begun]
    if not unstarted:
        return await ledger.report(reports)
    released = await ledger.release(unstarted)
    rest = [report for report in reports if report.task_id not in released]
    return released | await ledger.report(rest) if rest else released


def counter_of(report: TaskReport) -> str:
    """Return the counter of a report. A task that stopped when asked to has not failed."""
    if report.status == AttemptStatus.FAILED and report.error and json.loads(report.error).get("kind") == "cancelled":
        return "stopped"
    return report.status.lower()


def mark_rejected(report: TaskReport, error: StatementFailed) -> None:
    """Turn a report that the database rejected into a failure with the reason."""
    _LOGGER.error("the report of task %s was rejected; the task fails: %s", report.task_id, error)
    report.status, report.permanent, report.output, report.metrics = AttemptStatus.FAILED, True, None, None
    report.error = json.dumps({"kind": "internal", "message": f"the report was rejected: {error}"})


def log_dropped(task_ids: list[str], *, is_unanswered: bool) -> None:
    """Log reports that the store did not accept."""
    if is_unanswered:
        # The commit may have succeeded, and only the response was lost.
        message = "%d reports arrived before the connection was lost, or other workers hold their tasks: %s"
        _LOGGER.info(message, len(task_ids), task_ids[:3])
    else:
        _LOGGER.warning("%d reports dropped; their tasks are held by other workers: %s", len(task_ids), task_ids[:3])
