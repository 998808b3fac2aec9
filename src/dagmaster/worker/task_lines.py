"""The lines of a worker's own log about tasks. Each has the ids of the task, also as fields of the record."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dagmaster.telemetry.logs import MAX_IDS, task_fields
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.ports.task_source import ClaimedTask

_LOGGER = logging.getLogger("dagmaster.worker")


def log_task(level: int, sentence: str, task: TaskMessage | ClaimedTask, *, has_error: bool = False) -> None:
    """Log a sentence about a task, whose subject is its handler.

    `has_error`: with the exception of this moment.
    """
    _LOGGER.log(level, "handler %s %s", task.handler, sentence, exc_info=has_error, extra=task_fields(task))


def log_blocked(tasks: Sequence[ClaimedTask], blocker_id: str) -> None:
    """Log that one of the tasks on an event loop blocked it, and what becomes of the others."""
    for task in tasks:
        if task.task_id == blocker_id:
            others = f"its thread is abandoned and {len(tasks) - 1} other tasks are released"
            log_task(logging.ERROR, f"blocks the event loop; {others}", task)


def log_dropped(tasks: Sequence[ClaimedTask], *, is_unanswered: bool) -> None:
    """Log reports that the store did not accept."""
    fields = _fields_of(tasks)
    if is_unanswered:
        # The commit may have succeeded, and only the response was lost.
        message = "%d reports arrived before the connection was lost, or other workers hold their tasks"
        _LOGGER.info(message, len(tasks), extra=fields)
    else:
        _LOGGER.warning("%d reports dropped; their tasks are held by other workers", len(tasks), extra=fields)


def log_unfinished(tasks: Sequence[ClaimedTask], seconds: float) -> None:
    """Log what a worker still holds when the time for its shutdown is over."""
    message = "shutdown timeout (%g s) exceeded; %s will be reclaimed"
    _LOGGER.warning(message, seconds, format_count(len(tasks), "remaining task"), extra=_fields_of(tasks))


def _fields_of(tasks: Sequence[ClaimedTask]) -> dict[str, Any]:
    named = tasks[:MAX_IDS]
    return {
        "task_ids": [task.task_id for task in named],
        "nodes": [f"{task.job_id}/{task.node_id}" for task in named],
    }
