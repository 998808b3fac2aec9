"""Writes the logs of tasks to files, besides the store: `{directory}/{task_id}.log`.

A file is a copy, so a disk that is full, read-only or does not answer fails no task and delays no report for
long. Files are as long as the log in the store, which is bounded, and are never deleted here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from dagmaster.host import private_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dagmaster.ports.task_journal import LogChunk

STALL_SECONDS: Final = 5.0
"""How long a write may take before the worker continues without it."""

_LOGGER = logging.getLogger("dagmaster.worker")


class TaskLogFiles:
    """Appends chunks of log to the files of their tasks."""

    def __init__(self, directory: Path, *, stall_seconds: float = STALL_SECONDS) -> None:
        self._directory = directory
        self._stall_seconds = stall_seconds
        self._writing: asyncio.Future[None] | None = None
        # Logged once, until a write succeeds.
        self._has_failed = False

    async def write(self, chunks: Sequence[LogChunk]) -> None:
        """Append chunks. What cannot be written is only in the store."""
        if self._writing is not None and not self._writing.done():
            return
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._append, chunks))
        done, _ = await asyncio.wait([self._writing], timeout=self._stall_seconds)
        if not done:
            self._failed(f"a write took longer than {self._stall_seconds:g} s")
            return
        try:
            self._writing.result()
        except OSError as error:
            self._failed(error.strerror or str(error))
        else:
            self._has_failed = False

    def _append(self, chunks: Sequence[LogChunk]) -> None:
        private_files.make_folder(self._directory)
        texts: dict[str, list[str]] = {}
        for chunk in chunks:
            texts.setdefault(chunk.task_id, []).append(chunk.text)
        for task_id, parts in texts.items():
            path = self._directory / f"{task_id}.log"
            with open(
                path,
                "a",
                encoding="utf-8",
                errors="backslashreplace",
                newline="",
                opener=private_files.opener,
            ) as file:
                file.writelines(parts)

    def _failed(self, reason: str) -> None:
        if not self._has_failed:
            message = (
                "logs of tasks cannot be written to %s (DAGMASTER_LOG_DIR): %s; they are in the database only"
            )
            _LOGGER.warning(message, self._directory, reason)
        self._has_failed = True
