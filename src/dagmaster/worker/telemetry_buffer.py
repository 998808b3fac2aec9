"""Buffer progress, checkpoints and log chunks of tasks until they are stored; know which starts are.

Filled on any thread, emptied on the service's loop.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dagmaster.host.clocks import loop_time
from dagmaster.ports.handler_reports import Progress, data_to_store
from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
from dagmaster.redaction import redact_value
from dagmaster.worker.task_lines import log_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from dagmaster.ports.handler_reports import Checkpoint
    from dagmaster.ports.task_messages import TaskMessage

MAX_CHUNK_CHARACTERS: Final = 64 * 1024
MAX_LOG_CHARACTERS: Final = 16 * 1024 * 1024
"""Characters of log that are kept of one attempt."""

MAX_CHECKPOINTS_REPORTED: Final = 20
"""How many checkpoints of an attempt, the last ones, become events: a task may save thousands."""

MAX_PHASE_CHARACTERS: Final = 64


# Replaced, never changed: most tasks report nothing.
_NOTHING: Final[dict[str, Any]] = {}


class _TaskTelemetry:
    """The buffered telemetry of one task."""

    __slots__ = (
        "begun_at",
        "checkpoints",
        "chunk",
        "marked_token",
        "partial_line",
        "progress",
        "secrets",
        "stored_characters",
        "task",
        "token",
    )

    def __init__(self, token: int, begun_at: float) -> None:
        self.token = token
        # The token under which its start is stored.
        self.marked_token: int | None = None
        self.begun_at = begun_at
        self.progress: dict[str, Any] = _NOTHING
        # The last checkpoints, for the audit log, with the result: see `with_checkpoint`.
        self.checkpoints: dict[str, Any] = _NOTHING
        self.chunk = 0
        self.stored_characters = 0
        self.secrets: Collection[str] = ()
        # For `on_log`: a line that may contain a partial secret.
        self.partial_line = ""
        self.task: TaskMessage | None = None


class TelemetryBuffer:
    """The buffered telemetry of all tasks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, _TaskTelemetry] = {}
        self._logs: dict[str, list[str]] = {}
        self._progress: dict[str, tuple[int, str]] = {}
        self._checkpoints: dict[str, CheckpointWrite] = {}
        # Other listeners in this process.
        self.on_progress: Callable[[TaskMessage, Progress], None] | None = None
        self.on_log: Callable[[TaskMessage, str], None] | None = None
        # Wakes the flush loop. Called on any thread.
        self.on_checkpoint: Callable[[], object] | None = None

    def begin(self, task_id: str, token: int) -> None:
        # One step of the interpreter: no lock is needed.
        self._tasks[task_id] = _TaskTelemetry(token, _now())

    def renew(self, task_id: str, token: int) -> None:
        """Use the token of a newer claim."""
        of_task = self._tasks.get(task_id)
        if of_task is not None:
            of_task.token = token

    def hide(self, task_id: str, secrets: Collection[str]) -> None:
        if secrets:
            self._tasks[task_id].secrets = secrets

    def end(self, task_id: str) -> None:
        ended = self._tasks.pop(task_id, None)
        if task_id in self._progress:
            with self._lock:
                self._progress.pop(task_id, None)
        if ended is not None and ended.task is not None and ended.partial_line and self.on_log is not None:
            self.on_log(ended.task, redact_value(ended.partial_line, ended.secrets))

    # ── Starts ──

    def unmarked_starts(self, running_seconds: Mapping[str, float]) -> dict[str, tuple[int, float]]:
        """Return the starts that are not stored under the newest token: (token, seconds) by task id."""
        starts: dict[str, tuple[int, float]] = {}
        for task_id, seconds in running_seconds.items():
            of_task = self._tasks.get(task_id)
            if of_task is not None and of_task.marked_token != of_task.token:
                starts[task_id] = (of_task.token, seconds)
        return starts

    def mark(self, starts: Mapping[str, tuple[int, float]]) -> None:
        """Remember that these starts are stored."""
        for task_id, (token, _) in starts.items():
            of_task = self._tasks.get(task_id)
            if of_task is not None:
                of_task.marked_token = token

    # ── Input ──

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        of_task = self._tasks.get(task.task_id)
        if of_task is None:
            return
        if of_task.secrets:
            progress = Progress(**redact_value(asdict(progress), of_task.secrets))
        of_task.progress = asdict(progress)
        self._keep_progress(task.task_id, of_task)
        if self.on_progress is not None:
            self.on_progress(task, progress)

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        of_task = self._tasks.get(task.task_id)
        if of_task is None:
            return
        # Redacted like everything stored: a resumed task gets its secrets again.
        clean = redact_value(checkpoint.to_json(), of_task.secrets)
        written = CheckpointWrite(
            task.task_id,
            of_task.token,
            clean["phase"],
            json.dumps(data_to_store(clean)),
            tuple(clean["artifacts"]),
        )
        of_task.checkpoints = with_checkpoint(of_task.checkpoints, clean["phase"], _now() - of_task.begun_at)
        with self._lock:
            self._checkpoints[task.task_id] = written
        self._keep_progress(task.task_id, of_task)
        if self.on_checkpoint is not None:
            self.on_checkpoint()

    def _keep_progress(self, task_id: str, of_task: _TaskTelemetry) -> None:
        """Buffer the progress of a task with its last checkpoints; the job's owner gets both."""
        with self._lock:
            self._progress[task_id] = (of_task.token, json.dumps(of_task.progress | of_task.checkpoints))

    def has_checkpoints(self, task_id: str) -> bool:
        of_task = self._tasks.get(task_id)
        return of_task is not None and bool(of_task.checkpoints)

    def log(self, task: TaskMessage, text: str) -> None:
        of_task = self._tasks.get(task.task_id)
        if of_task is None or of_task.stored_characters > MAX_LOG_CHARACTERS:
            return
        if self.on_log is not None:
            self._forward(self.on_log, task, of_task, text)
        self._keep(task.task_id, of_task, text)

    def _forward(
        self,
        on_log: Callable[[TaskMessage, str], None],
        task: TaskMessage,
        of_task: _TaskTelemetry,
        text: str,
    ) -> None:
        """Pass log text on, redacted.

        A task with secrets is passed on by whole lines: a secret may come in pieces.
        """
        if of_task.secrets:
            lines, newline, partial_line = (of_task.partial_line + text).rpartition("\n")
            of_task.task, of_task.partial_line = task, partial_line
            text = redact_value(lines + newline, of_task.secrets)
        if text:
            on_log(task, text)

    def dump(self, task: TaskMessage, text: str) -> None:
        """Buffer a crash dump with the log, and log one line."""
        log_task(logging.WARNING, "killed its process: see its log for the traceback", task)
        of_task = self._tasks.get(task.task_id)
        if of_task is not None:
            self._keep(task.task_id, of_task, text)

    def _keep(self, task_id: str, of_task: _TaskTelemetry, text: str) -> None:
        with self._lock:
            of_task.stored_characters += len(text)
            if of_task.stored_characters > MAX_LOG_CHARACTERS:
                text += "\n[the log is longer than 16 MiB: the rest is not kept]\n"
            self._logs.setdefault(task_id, []).append(text)

    # ── Output ──

    def __bool__(self) -> bool:
        return bool(self._logs or self._progress or self._checkpoints)

    def take_logs(self, finished: Collection[str] = ()) -> list[LogChunk]:
        """Return the log chunks since the last call.

        Of unfinished tasks, a possible partial secret is held back.
        """
        with self._lock:
            logs, self._logs = self._logs, {}
        chunks: list[LogChunk] = []
        for task_id, texts in logs.items():
            of_task = self._tasks.get(task_id)
            if of_task is None:
                continue
            text = redact_value("".join(texts), of_task.secrets)
            if of_task.secrets and task_id not in finished:
                text, rest = _cut(text, max(map(len, of_task.secrets)) - 1)
                if rest:
                    with self._lock:
                        self._logs[task_id] = [rest, *self._logs.get(task_id, [])]
            for part in _split(text):
                of_task.chunk += 1
                chunks.append(LogChunk(task_id, of_task.token, of_task.chunk, part))
        return chunks

    def take_checkpoints(self) -> list[CheckpointWrite]:
        """Return the newest checkpoints since the last call."""
        with self._lock:
            checkpoints, self._checkpoints = self._checkpoints, {}
        return list(checkpoints.values())

    def take_progress(self) -> dict[str, tuple[int, str]]:
        """Return the newest progress since the last call."""
        with self._lock:
            progress, self._progress = self._progress, {}
        return progress


def with_checkpoint(progress: dict[str, Any], phase: str, seconds: float) -> dict[str, Any]:
    """Return the progress of a task with one more checkpoint: its phase, and when it was saved."""
    checkpoints = [*progress.get("checkpoints", ()), (phase[:MAX_PHASE_CHARACTERS], round(seconds, 3))]
    count = progress.get("checkpoint_count", 0) + 1
    return {**progress, "checkpoints": checkpoints[-MAX_CHECKPOINTS_REPORTED:], "checkpoint_count": count}


def _split(text: str) -> Iterator[str]:
    """Yield parts of at most the length of a chunk, which end with a line where they can."""
    start = 0
    while start < len(text):
        end = start + MAX_CHUNK_CHARACTERS
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


def _cut(text: str, size: int) -> tuple[str, str]:
    """Return the text and its held-back end."""
    return (text[:-size], text[-size:]) if size else (text, "")


def _now() -> float:
    """Return the time of the running loop, which a simulation sets; without a loop, of the machine."""
    try:
        return loop_time()
    except RuntimeError:
        return time.monotonic()
