"""When a worker has to be replaced by a new process: the shutdown that it starts, and its exit code.

A thread cannot be killed. A worker that abandoned one would go on with less of everything: the thread keeps
its CPU time, its memory and the interpreter's lock until the process ends.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.recycle_reasons import EXIT_CODES, RecycleReason
from dagmaster.telemetry.logs import task_fields
from dagmaster.worker.task_outcomes import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.task_messages import TaskMessage

_LOGGER = logging.getLogger("dagmaster.worker")


class Recycling:
    """Starts the shutdown of a worker once; while an operator drains it, not before that is withdrawn."""

    def __init__(
        self, stop: Callable[[], None], is_stopping: Callable[[], bool], is_draining: Callable[[], bool]
    ) -> None:
        self._stop = stop
        self._is_stopping = is_stopping
        self._is_draining = is_draining
        self._suspects: frozenset[str] = frozenset()
        self.reason: RecycleReason | None = None
        # Python waits for threads when it ends.
        self.has_abandoned = False
        self.memory_limit_mb = 0

    @property
    def exit_code(self) -> int:
        return 0 if self.reason is None else EXIT_CODES[self.reason]

    def counters(self) -> dict[str, Any]:
        """Return what heartbeats say of it, for the fleet."""
        return {} if self.reason is None else {"recycling": self.reason.value}

    def on_unstoppable(self, task: TaskMessage, seconds: float) -> None:
        """Recycle, because a handler was abandoned that ignored a request to stop for so long."""
        self._begin(
            RecycleReason.UNSTOPPABLE,
            f"handler {task.handler} could not be stopped (it ignored cancellation for {seconds:.3g} s)",
            task,
        )

    def on_blocked(self, task: TaskMessage) -> None:
        """Recycle, because the thread of an event loop was abandoned."""
        self._begin(RecycleReason.UNSTOPPABLE, f"handler {task.handler} blocks its thread for good", task)

    def on_memory(self, used_mb: int, limit_mb: int) -> None:
        """Recycle, because the handlers in this process use too much memory."""
        self.memory_limit_mb = limit_mb
        sentence = f"this worker uses {used_mb} MB of memory; its limit is {limit_mb} MB"
        self._begin(RecycleReason.MEMORY, sentence)

    def resume(self) -> None:
        """Start the shutdown that waited for the end of a drain."""
        if self.reason is not None and not self._is_draining():
            self._stop()

    def suspect(self, task_ids: Collection[str]) -> None:
        """Note the tasks of this process that did not end when its memory was used up."""
        if self.reason is RecycleReason.MEMORY:
            self._suspects = frozenset(task_ids)

    def judge(self, report: TaskReport) -> None:
        """Charge the release of a suspect.

        One alone is the cause. Of several none is charged: each runs in a child process next, which shows.
        """
        if report.status is not AttemptStatus.RELEASED or report.task_id not in self._suspects:
            return
        if len(self._suspects) == 1:
            text = (
                f"its worker reached its memory limit ({self.memory_limit_mb} MB) while this was the only"
                " handler in its process; its worker restarted"
            )
            report.status = AttemptStatus.FAILED
            report.error = json.dumps(failed("out_of_memory", text).error)
        else:
            place = f"{socket.gethostname()}:{os.getpid()}"
            loss = {"worker": place, "alone": False, "reason": RecycleReason.MEMORY.value}
            report.status, report.error = AttemptStatus.LOST, json.dumps(loss)
        report.returns_to_queue = False

    def _begin(self, reason: RecycleReason, sentence: str, task: TaskMessage | None = None) -> None:
        self.has_abandoned |= reason is RecycleReason.UNSTOPPABLE
        if self.reason is not None or self._is_stopping():
            return
        self.reason = reason
        _LOGGER.error(
            "%s; this worker claims nothing more and exits with code %d to be restarted",
            sentence, self.exit_code, extra={} if task is None else task_fields(task),
        )  # fmt: skip
        self.resume()
