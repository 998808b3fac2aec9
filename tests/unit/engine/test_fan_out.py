"""Fan-outs: children in order, so many at a time, and how their failures count."""

from __future__ import annotations

from unittest import mock

import pytest

from dagmaster.engine import fanout
from dagmaster.engine.advance import advance
from dagmaster.engine.decisions import Cancel, Complete, Dispatch, Expand, Fail, Stop, WaitUntil
from dagmaster.engine.events import CancelRequested, ResolutionFailed, TaskReleased, TaskSucceeded, TimerFired
from dagmaster.engine.graph import Tolerance
from dagmaster.engine.invariants import violations
from dagmaster.engine.model import FanOut, row_of
from dagmaster.testing import Driver, a_job, fan_in, fan_out, task, workflow
from tests.unit.engine.engine_proof import batches_of


def a_fan_out(source, child=None, *, after="", on_failure="finish_running", **options) -> Driver:
    driver = Driver(a_job(on_failure=on_failure, f=fan_out(source, child, **options), g="f"))
    driver.start()
    return driver


def fan(driver: Driver, node_id: str = "f") -> FanOut:
    result = driver.job.nodes[node_id]
    assert isinstance(result, FanOut)
    return result


# ── Making children ──


def test_a_fan_out_runs_one_child_for_each_item_in_index_order():
    driver = Driver(a_job(f=fan_out(["x", "y", "z"])))
    decided = driver.start()
    assert decided[0] == Expand("f", 0, 3, 3, ["x", "y", "z"])
    assert [result.node for result in decided if isinstance(result, Dispatch)] == ["f__0", "f__1", "f__2"]
    assert driver.status("f") == "RUNNING"


def test_an_empty_list_is_completed_at_once():
    driver = a_fan_out([])
    assert driver.status("f") == "COMPLETED"
    assert Complete("f", {"fan_out_count": 0}) in driver.decisions
    assert driver.status("g") == "DISPATCHED"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1}, "object: {'a': 1}"),
        ("abc", "string: 'abc'"),
        (True, "boolean: True"),
        (7, "integer: 7"),
        (None, "null: None"),
        ("x" * 1000, "string: '" + "x" * 199),
    ],
)
def test_a_source_that_is_not_a_list_fails_the_node_with_its_type_and_beginning(value, message):
    driver = Driver(a_job(a="", f=fan_out("{{ nodes.a.output }}", after="a")))
    driver.start()
    driver.succeed("a", output=value)
    error = driver.job.nodes["f"].error or {}
    assert error["kind"] == "invalid_source"
    assert error["message"].startswith(f"source must be a list, not {message}")
    assert len(error["message"]) < 300


def test_a_job_has_at_most_a_million_children_at_all_levels_together():
    with mock.patch.object(fanout, "MAX_CHILDREN", 5):
        driver = Driver(a_job(on_failure="continue", f=fan_out([1, 2]), g=fan_out([1, 2, 3]), h=fan_out([1])))
        driver.start()
    assert driver.status("g") == "RUNNING"
    assert (driver.job.nodes["h"].error or {})["kind"] == "too_many_children"
    assert not [node_id for node_id in driver.job.nodes if node_id.startswith("h__")]


def test_a_source_that_is_resolved_again_uses_the_children_of_an_earlier_run():
    with mock.patch.object(fanout, "MAX_CHILDREN", 3):
        driver = Driver(a_job(f=fan_out([1, 2, 3])))
        driver.start()
        driver.succeed_all()
        driver.resume("f")
        driver.succeed_all()
    assert driver.job.status == "COMPLETED"


def test_a_fan_out_is_never_completed_while_a_child_is_open():
    driver = a_fan_out([1, 2, 3])
    driver.succeed("f__2", "f__0")
    assert driver.status("f") == "RUNNING"
    assert driver.succeed("f__1")[1] == Complete("f", {"fan_out_count": 3})


