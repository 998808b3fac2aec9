"""What a worker tells: how it is, what became of its tasks, and what is said of reports that are not taken."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.errors import StatementFailed
    from dagmaster.ports.task_ledger import TaskLedger, TaskReport

_LOGGER = logging.getLogger("dagmaster.worker")


MAX_NAMED: Final = 256
"""So many tasks that run are named in a heartbeat; more are only counted."""


def said(
    counters: Mapping[str, int], begun: Mapping[str, float], processes: int, apart: int, *, draining: bool
) -> dict[str, Any]:
    """What is told with a heartbeat: the counters, and which of the held tasks run, since how many seconds."""
    named: dict[str, Any] = {"begun": begun} if len(begun) <= MAX_NAMED else {}
    if processes:
        named |= {"processes": processes, "processes_busy": min(apart, processes)}
    return {**counters, "running": len(begun), "draining": draining, **named}


async def send(ledger: TaskLedger, reports: list[TaskReport]) -> set[str]:
    """Report tasks, and let go of those that never began; give those that were still held."""
    unbegun = [report for report in reports if not report.begun]
    if not unbegun:
        return await ledger.report(reports)
    free = await ledger.release(unbegun)
    rest = [report for report in reports if report.task_id not in free]
    return free | await ledger.report(rest) if rest else free


def end_of(report: TaskReport) -> str:
    """Under which counter a report is counted. What was asked to stop, and did, has not failed."""
    if report.status == "FAILED" and report.error and json.loads(report.error).get("kind") == "cancelled":
        return "stopped"
    return report.status.lower()


def refuse(report: TaskReport, error: StatementFailed) -> None:
    """The database does not take this report: its task fails, with the reason."""
    _LOGGER.error("the report of task %s was refused: %s", report.task_id, error)
    report.status, report.permanent, report.output, report.metrics = "FAILED", True, None, None
    report.error = json.dumps({"kind": "internal", "message": f"the report was refused: {error}"})


def tell_dropped(task_ids: list[str], *, is_unanswered: bool) -> None:
    """Say that reports were not taken."""
    if is_unanswered:
        # The commit may have arrived, and only its answer was lost.
        said = "%d reports had arrived before the connection was lost, or others hold these tasks by now: %s"
        _LOGGER.info(said, len(task_ids), task_ids[:3])
    else:
        _LOGGER.warning("%d reports are dropped, others hold these tasks by now: %s", len(task_ids), task_ids[:3])
