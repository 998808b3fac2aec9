"""The steps of stopping, and how long each may take."""

from __future__ import annotations

import pytest

from dagmaster.worker.shutdown import CLOSE_SECONDS, ShutdownBudget


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