def test_children_are_made_some_thousands_in_a_step_and_the_rest_by_a_timer_that_is_due():
    driver = a_fan_out(list(range(5001)), max_parallel=1)
    assert fan(driver).expanded == 5000
    assert WaitUntil("f", 0.0) in driver.decisions
    driver.fire_timer("f")
    assert fan(driver).expanded == 5001
    assert len(driver.job.nodes) == 5003


def test_a_fan_out_whose_first_batch_is_over_waits_for_the_next():
    with batches_of(2):
        driver = a_fan_out([1, 2, 3])
        driver.succeed("f__0", "f__1")
        assert driver.status("f") == "RUNNING"
        driver.fire_timer("f")
        driver.succeed("f__2")
        assert driver.status("f") == "COMPLETED"


def test_children_go_on_in_the_same_places_after_a_reload():
    driver = a_fan_out([1, 2, 3], max_parallel=1)
    driver.succeed("f__0")
    driver.job = driver.rebuild()
    assert [result.node for result in driver.succeed("f__1") if isinstance(result, Dispatch)] == ["f__2"]


# ── max_parallel ──


def test_only_max_parallel_children_are_out_at_a_time():
    driver = a_fan_out(list(range(5)), max_parallel=2)
    assert driver.dispatched() == ["f__0", "f__1"]
    driver.succeed("f__1")
    assert driver.dispatched() == ["f__0", "f__2"]


def test_a_child_that_rests_between_attempts_keeps_its_place():
    driver = a_fan_out([1, 2], task(retry=2), max_parallel=1)
    driver.fail("f__0")
    assert driver.status("f__0") == "READY"
    assert driver.status("f__1") == "PENDING"


# ── Failures of children ──


def test_the_other_children_of_a_failed_one_run_to_their_end():
    driver = a_fan_out([1, 2, 3])
    driver.fail("f__1")
    assert driver.dispatched() == ["f__0", "f__2"]
    driver.succeed("f__0", "f__2")
    assert driver.status("f") == "FAILED"
    assert driver.status("g") == "SKIPPED upstream_failed"


@pytest.mark.parametrize(
    ("tolerate", "failures", "status"),
    [
        (0, 0, "COMPLETED"),
        (0, 1, "FAILED"),
        (2, 2, "COMPLETED"),
        (2, 3, "FAILED"),
        ("50%", 2, "COMPLETED"),
        ("50%", 3, "FAILED"),
    ],
)
def test_a_fan_out_completes_if_its_failures_are_within_what_it_tolerates(tolerate, failures, status):
    driver = a_fan_out(list(range(5)), tolerate=tolerate)
    driver.fail(*[f"f__{index}" for index in range(failures)])
    driver.succeed(*[f"f__{index}" for index in range(failures, 5)])
    assert driver.status("f") == status


@pytest.mark.parametrize(
    ("percent", "total", "limit"),
    [(2, 100, 2), (2, 149, 2), (2, 49, 0), (100, 3, 3), (18.4, 375, 69), (0, 10, 0), (33.3, 10, 3)],
)
def test_a_share_is_rounded_down_exactly(percent, total, limit):
    """As floats, 18.4 % of 375 were 68."""
    tolerance = Tolerance(percent=float(percent))
    assert tolerance.allows(limit, total)
    assert not tolerance.allows(limit + 1, total)


@pytest.mark.parametrize("on_item_error", ["tolerate", "quarantine"])
def test_failed_items_that_are_set_aside_never_fail_the_fan_out(on_item_error):
    driver = a_fan_out([1, 2], on_item_error=on_item_error)
    driver.fail("f__0", "f__1")
    assert driver.status("f") == "COMPLETED"


def test_a_failed_fan_out_names_the_first_twenty_children_that_failed():
    driver = a_fan_out(list(range(30)))
    driver.fail(*[f"f__{index}" for index in range(29, -1, -1)])
    error = driver.job.nodes["f"].error or {}
    assert [item["index"] for item in error["failed"]] == list(range(20))
    assert error["message"].startswith("30 of 30 children failed: f__0, f__1")
    assert error["message"].endswith("f__19 and 10 more")


