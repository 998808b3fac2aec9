"""What becomes of reports: how they are counted, what is said of those that are refused or not taken."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagmaster.errors import StatementFailed
    from dagmaster.ports.store import TaskReport

_LOGGER = logging.getLogger("dagmaster.worker")


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
