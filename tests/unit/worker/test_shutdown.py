"""The steps of stopping, and how long each may take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dagmaster.store.memory.worker_store import MemoryWorkerStore
from dagmaster.worker.shutdown import CLOSE_SECONDS, ShutdownBudget
from tests.unit.worker.test_exclusive_tasks import World


def the_slowest(seconds: float) -> list[float]:
    """When each step is over, if each takes all the time that it has."""
    grace, now, ends = ShutdownBudget(seconds, 100.0), 100.0, []
    for step in (grace.until_cancel, grace.until_kill, grace.until_deregister, grace.until_exit):
        now += step(now)
        ends.append(now - 100.0)
    return ends


def test_tasks_are_asked_after_5_seconds_and_have_the_rest_to_save_what_they_did():
    assert the_slowest(30) == [5, 27, 29, 30]


@pytest.mark.parametrize("seconds", [3, 7.5, 30, 3600])
def test_all_steps_together_never_take_longer_than_the_grace(seconds: float):
    assert the_slowest(seconds)[-1] == pytest.approx(seconds)


@pytest.mark.parametrize("seconds", [0, 0.01, 1])
def test_a_short_grace_leaves_the_time_to_say_goodbye(seconds: float):
    asked, given_up, left, ended = the_slowest(seconds)
    assert asked <= given_up <= seconds < left < ended == CLOSE_SECONDS


def test_a_step_that_was_quick_leaves_its_time_to_the_next():
    grace = ShutdownBudget(30, 100.0)
    assert grace.until_kill(100.5) == 26.5


def test_a_heartbeat_that_is_answered_after_the_deregistration_is_no_expired_lease(monkeypatch, caplog):
    is_stopping, is_gone, is_answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
    heartbeat, deregister = MemoryWorkerStore.heartbeat, MemoryWorkerStore.deregister

    async def late_heartbeat(self: MemoryWorkerStore, *args: Any) -> Any:
        if not is_stopping.is_set():
            return await heartbeat(self, *args)
        await is_gone.wait()
        assert await heartbeat(self, *args) is None
        is_answered.set()
        return None

    async def slow_deregister(self: MemoryWorkerStore) -> None:
        await deregister(self)
        is_gone.set()
        await is_answered.wait()

    monkeypatch.setattr(MemoryWorkerStore, "heartbeat", late_heartbeat)
    monkeypatch.setattr(MemoryWorkerStore, "deregister", slow_deregister)

    async def main() -> None:
        async with World().worker():
            is_stopping.set()

    asyncio.run(main())
    assert is_answered.is_set()
    assert not caplog.records
