"""Each report is given once, whether it was pushed, read or both; and who is pushed to looks if that is all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from dagmaster.engine.status import AttemptStatus
from dagmaster.orchestrator.inbox import may_follow_batch
from dagmaster.orchestrator.result_reader import DEDUP_SIZE, FULL_READ_EVERY, PREFETCH_THRESHOLD, ResultReader
from dagmaster.ports.turn_records import TaskResult
from dagmaster.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.ports.orchestrator_store import OrchestratorStore


def a_result(number: int) -> TaskResult:
    return TaskResult(number, "1", "a", 1, AttemptStatus.COMPLETED, permanent=False, output=None, error=None, started_at=None, reported_at=0.0)  # fmt: skip


class Store:
    """What a door has for `ResultReader`."""

    def __init__(self, *stored: int) -> None:
        self.clock = FakeClock()
        self.notified_results: list[TaskResult] = []
        self.stored = list(stored)
        self.reads = 0

    async def read_results(
        self, limit: int, quarantined: Collection[str] = (), *, after: int = 0
    ) -> list[TaskResult]:
        self.reads += 1
        return [a_result(number) for number in self.stored if number > after][:limit]


def reader_of(store: Store) -> ResultReader:
    return ResultReader(cast("OrchestratorStore", store))


def read(reader: ResultReader, *waiting: str) -> list[int]:
    return [each.id for each in asyncio.run(reader.read(waiting, ()))]


def notified(reader: ResultReader) -> list[int]:
    return [each.id for each in reader.take_notified()]


def test_what_was_pushed_is_not_read():
    store = Store(7)
    reader = reader_of(store)
    read(reader, "results")
    store.notified_results.append(a_result(8))
    assert read(reader) == []
    assert notified(reader) == [8]
    assert store.reads == 1
    assert notified(reader) == []


@pytest.mark.parametrize("first", ["read", "push"])
def test_what_is_pushed_and_read_is_delivered_once(first):
    store = Store(7)
    reader = reader_of(store)
    store.notified_results += [a_result(7), a_result(7)]
    if first == "read":
        assert read(reader, "results") == [7]
        assert notified(reader) == []
    else:
        assert notified(reader) == [7]
        store.notified_results.append(a_result(7))
        assert notified(reader) == []


def test_a_job_that_was_dropped_is_read_again():
    store = Store(7)
    reader = reader_of(store)
    store.notified_results.append(a_result(7))
    assert notified(reader) == [7]
    assert read(reader, "results") == [7]


def test_what_is_remembered_has_an_end_and_the_newest_are_in_it():
    store = Store()
    reader = reader_of(store)
    for number in range(3 * DEDUP_SIZE):
        store.notified_results.append(a_result(number))
        reader.take_notified()
    assert len(reader._delivered) + len(reader._delivered_before) <= 2 * DEDUP_SIZE + 2
    store.notified_results += [a_result(3 * DEDUP_SIZE - 1), a_result(2 * DEDUP_SIZE)]
    assert notified(reader) == []


def test_what_is_read_ahead_comes_after_what_is_in_hand():
    store = Store(*range(1, PREFETCH_THRESHOLD + 3))
    reader = reader_of(store)
    turn: Any = SimpleNamespace(results=list(range(1, PREFETCH_THRESHOLD + 1)))
    assert asyncio.run(reader.prefetch([turn], ()))
    assert read(reader, "results") == [PREFETCH_THRESHOLD + 1, PREFETCH_THRESHOLD + 2]


def test_after_many_results_more_are_read_ahead_but_every_few_times_all():
    reader = reader_of(Store())
    many: Any = SimpleNamespace(results=[1] * PREFETCH_THRESHOLD)
    few: Any = SimpleNamespace(results=[1])
    assert [reader.should_prefetch([many]) for _ in range(2 * FULL_READ_EVERY)] == [
        *[True] * (FULL_READ_EVERY - 1),
        False,
    ] * 2
    assert reader.should_prefetch([many])
    assert not reader.should_prefetch([few])


@pytest.mark.parametrize(
    ("status", "batches", "expected"),
    [
        (AttemptStatus.COMPLETED, None, False),
        (AttemptStatus.FAILED, None, False),
        (AttemptStatus.COMPLETED, "0", True),
        (AttemptStatus.FAILED, "0", True),
        (AttemptStatus.LOST, None, True),
        (AttemptStatus.RELEASED, None, True),
    ],
)
def test_commands_are_read_after_a_result_that_may_follow_one(status, batches, expected):
    result = replace(a_result(1), status=status, batches=batches)
    assert may_follow_batch([a_result(2), result]) is expected
