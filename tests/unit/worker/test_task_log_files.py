"""Logs of tasks as files."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from dagmaster.ports.task_journal import LogChunk
from dagmaster.ports.task_log_names import log_file_name
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.worker.task_log_files import TaskLogFiles
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


def held(task_id: str, node_id: str = "", *, attempt: int = 1, graph_task: int | None = None) -> ClaimedTask:
    secrets = None if graph_task is None else f'{{"places": [], "hide": [], "graph_task_id": {graph_task}}}'
    return ClaimedTask(
        task_id, "1", node_id or f"n{task_id}", "h", attempt, "{}", secrets, 60.0, token=1, dispatched_at=0.0
    )


TASKS = {"7": held("7"), "8": held("8")}


def write(files: TaskLogFiles, *chunks: LogChunk) -> None:
    asyncio.run(files.write(chunks))


def mark(task_id: str, attempt: int = 1) -> str:
    return f"==== n{task_id}: attempt {attempt} (task {task_id}) ====\n"


def test_chunks_are_appended_to_the_file_of_their_node(tmp_path: Path):
    files = TaskLogFiles(tmp_path / "new" / "logs", TASKS)
    write(files, LogChunk("7", 1, 1, "one\r\n"), LogChunk("8", 1, 1, "other"), LogChunk("7", 1, 2, "zwei ü"))
    write(files, LogChunk("7", 1, 3, "\ud800!"))
    text = (tmp_path / "new" / "logs" / "1" / "n7.log").read_bytes()
    assert text == f"{mark('7')}one\r\nzwei ü\\ud800!".encode()
    assert (tmp_path / "new" / "logs" / "1" / "n8.log").read_text() == f"{mark('8')}other"


def test_the_file_of_a_task_in_code_is_called_after_its_id(tmp_path: Path):
    files = TaskLogFiles(tmp_path, {"7": held("7", graph_task=123456)})
    write(files, LogChunk("7", 1, 1, "text"))
    assert [path.name for path in tmp_path.iterdir()] == ["123456.log"]


def test_all_attempts_are_in_one_file_and_marked(tmp_path: Path):
    """Each worker writes as if it were alone: another one may have written in between."""
    first, second = held("7", "n"), held("9", "n", attempt=2)
    one, other = TaskLogFiles(tmp_path, {"7": first}), TaskLogFiles(tmp_path, {"9": second})
    write(one, LogChunk("7", 1, 1, "begins"))
    write(one, LogChunk("7", 1, 2, ", goes on"))
    write(other, LogChunk("9", 1, 1, "again\n"))
    write(one, LogChunk("7", 1, 3, "was not dead\n"))
    write(one, LogChunk("7", 1, 4, "at all\n"))
    assert (tmp_path / "1" / "n.log").read_text() == (
        "==== n: attempt 1 (task 7) ====\nbegins, goes on\n"
        "==== n: attempt 2 (task 9) ====\nagain\n"
        "==== n: attempt 1 (task 7) ====\nwas not dead\nat all\n"
    )


def test_an_attempt_that_has_ended_is_forgotten_and_the_text_of_a_task_that_is_not_held_dropped(
    tmp_path: Path,
):
    files = TaskLogFiles(tmp_path, TASKS)
    asyncio.run(files.write([LogChunk("7", 1, 0, "")], ended=["7"]))
    write(files, LogChunk("1", 1, 1, "of nobody"))
    assert files._files == {}
    assert (tmp_path / "1" / "n7.log").read_text() == mark("7")


@pytest.mark.parametrize(
    "node_id", ["../../x", "/etc/x", "a/b", ".", "..", "", "x" * 5_000, "a\0b", "ü\n", "a~b"]
)
def test_no_id_leaves_the_directory_or_shares_the_file_of_another_one(tmp_path: Path, node_id: str):
    files = TaskLogFiles(tmp_path / "logs", {"7": held("7")})
    files._held["7"].node_id = node_id
    write(files, LogChunk("7", 1, 1, "text"))
    (written,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written.parent == tmp_path / "logs" / "1"
    assert log_file_name("1", node_id) != log_file_name("1", written.stem)
    assert log_file_name("../..", node_id).count("/") == 1
    assert ".." not in log_file_name("../..", node_id).split("/")


def test_the_ids_of_nodes_and_of_members_of_a_fan_out_are_names_as_they_are():
    assert log_file_name("12", "tile[3]") == "12/tile[3].log"
    assert log_file_name("12", "tile__3") == "12/tile__3.log"
    assert log_file_name("12", "n", 34) == "34.log"
    assert log_file_name("12", "n", "../34").count("/") == 0


def test_a_directory_that_cannot_be_written_is_logged_once_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    in_the_way = tmp_path / "logs"
    in_the_way.touch()
    files = TaskLogFiles(in_the_way, TASKS)
    for _ in range(3):
        write(files, LogChunk("7", 1, 1, "lost"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"cannot be written to {in_the_way} (DAGMASTER_LOG_DIR): File exists" in caplog.text
    in_the_way.unlink()
    write(files, LogChunk("7", 1, 2, "kept"))
    assert (in_the_way / "1" / "n7.log").read_text() == f"{mark('7')}kept"
    (in_the_way / "1" / "n7.log").unlink()
    (in_the_way / "1").rmdir()
    in_the_way.rmdir()
    in_the_way.touch()
    write(files, LogChunk("7", 1, 3, "lost"))
    assert len(caplog.records) == 2


def test_a_disk_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    answers = threading.Event()
    files = TaskLogFiles(tmp_path, TASKS, stall_seconds=0)
    append = files._append

    def slow(texts: list[tuple[object, str]]) -> None:
        answers.wait(PATIENCE_SECONDS)
        append(texts)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "_append", slow)

    async def main() -> None:
        await files.write([LogChunk("7", 1, 1, "late")])
        await files.write([LogChunk("7", 1, 2, "dropped")])
        answers.set()

    asyncio.run(main())
    assert (tmp_path / "1" / "n7.log").read_text() == f"{mark('7')}late"
    assert "took longer than 0 s" in caplog.text
