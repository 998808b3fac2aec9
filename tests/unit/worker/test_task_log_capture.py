"""The log of a task: everything that it writes, nothing that others write."""

# ruff: noqa: T201 - what handlers print is what is tested

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from dagmaster.ports.handler_reports import Progress
from dagmaster.ports.task_messages import Succeeded, TaskMessage
from dagmaster.worker import task_log_capture
from tests.patience import PATIENCE_SECONDS
from tests.unit.worker.executor_fixtures import (
    RecordedReports,
    a_task,
    objects_left_by_tasks,
    run,
    with_executor,
)
from tests.unit.worker.process_fixtures import Watched, outcome_of, task, with_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.sdk.handler_context import HandlerContext
    from dagmaster.worker.executor import Executor

# ── of a process ────────────────────────────────────────────────────────────────────────────────────────────────────


def lines_of(word: str) -> list[str]:
    return [f"{word} printed", f"{word} on stderr", f"{word} native", f"INFO lib: {word} logged"]


@pytest.mark.process
def test_all_that_a_process_writes_is_there_in_order_before_the_outcome():
    async def main(executor: Executor, watched: Watched) -> str:
        await executor.execute(task("writing", word="it", times=200))
        return watched.text()

    assert with_processes(main).splitlines() == lines_of("it") * 200


@pytest.mark.process
def test_tasks_that_run_at_once_or_one_after_the_other_are_not_mixed():
    async def main(executor: Executor, watched: Watched) -> Watched:
        names = [str(number) for number in range(6)]
        await asyncio.gather(
            *(executor.execute(task("writing", name, word=name, times=50)) for name in names)
        )
        return watched

    watched = with_processes(main)
    for name in map(str, range(6)):
        assert watched.text(name).splitlines() == lines_of(name) * 50


@pytest.mark.process
@pytest.mark.parametrize("name", ["writing_in_c", "writing_half_a_line"])
def test_half_a_line_is_not_held_back(name, monkeypatch):
    # With it, Python takes the buffers of native code away too, and there is nothing to hold back.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    assert outcome_of(task(name, word="it"))[1].text() == "it without a newline"


@pytest.mark.process
def test_a_crash_loses_no_line_of_native_code(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    assert outcome_of(task("writing_in_c_and_dying"))[1].text() == "the last line\n"


@pytest.mark.process
def test_a_logged_exception_has_its_traceback():
    text = outcome_of(task("writing_a_traceback"))[1].text()
    assert text.startswith("ERROR lib: it failed\nTraceback (most recent call last):\n")
    assert text.endswith("KeyError: 'LOST'\n")


@pytest.mark.process
def test_much_text_comes_whole_in_pieces():
    _, watched = outcome_of(task("writing_much", size=500_000))
    assert watched.text() == "é" * 500_000
    assert max(len(message.encode()) for _, message in watched.entries) <= 64 * 1024


@pytest.mark.process
def test_bytes_that_are_no_text_are_replaced_and_a_character_that_was_cut_is_not_the_next_tasks():
    async def main(executor: Executor, watched: Watched) -> tuple[str, str]:
        await executor.execute(task("writing_bytes", "1"))
        await executor.execute(task("writing_in_c", "2", word="C"))
        return watched.text("1"), watched.text("2")

    assert with_processes(main) == ("a\\x00b\ufffdc\ufffd", "C without a newline")


# ── of the loop and of threads ──────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def screen(*, echoes: bool = False) -> Iterator[list[str]]:
    """Capture, with streams in place of the screen; at the end, what they got. No fixture: pytest has its own streams."""
    streams = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    got: list[str] = []
    capture = task_log_capture.capture(echoes=echoes)
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]), capture:
        yield got
    for stream in streams:
        stream.seek(0)
        got.append(stream.read())


def write(word: str) -> None:
    print(f"{word} printed")
    sys.stderr.writelines([f"{word} on", " stderr\n"])
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{word} as bytes\n".encode())
    logging.getLogger("lib").info("%s logged", word)
    logging.getLogger("lib").debug("%s whispered", word)


WRITTEN = "{0} printed\n{0} on stderr\n{0} as bytes\nINFO lib: {0} logged\n"


@pytest.mark.parametrize("plain", [True, False])
def test_what_a_handler_of_this_process_writes_is_its_tasks(plain):
    def function() -> None:
        write("it")

    async def coroutine() -> None:
        write("it")
        await asyncio.to_thread(print, "from a thread of its own")

    reports = RecordedReports()
    with screen() as got:
        assert run(function if plain else coroutine, reports=reports) == Succeeded({})
    text = "".join(message for _, message in reports.entries)
    assert text == WRITTEN.format("it") + ("" if plain else "from a thread of its own\n")
    assert reports.threads == {threading.get_ident()}
    assert got == ["", ""]


@pytest.mark.parametrize("plain", [True, False])
def test_tasks_that_run_at_once_are_not_mixed(plain):
    started = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    meeting = asyncio.Barrier(2)

    def function(word: str) -> None:
        for _ in range(3):
            started.wait()
            write(word)

    async def coroutine(word: str) -> None:
        for _ in range(3):
            await meeting.wait()
            write(word)

    reports = Watched()

    async def main(executor: Executor) -> None:
        await asyncio.gather(*(executor.execute(a_task(word, params={"word": word})) for word in ("a", "b")))

    with screen():
        with_executor(function if plain else coroutine, main, reports=reports)
    for word in ("a", "b"):
        assert reports.text(word) == WRITTEN.format(word) * 3


