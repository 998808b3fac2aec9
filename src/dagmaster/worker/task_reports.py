"""The receiver of what a running task reports: progress, checkpoints and log text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dagmaster.ports.handler_reports import Checkpoint, Progress
    from dagmaster.ports.task_messages import TaskMessage


class TaskReports(Protocol):
    """Receives the reports of a running task, on the loop's thread, in order, and never after the outcome."""

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        """Receive progress."""

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        """Receive a checkpoint."""

    def log(self, task: TaskMessage, text: str) -> None:
        """Receive log text of at most 64 KiB, not yet redacted."""

    def dump(self, task: TaskMessage, text: str) -> None:
        """Receive the crash dump of a process. It goes to the log only, not to observers."""


class NoReports:
    """Ignores all reports."""

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        """Do nothing."""

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        """Do nothing."""

    def log(self, task: TaskMessage, text: str) -> None:
        """Do nothing."""

    def dump(self, task: TaskMessage, text: str) -> None:
        """Do nothing."""
