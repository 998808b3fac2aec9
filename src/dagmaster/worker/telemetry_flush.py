"""Store the buffered telemetry of tasks: checkpoints, log chunks, progress, and which tasks have started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DatabaseUnavailable, StatementFailed
from dagmaster.host.clocks import wait_at_most
from dagmaster.ports.task_journal import LogChunk
from dagmaster.telemetry.logs import MAX_IDS
from dagmaster.text_format import error_text, traceback_of
from dagmaster.worker.task_log_files import TaskLogFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from dagmaster.ports.task_journal import CheckpointWrite, TaskJournal
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.worker.held_tasks import HeldTasks
    from dagmaster.worker.telemetry_buffer import TelemetryBuffer

FLUSH_SECONDS: Final = 0.25
"""How long log text and progress may wait to be stored with others.

A task that runs for less is never marked as started: its report says for how long it ran, and costs no other
write."""

CHECKPOINT_SECONDS: Final = 0.02
"""Shortest interval between stored checkpoints: a checkpoint is stored soon, as the process may be killed."""

_LOGGER = logging.getLogger("dagmaster.worker")


class TelemetryFlush:
    """Writes a buffer to the journal.

    What could not be stored during an outage is kept for the next flush.
    """

    def __init__(
        self,
        buffer: TelemetryBuffer,
        journal: TaskJournal,
        held: HeldTasks,
        log_dir: Path | None = None,
        *,
        logs_silent_tasks: bool = True,
    ) -> None:
        self._buffer = buffer
        self._journal = journal
        self._files = None if log_dir is None else TaskLogFiles(log_dir, held)
        self._logs_silent_tasks = logs_silent_tasks
        self._lock = asyncio.Lock()
        self._checkpoints: list[CheckpointWrite] = []
        self._logs: list[LogChunk] = []

    async def run(
        self, held: HeldTasks, has_tasks: asyncio.Event, running_seconds: Callable[[], Mapping[str, float]]
    ) -> None:
        """Store what is buffered, checkpoints at once, and which tasks have started, until cancelled."""
        loop, is_due = asyncio.get_running_loop(), asyncio.Event()
        self._buffer.on_checkpoint = lambda: loop.call_soon_threadsafe(is_due.set)
        while True:
            if not (held or self.is_due()):
                # Nothing runs and nothing is buffered.
                has_tasks.clear()
                await has_tasks.wait()
            await asyncio.sleep(CHECKPOINT_SECONDS)
            await wait_at_most(is_due, FLUSH_SECONDS)
            is_due.clear()
            with contextlib.suppress(DatabaseUnavailable):
                await self.mark_started(running_seconds())
                if self.is_due():
                    await self.run_once()

    def is_due(self) -> bool:
        return bool(self._buffer or self._checkpoints or self._logs)

    async def mark_started(self, running_seconds: Mapping[str, float]) -> None:
        """Store which tasks have started, in one statement; raise `DatabaseUnavailable` in an outage."""
        long_running = {
            task_id: seconds for task_id, seconds in running_seconds.items() if seconds >= FLUSH_SECONDS
        }
        starts = self._buffer.unmarked_starts(long_running)
        if not starts:
            return
        try:
            await self._journal.mark_started(starts)
        except StatementFailed:
            message = "tasks could not be marked as started; their reports say when they started"
            _LOGGER.exception(message, extra={"task_ids": list(long_running)[:MAX_IDS]})
        self._buffer.mark(starts)

    async def end_files(self, reports: Collection[TaskReport]) -> None:
        """Write the errors of attempts to the ends of their log files.

        One that printed nothing also has a file, unless the directory is the default one.
        """
        if self._files is None:
            return
        with contextlib.suppress(DatabaseUnavailable):
            await self.run_once({report.task_id for report in reports})
        endings = [
            LogChunk(report.task_id, report.token, 0, _ending(report))
            for report in reports
            if not report.returns_to_queue
        ]
        await self._files.write(
            [chunk for chunk in endings if chunk.text or self._logs_silent_tasks],
            ended=[report.task_id for report in reports],
        )

    async def run_once(self, finished: Collection[str] = ()) -> None:
        """Store everything; raise `DatabaseUnavailable` in an outage.

        `finished`: tasks whose logs are complete.
        """
        async with self._lock:
            self._checkpoints += self._buffer.take_checkpoints()
            logs = self._buffer.take_logs(finished)
            self._logs += logs
            if logs and self._files is not None:
                await self._files.write(logs)
            progress = self._buffer.take_progress()
            try:
                if self._checkpoints:
                    await self._journal.checkpoint(self._checkpoints)
                self._checkpoints = []
                if self._logs:
                    await self._journal.append_logs(self._logs)
                self._logs = []
                if progress:
                    await self._journal.progress(progress)
            except StatementFailed:
                message = "logs, checkpoints or progress of tasks were rejected; they are dropped"
                task_ids = sorted(
                    {one.task_id for one in self._checkpoints} | {one.task_id for one in self._logs}
                )
                _LOGGER.exception(message, extra={"task_ids": task_ids[:MAX_IDS]})
                self._checkpoints, self._logs = [], []


def _ending(report: TaskReport) -> str:
    """Return the traceback of a failed attempt, or its error if it has none; nothing for another."""
    if report.error is None:
        return ""
    error = json.loads(report.error)
    return f"{traceback_of(error) or error_text(error)}\n"
