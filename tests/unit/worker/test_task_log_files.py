"""Logs of tasks as files."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from dagmaster.ports.task_journal import LogChunk
from dagmaster.worker.task_log_files import TaskLogFiles
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def write(files: TaskLogFiles, *chunks: LogChunk) -> None:
    asyncio.run(files.write(chunks))


def test_chunks_are_appended_to_the_file_of_their_task(tmp_path: Path):
    files = TaskLogFiles(tmp_path / "new" / "logs")
    write(files, LogChunk("7", 1, 1, "one\r\n"), LogChunk("8", 1, 1, "other"), LogChunk("7", 1, 2, "zwei ü"))
    write(files, LogChunk("7", 1, 3, "\ud800!"))
    assert (tmp_path / "new" / "logs" / "7.log").read_bytes() == "one\r\nzwei ü\\ud800!".encode()
    assert (tmp_path / "new" / "logs" / "8.log").read_text() == "other"


def test_a_directory_that_cannot_be_written_is_logged_once_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    in_the_way = tmp_path / "logs"
    in_the_way.touch()
    files = TaskLogFiles(in_the_way)
    for _ in range(3):
        write(files, LogChunk("7", 1, 1, "lost"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"cannot be written to {in_the_way} (DAGMASTER_LOG_DIR): File exists" in caplog.text
    in_the_way.unlink()
    write(files, LogChunk("7", 1, 2, "kept"))
    assert (in_the_way / "7.log").read_text() == "kept"
    (in_the_way / "7.log").unlink()
    in_the_way.rmdir()
    in_the_way.touch()
    write(files, LogChunk("7", 1, 3, "lost"))
    assert len(caplog.records) == 2


def test_a_disk_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    answers = threading.Event()
    files = TaskLogFiles(tmp_path, stall_seconds=0)
    append = files._append

    def slow(chunks: list[LogChunk]) -> None:
        answers.wait(PATIENCE_SECONDS)
        append(chunks)

    monkeypatch.setattr(files, "_append", slow)

    async def main() -> None:
        await files.write([LogChunk("7", 1, 1, "late")])
        await files.write([LogChunk("7", 1, 2, "dropped")])
        answers.set()

    asyncio.run(main())
    assert (tmp_path / "7.log").read_text() == "late"
    assert "took longer than 0 s" in caplog.text
