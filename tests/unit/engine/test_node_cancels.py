"""A node that is cancelled alone fails for good, and the rules for failures say what follows."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.engine.decisions import AcceptCancel, Decision, Dispatch, Fail, FinishJob, Ignore, Reopen, Stop
from dagmaster.engine.events import ChildJobFinished, NodeCancelRequested, TaskReleased
from dagmaster.engine.invariants import violations
from dagmaster.engine.status import JobStatus
from dagmaster.testing import (
    Driver,
    a_job,
    approval,
    conditional,
    fan_out,
    group,
    member,
    task,
    wait,
    workflow,
)
from tests.unit.engine.engine_proof import batches_of

BY_ADA = {"kind": "cancelled", "message": "cancelled by ada", "by": "ada"}


def started(**nodes) -> Driver:
    driver = Driver(a_job(on_failure="continue", **nodes))
    driver.start()
    return driver


def crashed(driver: Driver) -> Driver:
    """Go on with the job as another owner finds it."""
    driver.job = driver.rebuild()
    return driver


def fails(decided: list[Decision]) -> dict[str, Any]:
    return {decision.node: decision.error for decision in decided if isinstance(decision, Fail)}


# ── What has not started ──


@pytest.mark.parametrize(
    "node",
    [
        pytest.param({"a": "", "x": "a"}, id="pending"),
        pytest.param({"x": approval()}, id="waits for an approval"),
        pytest.param({"x": wait(signal="go", timeout_seconds=5)}, id="waits for a signal"),
        pytest.param({"x": wait(seconds=5)}, id="waits for a time"),
    ],
)
def test_a_node_that_has_not_started_fails_at_once(node):
    driver = started(**node)
    decided = driver.cancel_nodes("x")
    assert fails(decided) == {"x": BY_ADA}
    assert driver.status("x") == "FAILED"
    assert driver.job.nodes["x"].wake_at is None
    assert violations(driver.job) == []


def test_a_node_that_waits_for_its_retry_is_not_dispatched_again():
    driver = started(x=task(retry=3))
    driver.fail("x")
    driver.cancel_nodes("x")
    driver.now = 1e9
    assert isinstance(driver.fire_timer("x")[0], Ignore)
    assert driver.status("x") == "FAILED"


def test_a_node_that_waits_for_values_fails_and_the_values_come_too_late():
    driver = started(
        a="", x=conditional("{{ nodes.a.output.n }}", after="a", branches={"is_1": "{{ value == 1 }}"})
    )
    driver.step(NodeCancelRequested(("x",), "ada"))
    driver.succeed("a", output={"n": 1})
    assert driver.status("x") == "FAILED"


# ── What runs ──


def test_a_node_in_flight_is_asked_to_stop_and_fails_when_it_has_stopped():
    driver = started(x=task(retry=3), other="")
    assert driver.cancel_nodes("x") == [AcceptCancel(("x",), 0), Stop("x", 1)]
    assert driver.status("x") == "DISPATCHED"
    assert fails(driver.fail("x", message="disk full")) == {
        "x": BY_ADA | {"cause": {"kind": "error", "message": "disk full"}}
    }
    assert driver.status("other") == "DISPATCHED"


def test_the_report_of_a_worker_that_stopped_when_asked_to_is_no_cause():
    driver = started(x=task(retry=3))
    driver.cancel_nodes("x")
    crashed(driver)
    decided = driver.release("x")
    assert fails(decided) == {"x": BY_ADA}


@pytest.mark.parametrize("end", ["fail", "lose", "release", "reject_dispatch"])
def test_a_cancel_survives_the_crash_of_the_owner_and_no_attempt_follows(end):
    driver = started(x=task(retry=3))
    driver.cancel_nodes("x")
    crashed(driver)
    decided = getattr(driver, end)("x")
    assert fails(decided)["x"]["message"] == "cancelled by ada"
    assert not any(isinstance(decision, Dispatch) for decision in decided)
    assert driver.status("x") == "FAILED"


def test_a_success_after_the_request_counts():
    driver = started(x="", y="x")
    driver.cancel_nodes("x")
    driver.succeed("x", output=1)
    assert driver.statuses() == {"x": "COMPLETED", "y": "DISPATCHED"}
    assert driver.job.nodes["x"].error is None


def test_a_child_job_is_stopped_and_its_node_fails_as_cancelled():
    driver = started(x=workflow())
    assert Stop("x", 1) in driver.cancel_nodes("x")
    decided = driver.apply(ChildJobFinished("x", 1, JobStatus.CANCELLED))
    assert fails(decided)["x"]["message"] == "cancelled by ada"


# ── What follows ──


def test_dependents_are_skipped_and_with_allow_failure_they_run():
    driver = started(x=task(), y="x", allowed=task(allow_failure=True), z="allowed")
    driver.cancel_nodes("x", "allowed")
    driver.release("x")
    driver.release("allowed")
    assert driver.statuses() == {
        "x": "FAILED",
        "y": "SKIPPED upstream_failed",
        "allowed": "FAILED",
        "z": "DISPATCHED",
    }


def test_the_failure_ends_the_job_as_on_failure_says():
    driver = Driver(a_job(on_failure="finish_running", x="", y="", z="y"))
    driver.start()
    driver.cancel_nodes("x")
    driver.release("x")
    assert driver.statuses() == {"x": "FAILED", "y": "DISPATCHED", "z": "SKIPPED job_failed"}
    decided = driver.succeed("y")
    assert [decision.status for decision in decided if isinstance(decision, FinishJob)] == [JobStatus.FAILED]


def test_all_named_nodes_are_cancelled_although_the_failure_of_the_first_stops_the_job():
    driver = Driver(a_job(on_failure="cancel_running", x=approval(), y="", z=""))
    driver.start()
    driver.cancel_nodes("x", "y")
    driver.release("y")
    driver.release("z")
    assert driver.statuses() == {"x": "FAILED", "y": "FAILED", "z": "CANCELLED"}


def test_a_cancel_of_the_job_that_comes_later_does_not_change_why_a_node_ends():
    driver = started(x="", y="")
    driver.cancel_nodes("x")
    driver.cancel()
    driver.release("x")
    driver.release("y")
    assert driver.statuses() == {"x": "FAILED", "y": "CANCELLED"}
    assert driver.job.status is JobStatus.CANCELLED


def test_resume_and_retry_run_a_cancelled_node_again():
    driver = started(x=task(retry=3), y="x")
    driver.cancel_nodes("x")
    driver.release("x")
    driver.resume()
    assert driver.statuses() == {"x": "DISPATCHED", "y": "PENDING"}
    # The request was about the run before.
    driver.fail("x")
    assert driver.status("x") == "READY"
    driver.cancel_nodes("x")
    driver.retry("x")
    driver.succeed("x")
    driver.succeed("y")
    assert driver.job.status is JobStatus.COMPLETED


# ── What cannot be cancelled ──


def test_what_cannot_be_cancelled_is_skipped_if_something_can():
    driver = started(done="", x="", y="")
    driver.succeed("done")
    assert driver.cancel_nodes("done", "x", "missing")[0] == AcceptCancel(("x",), 2)
    assert driver.cancel_nodes("x", "done") == [Ignore("node x is being stopped already", "x")]
    assert driver.cancel_nodes("done") == [
        Ignore("node done is COMPLETED; only an unfinished node can be cancelled", "done")
    ]
    assert driver.cancel_nodes("missing") == [Ignore("no node 'missing' in this job", "missing")]


def test_a_job_that_has_not_started_or_is_over_has_no_nodes_to_cancel():
    driver = Driver(a_job(x=""))
    assert isinstance(driver.cancel_nodes("x")[0], Ignore)
    driver.start()
    driver.succeed("x")
    assert isinstance(driver.cancel_nodes("x")[0], Ignore)


def test_what_stops_with_its_job_is_not_cancelled_again():
    driver = started(x="")
    driver.cancel()
    assert driver.cancel_nodes("x") == [Ignore("node x is being stopped already", "x")]


# ── Children of fan-outs ──


def test_one_tile_is_cancelled_and_the_others_complete():
    driver = started(f=fan_out([1, 2, 3]), after="f")
    driver.cancel_nodes("f__1")
    driver.release("f__1")
    driver.succeed("f__0", "f__2")
    assert driver.status("f") == "FAILED"
    assert (driver.job.nodes["f"].error or {})["failed"] == [{"index": 1, "error": BY_ADA}]
    assert driver.status("after") == "SKIPPED upstream_failed"
    driver.resume()
    assert driver.dispatched() == ["f__1"]


def test_a_tolerant_fan_out_completes_without_a_cancelled_tile():
    driver = started(f=fan_out([1, 2, 3], tolerate=1), after="f")
    driver.cancel_nodes("f__1")
    driver.release("f__1")
    driver.succeed("f__0", "f__2")
    assert (driver.status("f"), driver.status("after")) == ("COMPLETED", "DISPATCHED")


def test_a_tile_that_has_no_slot_yet_is_cancelled_and_takes_none():
    driver = started(f=fan_out([1, 2, 3, 4], max_parallel=1, tolerate=4))
    driver.cancel_nodes("f__1", "f__2")
    assert driver.dispatched() == ["f__0"]
    assert violations(driver.job) == []
    driver.succeed("f__0")
    assert driver.dispatched() == ["f__3"]
    driver.succeed("f__3")
    assert driver.status("f") == "COMPLETED"


def test_a_cancelled_tile_of_a_fail_fast_fan_out_stops_the_others():
    driver = started(f=fan_out([1, 2, 3], max_parallel=2, fail_fast=True))
    decided = driver.cancel_nodes("f__2")
    assert [decision for decision in decided if isinstance(decision, Stop)] == [
        Stop("f__0", 1),
        Stop("f__1", 1),
    ]
    driver.release("f__0")
    driver.release("f__1")
    assert driver.statuses() == {"f": "FAILED", "f__0": "CANCELLED", "f__1": "CANCELLED", "f__2": "FAILED"}


def test_a_cancelled_fan_out_stops_its_children_and_fails():
    driver = started(f=fan_out([1, 2, 3, 4], max_parallel=2, on_item_error="tolerate"), after="f")
    driver.succeed("f__0")
    driver.cancel_nodes("f")
    crashed(driver)
    assert driver.status("f__3") == "CANCELLED"
    driver.release("f__1")
    decided = driver.succeed("f__2")
    assert fails(decided) == {"f": BY_ADA}
    assert driver.status("f__1") == "CANCELLED"
    driver.retry("f")
    assert driver.dispatched() == ["f__1", "f__3"]


def test_a_cancelled_fan_out_whose_children_all_succeed_completes():
    driver = started(f=fan_out([1, 2]))
    driver.cancel_nodes("f")
    driver.succeed("f__0", "f__1")
    assert driver.status("f") == "COMPLETED"


def test_a_fan_out_in_a_fan_out_is_cancelled_before_it_starts_again():
    """It has children that this run reopened, and waits for a slot."""
    inner = fan_out("{{ item }}", max_parallel=2)
    driver = started(f=fan_out([[1, 2], [3, 4]], child=inner, max_parallel=1))
    for child in ("f__0__0", "f__0__1", "f__1__0", "f__1__1"):
        driver.fail(child)
    driver.resume()
    assert (driver.status("f__1"), driver.status("f__1__0")) == ("PENDING", "PENDING")
    decided = driver.cancel_nodes("f__1")
    assert fails(decided) == {"f__1": BY_ADA}
    assert (driver.status("f__1__0"), driver.status("f__1__1")) == ("CANCELLED", "CANCELLED")
    assert violations(driver.job) == []
    driver.succeed("f__0__0", "f__0__1")
    assert driver.status("f") == "FAILED"


def test_a_child_of_a_fan_out_that_has_not_started_again_is_cancelled_and_starts_nothing():
    inner = fan_out("{{ item }}", fail_fast=True)
    with batches_of(2):
        driver = started(f=fan_out([[1, 2], [3, 4, 5]], child=inner, max_parallel=1))
        for fan in ("f__0", "f__1"):
            driver.fail(f"{fan}__0")
            driver.release(f"{fan}__1")
    driver.resume()
    driver.cancel_nodes("f__1__0")
    # Fail fast: the other one is cancelled as soon as too many failed.
    assert (driver.status("f__1"), driver.status("f__1__0"), driver.status("f__1__1")) == (
        "PENDING",
        "FAILED",
        "CANCELLED",
    )
    assert violations(driver.job) == []
    driver.succeed("f__0__0", "f__0__1")
    assert (driver.status("f__1"), driver.status("f")) == ("FAILED", "FAILED")
    assert "f__1__2" not in driver.job.nodes


# ── Groups ──


def test_a_group_stands_for_its_members():
    driver = started(g=group(), a=member("g"), b=member("g", "a"), after="g", beside="")
    decided = driver.cancel_nodes("g")
    assert decided[0] == AcceptCancel(("a", "b"), 0)
    driver.release("a")
    assert driver.statuses() == {
        "g": "SKIPPED upstream_failed",
        "a": "FAILED",
        "b": "FAILED",
        "after": "SKIPPED upstream_failed",
        "beside": "DISPATCHED",
    }


# ── Retry of several ──


def test_several_nodes_are_retried_in_one_new_run_while_the_job_runs():
    driver = started(f=fan_out([1, 2, 3, 4]), other="")
    driver.fail("f__0", "f__1", "f__2")
    decided = driver.retry("f__0", "f__2", "f__3")
    assert [decision for decision in decided if isinstance(decision, Reopen)] == [
        Reopen(2, ("f__0", "f__2"), 1)
    ]
    assert driver.dispatched() == ["other", "f__0", "f__2", "f__3"]
    assert driver.status("f__1") == "FAILED"


def test_one_that_waits_for_its_retry_is_dispatched_next_to_the_new_run():
    driver = started(x=task(retry=3), y="")
    driver.fail("x", "y")
    driver.retry("x", "y")
    assert driver.dispatched() == ["x", "y"]


def test_a_retry_is_ignored_if_none_of_its_nodes_can_be_retried():
    driver = started(x="", y="")
    assert driver.retry("x", "y") == [
        Ignore("node x is DISPATCHED; only a failed or cancelled node can be retried", "x")
    ]


def test_a_late_report_of_a_cancelled_node_changes_nothing():
    driver = started(x=task(retry=3))
    driver.cancel_nodes("x")
    driver.release("x")
    assert isinstance(driver.apply(TaskReleased("x", 1))[0], Ignore)
