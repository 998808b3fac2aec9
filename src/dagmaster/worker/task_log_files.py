"""Writes the logs of tasks to files, besides the store: one file for all attempts at a node, each marked.

`{directory}/{Task.id}.log` for a task of a graph in code, and `{directory}/{job id}/{node id}.log` for other
nodes. A file is a copy, so a disk that is full, read-only or does not answer fails no task and delays no
report for long. An attempt writes as much as its log in the store has, which is bounded. Files are never
deleted here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.host import private_files
from dagmaster.ports.task_log_names import log_file_name
from dagmaster.worker.task_conversion import graph_task_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from dagmaster.ports.task_journal import LogChunk
    from dagmaster.ports.task_source import ClaimedTask

STALL_SECONDS: Final = 5.0
"""How long a write may take before the worker continues without it."""

_FORGOTTEN_ABOVE: Final = 1_000
_LOGGER = logging.getLogger("dagmaster.worker")


@dataclass(slots=True)
class _TaskFile:
    """The file of an attempt, and its size after the last write of this worker."""

    name: str
    mark: str
    size: int = -1


class TaskLogFiles:
    """Appends chunks of log to the files of their tasks; `held` are the tasks that may have any."""

    def __init__(
        self, directory: Path, held: Mapping[str, ClaimedTask], *, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._directory = directory
        self._held = held
        self._stall_seconds = stall_seconds
        self._writing: asyncio.Future[None] | None = None
        self._files: dict[str, _TaskFile] = {}
        # Logged once, until a write succeeds.
        self._has_failed = False

    async def write(self, chunks: Sequence[LogChunk], ended: Collection[str] = ()) -> None:
        """Append chunks. What cannot be written is only in the store. `ended`: the attempts that end so."""
        texts: dict[str, list[str]] = {}
        for chunk in chunks:
            texts.setdefault(chunk.task_id, []).append(chunk.text)
        files = [(file, "".join(parts)) for task_id, parts in texts.items() if (file := self._file(task_id))]
        for task_id in ended:
            self._files.pop(task_id, None)
        if not files or (self._writing is not None and not self._writing.done()):
            return
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._append, files))
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

    def _file(self, task_id: str) -> _TaskFile | None:
        file = self._files.get(task_id)
        task = self._held.get(task_id)
        if file is None and task is not None:
            if len(self._files) > _FORGOTTEN_ABOVE + len(self._held):
                # Tasks of an expired registration never end here.
                self._files = {one: file for one, file in self._files.items() if one in self._held}
            file = self._files[task_id] = _TaskFile(
                log_file_name(task.job_id, task.node_id, graph_task_id(task.secrets)),
                f"==== {task.node_id}: attempt {task.attempt} (task {task_id}) ====\n",
            )
        return file

    def _append(self, files: Sequence[tuple[_TaskFile, str]]) -> None:
        private_files.make_folder(self._directory)
        for file, text in files:
            path = self._directory / file.name
            if path.parent != self._directory:
                private_files.make_folder(path.parent)
            with open(path, "ab+", opener=private_files.opener) as opened:
                size = opened.seek(0, os.SEEK_END)
                if size != file.size:
                    # This attempt begins, or another one wrote meanwhile: it may run elsewhere.
                    opened.write(_line_end(opened, size) + file.mark.encode(errors="backslashreplace"))
                opened.write(text.encode(errors="backslashreplace"))
                opened.flush()
                file.size = opened.seek(0, os.SEEK_END)

    def _failed(self, reason: str) -> None:
        if not self._has_failed:
            message = (
                "logs of tasks cannot be written to %s (DAGMASTER_LOG_DIR): %s; they are in the database only"
            )
            _LOGGER.warning(message, self._directory, reason)
        self._has_failed = True


def _line_end(opened: BinaryIO, size: int) -> bytes:
    """Return what a line needs before it, so that it begins one."""
    if size == 0:
        return b""
    opened.seek(-1, os.SEEK_END)
    return b"" if opened.read(1) == b"\n" else b"\n"