@pytest.mark.parametrize("plain", [True, False])
def test_text_and_reports_keep_their_order(plain):
    def function(ctx: HandlerContext) -> None:
        print("one")
        ctx.progress(1)
        print("two")

    async def coroutine(ctx: HandlerContext) -> None:
        function(ctx)

    reports = RecordedReports()
    with screen():
        run(function if plain else coroutine, reports=reports)
    message = [message for _, message in reports.entries]
    assert "".join(one for one in message if isinstance(one, str)) == "one\ntwo\n"
    # From a thread, what follows a report may have come before the loop had time to look.
    assert "".join(map(str, message[: message.index(Progress(1))])).startswith("one\n")
    assert plain or message == ["one\n", Progress(1), "two\n"]


def test_text_after_the_outcome_is_dropped():
    left: list[asyncio.Task[None]] = []
    release = asyncio.Event()

    async def later() -> None:
        await release.wait()
        print("late")

    async def function() -> None:
        print("in time")
        left.append(asyncio.create_task(later()))

    reports = Watched()

    async def main(executor: Executor) -> None:
        await executor.execute(a_task())
        release.set()
        await left[0]
        await asyncio.sleep(0)

    with screen():
        with_executor(function, main, reports=reports)
    assert reports.text() == "in time\n"


def test_a_listener_may_print_and_fail_without_effect_on_the_task():
    class Loud(RecordedReports):
        def log(self, task: TaskMessage, text: str) -> None:
            super().log(task, text)
            print("heard", text, end="")
            raise OSError("no line")

    async def function() -> None:
        print("it")

    reports = Loud()
    with screen() as got:
        assert run(function, reports=reports) == Succeeded({})
    assert reports.entries == [("1", "it\n")]
    assert got[0] == "heard it\n"


def test_a_capture_that_echoes_changes_nothing_on_the_screen(monkeypatch):
    stream = io.StringIO()
    root, verbose = logging.getLogger(), logging.getLogger("verbose")
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(stream)])
    monkeypatch.setattr(verbose, "level", logging.INFO)

    def write_all() -> None:
        write("it")
        verbose.info("verbose")
        warn()

    def warn() -> None:
        logging.getLogger("lib").warning("careful")

    reports = RecordedReports()
    with screen(echoes=True) as got:
        run(write_all, reports=reports)
    text = "".join(message for _, message in reports.entries)
    assert text == WRITTEN.format("it") + "INFO verbose: verbose\nWARNING lib: careful\n"
    assert got == ["it printed\nit as bytes\n", "it on stderr\n"]
    assert stream.getvalue() == "verbose\ncareful\n"
    monkeypatch.setattr(root, "handlers", [])
    with screen(echoes=True) as got:
        run(warn, reports=RecordedReports())
    assert got == ["", "careful\n"]


def test_text_of_no_task_goes_where_it_went():
    with screen() as got:
        write("nobody")
    assert got == ["nobody printed\nnobody as bytes\n", "nobody on stderr\n"]


def test_without_a_capture_nothing_is_captured(capsys):
    async def function() -> None:
        print("to the screen")

    reports = RecordedReports()
    run(function, reports=reports)
    assert reports.entries == []
    assert capsys.readouterr().out == "to the screen\n"


def test_a_capture_that_ends_leaves_everything_as_it_was(monkeypatch):
    root = logging.getLogger()
    numexpr = logging.getLogger("numexpr")
    monkeypatch.setattr(numexpr, "level", logging.DEBUG)
    before = sys.stdout, sys.stderr, root.level, list(root.handlers)
    with task_log_capture.capture(), task_log_capture.capture():
        assert task_log_capture.is_capturing()
        assert sys.stdout is not before[0]
        assert root.level == logging.INFO
        assert numexpr.level == logging.WARNING
    assert numexpr.level == logging.DEBUG
    assert not task_log_capture.is_capturing()
    assert (sys.stdout, sys.stderr, root.level, list(root.handlers)) == before


def test_what_a_task_logs_is_not_in_the_log_of_its_process(monkeypatch):
    stream = io.StringIO()
    process_log = logging.StreamHandler(stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [process_log])

    async def function() -> None:
        logging.getLogger("lib").warning("a secret")

    reports = RecordedReports()
    with screen():
        logging.getLogger("lib").warning("before")
        run(function, reports=reports)
        logging.getLogger("lib").warning("after")
    assert "".join(text for _, text in reports.entries) == "WARNING lib: a secret\n"
    assert stream.getvalue() == "before\nafter\n"
    assert process_log.filters == []


def test_a_warning_outside_of_tasks_is_still_seen(monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with screen() as got:
        logging.getLogger("lib").warning("of nobody")
        logging.getLogger("lib").info("too quiet")
    assert got == ["", "of nobody\n"]


@pytest.mark.parametrize("text", ["", "a" * 200_000, "€" * 50_000, "\0" * 70_000, "\ud800x"])
def test_pieces_are_small_and_whole(text):
    result = list(task_log_capture.split_text(text))
    assert "".join(result) == text.replace("\0", "\\x00").replace("\ud800", "\\ud800")
    assert all(len(piece.encode()) <= task_log_capture.MAX_PIECE for piece in result)


def test_a_captured_task_leaves_nothing_for_the_garbage_collector():
    async def function() -> None:
        print("it")

    with screen():
        assert with_executor(function, objects_left_by_tasks) == []
