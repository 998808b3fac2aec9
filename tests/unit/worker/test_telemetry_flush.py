"""Which starts of tasks a worker stores, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import DatabaseUnavailable, StatementFailed
from dagmaster.worker.held_tasks import HeldTasks
from dagmaster.worker.telemetry_buffer import MAX_CHUNK_CHARACTERS, TelemetryBuffer
from dagmaster.worker.telemetry_flush import FLUSH_SECONDS, TelemetryFlush

if TYPE_CHECKING:
    from collections.abc import Mapping

LONG, SHORT = FLUSH_SECONDS, FLUSH_SECONDS / 2


class Journal:
    """Records the statements that mark tasks, or raises."""

    def __init__(self) -> None:
        self.marked: list[dict[str, tuple[int, float]]] = []
        self.error: Exception | None = None

    async def mark_started(self, running_seconds: Mapping[str, tuple[int, float]]) -> None:
        if self.error is not None:
            raise self.error
        self.marked.append(dict(running_seconds))


class Telemetry:
    """The buffer of a worker with two tasks, and what it stores."""

    def __init__(self) -> None:
        self.buffer, self.journal = TelemetryBuffer(), Journal()
        journal: Any = self.journal
        self.flush = TelemetryFlush(self.buffer, journal, HeldTasks(1, None))
        self.buffer.begin("1", 7)
        self.buffer.begin("2", 8)

    def mark(self, **running_seconds: float) -> None:
        running = {name.removeprefix("task_"): seconds for name, seconds in running_seconds.items()}
        asyncio.run(self.flush.mark_started(running))


def test_short_tasks_cost_no_write():
    telemetry = Telemetry()
    telemetry.mark(task_1=SHORT, task_2=0.0)
    assert telemetry.journal.marked == []


def test_all_tasks_that_have_run_for_a_while_are_marked_in_one_statement_and_once():
    telemetry = Telemetry()
    telemetry.mark(task_1=LONG, task_2=2 * LONG)
    telemetry.mark(task_1=2 * LONG, task_2=3 * LONG)
    assert telemetry.journal.marked == [{"1": (7, LONG), "2": (8, 2 * LONG)}]


def test_a_task_is_marked_again_under_a_newer_token():
    telemetry = Telemetry()
    telemetry.mark(task_1=LONG)
    telemetry.buffer.renew("1", 9)
    telemetry.mark(task_1=2 * LONG)
    assert telemetry.journal.marked == [{"1": (7, LONG)}, {"1": (9, 2 * LONG)}]


def test_a_task_that_was_reported_is_not_marked():
    telemetry = Telemetry()
    telemetry.buffer.end("1")
    telemetry.mark(task_1=LONG)
    assert telemetry.journal.marked == []


def test_a_start_that_could_not_be_stored_in_an_outage_is_stored_later():
    telemetry = Telemetry()
    telemetry.journal.error = DatabaseUnavailable("down")
    with pytest.raises(DatabaseUnavailable):
        telemetry.mark(task_1=LONG)
    telemetry.journal.error = None
    telemetry.mark(task_1=2 * LONG)
    assert telemetry.journal.marked == [{"1": (7, 2 * LONG)}]


def test_a_start_that_the_database_rejects_is_logged_once(caplog):
    telemetry = Telemetry()
    telemetry.journal.error = StatementFailed("no")
    telemetry.mark(task_1=LONG)
    telemetry.mark(task_1=LONG)
    assert len(caplog.records) == 1


def test_chunks_of_a_log_end_with_a_line_unless_it_is_longer_than_a_chunk():
    buffer = TelemetryBuffer()
    buffer.begin("1", 7)
    text = "x" * 70_000 + "\n" + "y" * 99 + "\n" + f"{'z' * 99}\n" * 1_000 + "end"
    buffer._keep("1", buffer._tasks["1"], text)
    texts = [chunk.text for chunk in buffer.take_logs()]
    assert "".join(texts) == text
    assert max(map(len, texts)) <= MAX_CHUNK_CHARACTERS
    assert [part.endswith("\n") for part in texts] == [False, True, False]
    assert [part[-1] for part in texts] == ["x", "\n", "d"]
