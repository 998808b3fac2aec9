"""When an orchestrator looks: also when it is woken again and again for something else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from dagmaster.orchestrator.poll_schedule import PollSchedule
from dagmaster.testing import FakeClock

ALL = {"results", "commands", "jobs"}


def a_store() -> Any:
    return SimpleNamespace(clock=FakeClock(), wakeup=asyncio.Event(), pending_kinds=set())


def test_everything_is_looked_for_once_a_poll_however_often_it_is_woken():
    store = a_store()
    schedule = PollSchedule(store, 1.0)
    assert schedule.due() == ALL
    looked = 0
    for _ in range(100):
        store.clock.move(0.1)
        store.pending_kinds.add("results")
        store.wakeup.set()
        looked += schedule.due() == ALL
    assert looked in (9, 10)


def test_after_a_claim_jobs_are_looked_for_again_soon_however_often_it_is_woken():
    store = a_store()
    schedule = PollSchedule(store, 1000.0)
    schedule.due()
    schedule.on_claim(has_jobs=True)
    collected = []
    for step in range(200):
        store.clock.move(0.01)
        store.pending_kinds.add("results")
        if "jobs" in schedule.due():
            collected.append(step)
            schedule.on_claim(has_jobs=False)
    # After 0.05, 0.2 and 0.8 seconds; then no more.
    assert len(collected) == 3


def test_what_was_heard_of_is_looked_for_at_once_and_once():
    store = a_store()
    schedule = PollSchedule(store, 1000.0)
    schedule.due()
    store.pending_kinds.add("commands")
    assert schedule.due() == {"commands"}
    assert schedule.due() == set()