def test_a_child_never_acts_on_the_job_directly():
    driver = a_fan_out([1, 2], on_failure="cancel_running")
    driver.fail("f__0")
    assert not driver.job.ending
    assert driver.dispatched() == ["f__1"]


# ── fail_fast ──


def test_fail_fast_cancels_what_has_not_started_and_stops_what_runs():
    driver = a_fan_out([1, 2, 3], max_parallel=2, fail_fast=True)
    decided = driver.fail("f__0")
    assert decided[1:] == [Stop("f__1", 1), Cancel("f__2")]
    assert driver.status("f") == "RUNNING"
    driver.lose("f__1")
    assert driver.statuses() | {"g": ""} == {
        "f": "FAILED",
        "g": "",
        "f__0": "FAILED",
        "f__1": "CANCELLED",
        "f__2": "CANCELLED",
    }


def test_fail_fast_waits_until_the_failures_cannot_be_tolerated():
    driver = a_fan_out([1, 2, 3], tolerate=1, fail_fast=True)
    driver.fail("f__0")
    assert not fan(driver).stopped
    driver.fail("f__1")
    assert fan(driver).stopped


def test_a_success_of_a_child_that_was_asked_to_stop_is_a_success():
    driver = a_fan_out([1, 2], fail_fast=True)
    driver.fail("f__0")
    driver.succeed("f__1")
    assert driver.status("f__1") == "COMPLETED"
    assert driver.status("f") == "FAILED"


def test_a_stopped_fan_out_makes_no_more_children():
    with batches_of(2):
        driver = a_fan_out([1, 2, 3], fail_fast=True)
        driver.fail("f__0")
        assert fan(driver).wake_at is None
        driver.succeed("f__1")
        assert driver.status("f") == "FAILED"
        assert "f__2" not in driver.job.nodes


def test_what_is_refused_after_it_was_asked_to_stop_is_cancelled():
    """It was FAILED: a refusal was not asked whether the attempt was to stop."""
    driver = a_fan_out([1, 2, 3], fail_fast=True)
    driver.fail("f__0")
    driver.reject_dispatch("f__1")
    driver.apply(ResolutionFailed("f__2", "params", "missing"))
    assert driver.status("f__1") == driver.status("f__2") == "CANCELLED"


# ── Nested ──


def test_nested_outputs_are_lists_of_lists():
    child = fan_out("{{ item }}")
    driver = Driver(a_job(f=fan_out([[1, 2], [], [3]], child), g=fan_in("f", over="f")))
    driver.start()
    for index, node_id in enumerate(["f__2__0", "f__0__1", "f__0__0"]):
        driver.succeed(node_id, output=index)
    assert driver.result == {"results": [[2, 1], [], [0]], "count": 3}


def test_nested_levels_have_their_own_limits_and_tolerance():
    child = fan_out([1, 2], max_parallel=1, tolerate=1)
    driver = a_fan_out([1, 2, 3], child, max_parallel=2)
    assert driver.dispatched() == ["f__0__0", "f__1__0"]
    driver.fail("f__0__0")
    driver.succeed("f__0__1")
    assert driver.status("f__0") == "COMPLETED"
    assert driver.dispatched() == ["f__1__0", "f__2__0"]


def test_a_nested_fan_out_that_was_stopped_from_outside_stays_so_after_a_reload():
    """Only its own failures told a rebuilt fan-out that it was stopped: it waited for children that never came."""
    with batches_of(2):
        # f__0 is a fan-out with three items, two of them made; f__1 fails, because 3 is not a list.
        driver = Driver(a_job(f=fan_out([[1, 2, 3], 3], fan_out("{{ item }}"), fail_fast=True)))
        driver.start()
        assert fan(driver, "f__0").stopped
        driver.job = driver.rebuild()
        driver.lose("f__0__0")
        driver.lose("f__0__1")
        assert driver.status("f__0") == "CANCELLED"
        assert driver.job.status == "FAILED"


