"""Tasks that are ready start in slices: a step starts a part of them, and a crash between two changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest

from dagmaster.engine import backlog
from dagmaster.engine.backlog import Backlog
from dagmaster.engine.decisions import Dispatch, Ignore
from dagmaster.engine.events import BacklogDue, CancelRequested, JobStarted, TaskSucceeded
from dagmaster.testing import Driver, a_job, a_spec, nodes_added

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _two_at_once() -> Iterator[None]:
    with mock.patch.object(backlog, "START_BATCH", 2):
        yield


def a_started_job(**nodes) -> Driver:
    driver = Driver(a_job(**nodes))
    driver.step(JobStarted())
    return driver


def add(driver: Driver, links=None, **nodes):
    return driver.step(nodes_added(*(a_spec(node_id, node) for node_id, node in nodes.items()), links=links))


def started(decided) -> list[str]:
    return [decision.node for decision in decided if isinstance(decision, Dispatch)]


def test_a_step_starts_a_part_of_what_is_ready_and_the_next_one_more():
    driver = a_started_job(a="")
    assert started(add(driver, **{f"w{number}": "" for number in range(1, 6)})) == ["w1", "w2"]
    assert driver.status("w3") == "PENDING"
    assert started(driver.step(BacklogDue())) == ["w3", "w4"]
    assert started(driver.step(BacklogDue())) == ["w5"]
    assert isinstance(driver.step(BacklogDue())[0], Ignore)


def test_a_crash_between_two_steps_neither_loses_nor_repeats_a_task():
    driver = a_started_job(a="")
    decided = add(driver, **{f"w{number}": "" for number in range(12)})
    while driver.job.backlog:
        driver.job = driver.rebuild()
        decided += driver.step(BacklogDue())
    assert sorted(started(decided)) == sorted(f"w{number}" for number in range(12))


def test_tasks_behind_one_node_also_start_in_parts():
    driver = a_started_job(a="", b="a", c="a", d="a")
    assert started(driver.step(TaskSucceeded("a", 1))) == ["b", "c"]
    assert list(driver.job.backlog) == ["d"]


def test_what_finishes_meanwhile_does_not_wait_for_the_backlog():
    driver = a_started_job(a="", b="", c="", d="a")
    assert started(driver.step(TaskSucceeded("a", 1))) == ["d"]
    assert list(driver.job.backlog) == ["c"]


def test_a_dependency_of_a_task_in_the_backlog_counts():
    driver = a_started_job(a="", b="", c="")
    assert list(driver.job.backlog) == ["c"]
    add(driver, {"c": "more"}, more="a")
    assert not driver.job.backlog
    driver.succeed("a", "more")
    assert driver.status("c") == "DISPATCHED"


def test_a_cancelled_job_starts_nothing_of_its_backlog():
    driver = a_started_job(a="", b="", c="")
    driver.step(CancelRequested())
    assert (driver.status("c"), len(driver.job.backlog)) == ("CANCELLED", 0)


def test_the_order_depends_on_names_only():
    first, second = Backlog(), Backlog()
    for name in ("w10", "w2", "w1", "x", "w2"):
        first.add(name)
    first.discard("x")
    second.replace(["w1", "w2", "w10"])
    assert first.take(2) == second.take(2) == ["w1", "w2"]
    assert (first.take(5), len(first)) == (["w10"], 0)
