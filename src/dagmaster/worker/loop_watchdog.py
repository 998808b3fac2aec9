"""Detects an async handler that blocks its loop: no other handler runs there, and no timeout takes effect.

The service's loop pings the handlers' loop, and inspects its thread. Nothing is stopped here, as a thread
cannot be killed: the worker abandons the pool with its thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.engine.graph import DEFAULT_TIMEOUT_SECONDS
from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.worker.task_lines import log_task
from dagmaster.worker.task_log_capture import TASK_LOG
from dagmaster.worker.task_outcomes import NO_RETRY, failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from dagmaster.ports.task_messages import Failed, TaskMessage
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.worker.task_log_capture import TaskLog
    from dagmaster.worker.task_pools import ThreadedTaskPool
    from dagmaster.worker.telemetry_buffer import TelemetryBuffer

WARN_SECONDS: Final = 5.0
INTERVAL_SECONDS: Final = 1.0
MAX_FRAMES: Final = 20

_LOGGER = logging.getLogger("dagmaster.worker")
_STEP: Final = asyncio.Handle._run.__code__  # noqa: SLF001 - has a step's context


class Blocker(NamedTuple):
    """The task that blocks a loop, and its outcome."""

    task: TaskMessage
    outcome: Failed

    @property
    def task_id(self) -> str:
        return self.task.task_id

    def reports(self, tasks: Sequence[ClaimedTask], running_seconds: Mapping[str, float]) -> list[TaskReport]:
        """Return the reports of all tasks of the loop: it fails, the others are released."""
        reports = [
            TaskReport(
                task.task_id,
                task.token,
                AttemptStatus.RELEASED,
                running_seconds=running_seconds.get(task.task_id),
            )
            for task in tasks
        ]
        for report in reports:
            if report.task_id == self.task_id:
                report.status, report.error = AttemptStatus.FAILED, json.dumps(self.outcome.error)
                report.permanent = self.outcome.permanent
        return reports


class LoopWatchdog:
    """Watches one pool. Call `check` every `interval_seconds`."""

    def __init__(
        self,
        pool: ThreadedTaskPool,
        telemetry: TelemetryBuffer,
        *,
        blocked_seconds: float,
        task_timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        restarts: bool = False,
    ) -> None:
        self._restarts = restarts
        self._task_timeout_seconds = task_timeout_seconds
        self.interval_seconds = min(INTERVAL_SECONDS, blocked_seconds / 10)
        self._pool = pool
        self._telemetry = telemetry
        self._blocked_seconds = blocked_seconds
        self._warn_seconds = min(WARN_SECONDS, blocked_seconds / 2)
        self._checked_at = 0.0
        self._log: TaskLog | None = None
        self._silent_seconds = 0.0
        self._is_warned = False
        pool.ping()

    def check(self, now: float) -> Blocker | None:
        """Check whether the loop responds; return a task that has blocked it for too long."""
        # If the whole process was paused, the loop was not blocked for that time.
        passed = min(now - self._checked_at, 2 * self.interval_seconds)
        self._checked_at = now
        if self._pool.answered or self._pool.is_idle:
            self._silent_seconds, self._log, self._is_warned = 0.0, None, False
            self._pool.ping()
            return None
        log, frame = _running_task(self._pool.thread_id)
        if log is not self._log:
            # Several slow tasks in a row are not one that blocks.
            self._silent_seconds, self._log, self._is_warned = 0.0, log, False
        self._silent_seconds += passed
        match = None if log is None else self._pool.find(log)
        if self._silent_seconds >= self._warn_seconds and not self._is_warned:
            self._is_warned = True
            self._warn(None if match is None else match[0], frame)
        if match is None or not self._is_overdue(*match, now):
            return None
        task, deadline, _ = match
        return Blocker(task, self._outcome(task, deadline, now))

    def _has_own_timeout(self, task: TaskMessage) -> bool:
        # The operator's default is not the task's own.
        return task.timeout_seconds not in {None, self._task_timeout_seconds}

    def _outcome(self, task: TaskMessage, deadline: float, now: float) -> Failed:
        """Return why it fails: it ignored its timeout or a request to stop, or only what others need."""
        restarted = f"; {NO_RETRY}" if self._restarts else ""
        silent = self._silent_seconds
        is_late = self._has_own_timeout(task) and now >= deadline
        if is_late or self._pool.is_stop_requested(task.task_id):
            # It may have been silent before its timeout, or have awaited after it.
            ignored = min(now - deadline, silent) if is_late else silent
            kind = "unstoppable"
            text = f"the handler could not be stopped (it ignored cancellation for {ignored:.0f} s)"
        else:
            kind, text = "blocked", f"the handler blocks the event loop: it did not await for {silent:.0f} s"
        message = f"{text}{restarted}. Make it a plain function, or await"
        return failed(kind, message, permanent=self._restarts, abandoned=True)

    def _is_overdue(self, task: TaskMessage, deadline: float, grace_seconds: float, now: float) -> bool:
        if self._pool.is_stop_requested(task.task_id):
            return self._silent_seconds >= grace_seconds
        if not self._has_own_timeout(task):
            return self._silent_seconds >= self._blocked_seconds
        # It may use its own timeout, and the grace period that every coroutine has to clean up.
        return self._silent_seconds >= grace_seconds and now >= deadline + grace_seconds

    def _warn(self, task: TaskMessage | None, frame: FrameType | None) -> None:
        # Without a frame, extract_stack would return the stack of this thread.
        stack = [] if frame is None else traceback.extract_stack(frame)[-MAX_FRAMES:]
        where = "".join(traceback.format_list(stack)) or "at an unknown place"
        what = f"has not awaited for {self._silent_seconds:.0f} s, and blocks the event loop"
        if task is None:
            _LOGGER.warning("code outside any task %s of the async handlers; stack:\n%s", what, where)
            return
        if self._log is not None:
            self._log.flush()
        warning = (
            f"WARNING dagmaster.worker: this task {what}: other async tasks are blocked; stack:\n{where}"
        )
        self._telemetry.log(task, warning)
        log_task(logging.WARNING, f"{what}; see its log for the traceback", task)


def _running_task(thread_id: int | None) -> tuple[TaskLog | None, FrameType | None]:
    """Return the log of the task that a loop's thread runs now, and its frame."""
    top = frame = sys._current_frames().get(thread_id or 0)  # noqa: SLF001 - of another thread
    while frame is not None and frame.f_code is not _STEP:
        frame = frame.f_back
    handle = None if frame is None else frame.f_locals.get("self")
    # Also for asyncio tasks that a handler started: they have a copy of its context.
    return None if handle is None else handle._context.get(TASK_LOG), top  # noqa: SLF001 - as above