def test_a_nested_fan_out_between_two_batches_ends_when_it_is_stopped_from_outside():
    with batches_of(2):
        driver = Driver(a_job(f=fan_out([[1, 2, 3], [1]], fan_out("{{ item }}"), fail_fast=True)))
        driver.start()
        driver.succeed("f__0__0", "f__0__1")
        driver.fail("f__1__0")
        assert driver.status("f__0") == "CANCELLED"
        assert driver.job.status == "FAILED"


def test_children_are_ordered_by_index_path_and_never_by_text():
    driver = a_fan_out(list(range(12)), workflow())
    paths = [driver.job.nodes[f"f__{index}"].index_path() for index in (2, 10)]
    assert paths == [(2,), (10,)]
    rebuilt = driver.rebuild().nodes["f"]
    assert isinstance(rebuilt, FanOut)
    assert [child.id for child in rebuilt.children] == [f"f__{index}" for index in range(12)]


# ── What ends it from outside ──


def test_a_fan_out_that_was_cut_short_is_cancelled_when_the_job_ends():
    driver = Driver(a_job(a="", f=fan_out([1, 2], max_parallel=1)))
    driver.start()
    driver.fail("a")
    assert driver.status("f__1") == "SKIPPED job_failed"
    driver.succeed("f__0")
    assert driver.status("f") == "CANCELLED"


def test_a_fan_out_between_two_batches_ends_with_its_job():
    with batches_of(2):
        driver = Driver(a_job(a="", f=fan_out([1, 2, 3])))
        driver.start()
        driver.succeed("f__0", "f__1")
        assert driver.status("f") == "RUNNING"
        driver.fail("a")
        assert driver.status("f") == "CANCELLED"
        assert driver.job.status == "FAILED"


def test_children_that_were_swept_give_no_place_back():
    """The number of children under way went below what it was."""
    driver = Driver(a_job(a="", f=fan_out([1, 2, 3], max_parallel=1)))
    driver.start()
    driver.fail("a")
    assert fan(driver).active == 1
    assert violations(driver.job) == []


def test_a_fan_out_of_an_ending_job_makes_no_more_children_after_a_reload():
    """Its timer was cleared, but the fan-out was not stored: it fired, and made children that nothing would start."""
    with batches_of(2):
        driver = Driver(a_job(a="", f=fan_out([1, 2, 3])))
        driver.start()
        driver.fail("a")
        driver.job = driver.rebuild()
        driver.apply(TimerFired("f"))
        assert fan(driver).expanded == 2
        assert violations(driver.job) == []


def test_nobody_can_report_about_a_fan_out_itself():
    """It is RUNNING in attempt 0, and a report of attempt 0 completed it over the heads of its children."""
    driver = a_fan_out([1])
    driver.apply(TaskSucceeded("f", 0))
    driver.apply(TaskReleased("f", 0))
    driver.apply(ResolutionFailed("f", "source", "missing"))
    assert driver.status("f") == "RUNNING"


def test_a_rebuilt_job_sweeps_in_the_same_order():
    """Children made after each other stood between each other after a reload, and so did their numbers."""
    with batches_of(1):
        driver = Driver(a_job(f=fan_out([1, 2], max_parallel=1), h=fan_out([1, 2], max_parallel=1)))
        driver.start()
        driver.fire_timer("h")
        driver.fire_timer("f")
        twin = driver.rebuild()
        assert advance(twin, CancelRequested(), 0.0) == driver.cancel()
        assert {node.id: row_of(node) for node in twin.nodes.values()} == driver.rows()


def test_a_failed_child_says_so():
    driver = a_fan_out([1])
    assert isinstance(driver.fail("f__0")[0], Fail)
