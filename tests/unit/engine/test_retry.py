"""Attempts: what counts as one, what it costs, and how long a node rests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.engine.apply import MAX_SHARED_LOSSES
from dagmaster.engine.decisions import ChargeLoss, Dispatch, Fail, Ignore, WaitUntil, Withdraw
from dagmaster.engine.events import (
    ResolutionFailed,
    TaskFailed,
    TaskLost,
    TaskReleased,
    TaskSucceeded,
    TimerFired,
)
from dagmaster.engine.graph import TaskSpec
from dagmaster.engine.retry import NO_RETRY, Backoff, RetryPolicy, jitter_for, retry_delay
from dagmaster.engine.status import Isolation, NodeStatus, isolation_after
from dagmaster.testing import Driver, a_job, task


def a_task(**options) -> Driver:
    driver = Driver(a_job(a=task(**options)), now=100.0)
    driver.start()
    return driver


# ── Delays ──


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff.EXPONENTIAL, [5, 10, 20, 40, 60]),
        (Backoff.LINEAR, [5, 10, 15, 20, 25]),
        (Backoff.FIXED, [5, 5, 5, 5, 5]),
    ],
)
def test_the_delay_grows_as_the_policy_says_up_to_its_maximum(backoff, delays):
    policy = RetryPolicy(backoff=backoff, max_delay_seconds=60, jitter=False)
    assert [retry_delay(policy, failures, 0.5) for failures in range(1, 6)] == delays


@given(
    failures=st.integers(1, 10**9),
    chance=st.floats(0, 1, exclude_max=True),
    backoff=st.sampled_from(Backoff),
    initial=st.floats(0, 1e6),
    most=st.floats(0, 1e6),
)
def test_jitter_moves_a_delay_within_its_upper_half(failures, chance, backoff, initial, most):
    settings = {"backoff": backoff, "initial_delay_seconds": initial, "max_delay_seconds": most}
    whole = retry_delay(RetryPolicy(**settings, jitter=False), failures, chance)
    assert 0 <= whole <= most
    assert whole / 2 <= retry_delay(RetryPolicy(**settings), failures, chance) <= whole


def test_chance_is_the_same_in_every_process_and_differs_between_attempts():
    assert jitter_for("job", "a", 1) == jitter_for("job", "a", 1) == pytest.approx(0.35346, abs=1e-5)
    assert len({jitter_for("job", node, attempt) for node in "abc" for attempt in range(100)}) > 290


# ── Failed ──


def test_a_failed_attempt_rests_and_is_dispatched_when_the_timer_fires():
    driver = a_task(retry=2)
    assert driver.fail("a") == [WaitUntil("a", 102.0)]
    assert driver.status("a") == "READY"
    assert [type(result) for result in driver.fire_timer("a")] == [Dispatch]
    assert driver.job.nodes["a"].attempt == 2


def test_the_last_of_max_attempts_fails_the_node():
    driver = a_task(retry=2)
    driver.fail("a")
    driver.fire_timer("a")
    assert isinstance(driver.fail("a")[0], Fail)
    assert driver.job.nodes["a"].attempt == 2


def test_no_retry_means_one_attempt():
    driver = a_task(retry=NO_RETRY)
    driver.fail("a")
    assert driver.status("a") == "FAILED"


def test_a_permanent_error_ends_it_at_once():
    driver = a_task(retry=3)
    driver.fail("a", permanent=True)
    assert driver.status("a") == "FAILED"


def test_a_node_that_completes_in_the_end_has_no_error():
    driver = a_task(retry=2)
    driver.fail("a")
    assert driver.job.nodes["a"].error == {"kind": "error", "message": "boom"}
    driver.fire_timer("a")
    driver.succeed("a")
    assert driver.job.nodes["a"].error is None


def test_a_timer_that_fires_early_changes_nothing():
    driver = a_task(retry=2)
    driver.fail("a")
    driver.now = 101.0
    assert isinstance(driver.apply(TimerFired("a"))[0], Ignore)
    assert driver.status("a") == "READY"


def test_a_node_that_waits_for_a_retry_is_dispatched_at_once_when_it_is_retried():
    driver = a_task(retry=2)
    driver.fail("a")
    assert [type(result) for result in driver.retry("a")] == [Dispatch]
    assert driver.job.nodes["a"].wake_at is None
    assert driver.job.run == 1


# ── Lost, handed back, refused ──


def test_a_worker_that_dies_uses_max_lost_and_not_max_attempts():
    driver = a_task(retry=RetryPolicy(max_attempts=1, max_lost=2))
    for attempt in (2, 3):
        assert [type(result) for result in driver.lose("a")] == [ChargeLoss, Dispatch]
        assert driver.job.nodes["a"].attempt == attempt
    driver.lose("a")
    assert driver.status("a") == "FAILED"
    assert (driver.job.nodes["a"].error or {})["kind"] == "lost"


def test_losses_together_with_other_tasks_are_not_charged_and_isolate_the_node_step_by_step():
    driver = a_task(retry=RetryPolicy(max_attempts=1, max_lost=0))
    node = driver.job.nodes["a"]
    seen = []
    for _ in range(MAX_SHARED_LOSSES):
        driver.lose("a", alone=False)
        seen.append(isolation_after(node.shared_losses))
        assert (node.status, node.lost_attempts, node.failed_attempts) == (NodeStatus.DISPATCHED, 0, 0)
    assert seen == [Isolation.PROCESS] * 2 + [Isolation.EXCLUSIVE] * (MAX_SHARED_LOSSES - 2)
    driver.lose("a", alone=False)
    assert (node.status, node.lost_attempts, (node.error or {})["kind"]) == (NodeStatus.FAILED, 1, "lost")
    assert (node.error or {})[
        "message"
    ] == "its worker died once after 10 times next to other tasks (max_lost 0)"


@pytest.mark.parametrize(
    ("kind", "losses"), [("error", 0), ("crashed", 2), ("out_of_memory", 2), ("timeout", 2)]
)
def test_only_a_failure_that_leaves_the_process_alive_ends_the_isolation(kind, losses):
    driver = a_task(retry=RetryPolicy(max_attempts=3, jitter=False))
    driver.lose("a", alone=False)
    driver.lose("a", alone=False)
    node = driver.job.nodes["a"]
    driver.apply(TaskFailed("a", node.attempt, {"kind": kind, "message": "no"}))
    assert node.shared_losses == losses


def test_an_exclusive_task_has_no_dispatch_timeout():
    driver = a_task(dispatch_timeout_seconds=10.0)
    node = driver.job.nodes["a"]
    assert node.wake_at is not None
    for _ in range(3):
        driver.lose("a", alone=False)
    assert node.wake_at is None


def test_an_attempt_that_is_handed_back_uses_no_budget():
    driver = a_task(retry=1)
    for _ in range(5):
        driver.release("a")
    node = driver.job.nodes["a"]
    assert (node.attempt, node.failed_attempts, node.lost_attempts) == (6, 0, 0)


def test_what_dispatch_refuses_fails_without_a_retry():
    driver = a_task(retry=3)
    driver.reject_dispatch("a")
    assert driver.status("a") == "FAILED"


def test_a_value_that_cannot_be_resolved_fails_the_node_with_its_path():
    driver = a_task(retry=3)
    driver.apply(ResolutionFailed("a", "params.x", "`inputs.x` is missing"))
    assert driver.job.nodes["a"].error == {
        "kind": "expression",
        "message": "`inputs.x` is missing",
        "path": "params.x",
    }


def test_a_task_that_no_worker_takes_in_time_is_withdrawn_and_counts_as_failed():
    driver = a_task(retry=1, dispatch_timeout_seconds=30.0)
    assert driver.job.nodes["a"].wake_at == 130.0
    withdraw = driver.fire_timer("a")[0]
    assert isinstance(withdraw, Withdraw)
    assert isinstance(withdraw.then, TaskFailed)
    driver.apply(withdraw.then)
    assert (driver.job.nodes["a"].error or {})["kind"] == "dispatch_timeout"


# ── Stale ──


@pytest.mark.parametrize("report", [TaskSucceeded, TaskLost, TaskReleased])
@pytest.mark.parametrize("attempt", [0, 1, 3])
def test_a_report_of_another_attempt_changes_nothing(report, attempt):
    driver = a_task()
    driver.release("a")
    before = driver.rows()
    assert isinstance(driver.apply(report("a", attempt))[0], Ignore)
    assert driver.rows() == before


def test_a_second_report_of_the_same_attempt_changes_nothing():
    driver = Driver(a_job(a="", b="a"))
    driver.start()
    driver.succeed("a")
    before = driver.rows()
    assert isinstance(driver.succeed("a")[0], Ignore)
    assert isinstance(driver.fail("a")[0], Ignore)
    assert driver.rows() == before


def test_a_report_about_a_node_that_is_not_there_changes_nothing():
    driver = a_task()
    assert isinstance(driver.apply(TaskSucceeded("b", 1))[0], Ignore)


def test_a_late_report_does_not_ask_for_the_result_again():
    """It did: whatever came while the job waited for its result was answered with another Need."""
    driver = a_task()
    driver.step(TaskSucceeded("a", 1), output={})
    assert [type(result).__name__ for result in driver.step(TaskSucceeded("a", 1))] == ["Ignore"]


def test_a_task_has_the_policy_of_its_spec():
    spec = a_job(a=task(retry=5)).graph.specs["a"]
    assert isinstance(spec, TaskSpec)
    assert spec.retry.max_attempts == 5
