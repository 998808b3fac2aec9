"""What running tasks write besides their outcome: their start, logs, checkpoints, progress.

Every write is fenced by the task's lease token. What is lost here costs a line of a log or repeated work,
never a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dagmaster.ports.added_nodes import TaskNodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class LogChunk(NamedTuple):
    """A numbered part of a task's log."""

    task_id: str
    token: int
    chunk: int
    text: str


class CheckpointWrite(NamedTuple):
    """A checkpoint to store: the next attempt resumes from it."""

    task_id: str
    token: int
    phase: str
    data: str
    artifacts: tuple[str, ...]


class TaskJournal(TaskNodes, Protocol):
    """Stores what tasks write while they run; entries of tasks that are no longer held are ignored."""

    async def mark_started(self, running_seconds: Mapping[str, tuple[int, float]]) -> None:
        """Store when the handlers of tasks started: (token, seconds it has been running) by task id."""

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        """Append log chunks; a chunk that is stored already is ignored."""

    async def checkpoint(self, checkpoints: Sequence[CheckpointWrite]) -> None:
        """Store the newest checkpoint of each task."""

    async def progress(self, progress: Mapping[str, tuple[int, str]]) -> None:
        """Store the progress of tasks: (token, JSON) by task id."""
