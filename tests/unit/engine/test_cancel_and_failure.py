"""What the rest of a job does when a node fails, when it is cancelled, and when time is over."""

from __future__ import annotations

import pytest

from dagmaster.engine.advance import pending_needs
from dagmaster.engine.decisions import FinishJob, Ignore, Need, Stop, WaitUntil, Withdraw
from dagmaster.engine.events import DispatchRejected, ResolutionFailed, TaskFailed, TaskReleased, TimerFired
from dagmaster.engine.status import JobStatus
from dagmaster.testing import (
    Driver,
    a_job,
    a_spec,
    any_of,
    approval,
    fan_in,
    fan_out,
    nodes_added,
    task,
    wait,
    workflow,
)


def a_busy_job(on_failure="finish_running", deadline_seconds=None) -> Driver:
    """Return a job in which `a` runs before `b`, next to a task, a child job and two waits."""
    driver = Driver(
        a_job(
            on_failure=on_failure,
            deadline_seconds=deadline_seconds,
            a="",
            b="a",
            runs=task(retry=3),
            later="runs",
            child=workflow(),
            pause=wait(signal="go"),
            ask=approval(),
        )
    )
    driver.start()
    return driver


# ── on_failure ──


def test_continue_breaks_the_followers_and_lets_everything_else_go_on():
    driver = a_busy_job("continue")
    driver.fail("a")
    assert driver.statuses() == {
        "a": "FAILED",
        "b": "SKIPPED upstream_failed",
        "runs": "DISPATCHED",
        "later": "PENDING",
        "child": "RUNNING",
        "pause": "WAITING",
        "ask": "WAITING",
    }


def test_finish_running_skips_what_has_not_started_and_withdraws_what_no_worker_holds():
    driver = a_busy_job()
    decided = driver.fail("a")
    assert Withdraw("runs", 1, TaskReleased("runs", 1)) in decided
    assert not any(isinstance(result, Stop) for result in decided)
    assert driver.statuses() == {
        "a": "FAILED",
        "b": "SKIPPED upstream_failed",
        "runs": "DISPATCHED",
        "later": "SKIPPED job_failed",
        "child": "RUNNING",
        "pause": "SKIPPED job_failed",
        "ask": "SKIPPED job_failed",
    }


def test_what_runs_may_finish_but_is_not_tried_again():
    driver = a_busy_job()
    driver.fail("a")
    driver.fail("runs")
    assert driver.status("runs") == "FAILED"
    driver.finish_child_job("child", result=1)
    assert driver.status("child") == "COMPLETED"
    assert driver.job.status == "FAILED"


def test_what_is_lost_in_an_ending_job_is_failed():
    driver = a_busy_job()
    driver.fail("a")
    driver.lose("runs")
    assert driver.status("runs") == "FAILED"


def test_what_comes_back_unfinished_to_an_ending_job_is_skipped():
    driver = a_busy_job()
    driver.fail("a")
    driver.release("runs")
    assert driver.status("runs") == "SKIPPED job_failed"


def test_cancel_running_stops_attempts_and_child_jobs():
    driver = a_busy_job("cancel_running")
    decided = driver.fail("a")
    assert [result for result in decided if isinstance(result, Stop)] == [Stop("runs", 1), Stop("child", 1)]
    driver.fail("runs")
    driver.finish_child_job("child", "CANCELLED")
    assert driver.status("runs") == driver.status("child") == "CANCELLED"
    assert driver.job.status == "FAILED"


@pytest.mark.parametrize(
    "event", [DispatchRejected("runs", 1, {"kind": "x"}), ResolutionFailed("runs", "p", "m")]
)
def test_of_an_attempt_that_was_asked_to_stop_anything_but_a_success_is_cancelled(event):
    """A refusal and an expression without a value were FAILED."""
    driver = a_busy_job("cancel_running")
    driver.fail("a")
    driver.apply(event)
    assert driver.status("runs") == "CANCELLED"


def test_a_success_of_an_attempt_that_was_asked_to_stop_is_a_success():
    driver = a_busy_job("cancel_running")
    driver.fail("a")
    driver.succeed("runs")
    assert driver.status("runs") == "COMPLETED"


def test_the_job_names_the_failure_that_came_first():
    driver = Driver(a_job(on_failure="continue", a="", b=""))
    driver.start()
    driver.fail("b", message="first")
    driver.fail("a", message="second")
    assert driver.error["kind"] == "node_failed"
    assert driver.error["node"] == "b"
    assert driver.error["message"] == "node b failed: first"


def test_the_job_names_the_exception_whose_message_is_only_a_key():
    driver = Driver(a_job(a=""))
    driver.start()
    error = {"kind": "error", "type": "KeyError", "message": "'k'"}
    driver.apply(TaskFailed("a", driver.job.nodes["a"].attempt, error, permanent=True))
    assert driver.error["message"] == "node a failed: KeyError: 'k'"


def test_an_allowed_failure_satisfies_what_follows_and_does_not_fail_the_job():
    driver = Driver(a_job(a=task(allow_failure=True), b="a"))
    driver.start()
    driver.fail("a")
    driver.succeed("b")
    assert driver.status("a") == "FAILED"
    assert driver.job.status == "COMPLETED"


def test_nothing_is_added_to_an_ending_job():
    driver = a_busy_job()
    driver.fail("a")
    assert isinstance(driver.apply(nodes_added(a_spec("new", "")))[0], Ignore)


# ── Cancel ──


def test_a_cancel_cancels_what_has_not_started_and_stops_what_runs():
    driver = a_busy_job()
    driver.cancel()
    assert driver.statuses() == {
        "a": "DISPATCHED",
        "b": "CANCELLED",
        "runs": "DISPATCHED",
        "later": "CANCELLED",
        "child": "RUNNING",
        "pause": "CANCELLED",
        "ask": "CANCELLED",
    }
    assert [result.node for result in driver.decisions if isinstance(result, Stop)] == ["a", "runs", "child"]


def test_a_job_is_cancelled_when_the_last_attempt_is_over_even_if_all_that_ran_completed():
    driver = Driver(a_job(a=""))
    driver.start()
    driver.cancel()
    assert driver.job.status == "RUNNING"
    driver.succeed("a")
    assert driver.status("a") == "COMPLETED"
    assert driver.job.status == "CANCELLED"


def test_a_job_that_never_started_is_cancelled_at_once():
    driver = Driver(a_job(a=""))
    assert driver.cancel()[-1] == FinishJob(JobStatus.CANCELLED)
    assert isinstance(driver.start()[0], Ignore)


def test_a_cancel_of_an_ending_job_stops_what_was_allowed_to_finish():
    driver = a_busy_job()
    driver.fail("a")
    assert [result.node for result in driver.cancel() if isinstance(result, Stop)] == ["runs", "child"]


def test_a_second_cancel_changes_nothing():
    driver = a_busy_job()
    driver.cancel()
    assert isinstance(driver.cancel()[0], Ignore)


# ── Deadline ──


def test_a_deadline_ends_the_job_like_cancel_running():
    driver = a_busy_job("continue", deadline_seconds=60.0)
    assert driver.decisions[0] == WaitUntil(None, 60.0)
    driver.fire_timer()
    assert driver.status("pause") == "SKIPPED job_failed"
    driver.lose("runs")
    driver.lose("a")
    driver.finish_child_job("child", "CANCELLED")
    assert driver.status("runs") == "CANCELLED"
    assert (driver.job.status, driver.error["kind"]) == ("FAILED", "deadline")


def test_a_deadline_that_fires_early_changes_nothing():
    driver = Driver(a_job(deadline_seconds=60.0, a=""))
    driver.start()
    driver.now = 59.0
    assert isinstance(driver.apply(TimerFired())[0], Ignore)


# ── The result ──


def test_the_result_is_the_output_of_the_one_sink():
    driver = Driver(a_job(a="", b="a"))
    driver.start()
    driver.succeed("a", output=1)
    driver.succeed("b", output=2)
    assert driver.result == 2


def test_the_result_of_several_sinks_is_by_name_without_those_that_were_skipped():
    driver = Driver(a_job(a=task(allow_failure=True), b="", c=""))
    driver.start()
    driver.fail("a")
    driver.succeed("b", output=2)
    driver.succeed("c", output=3)
    assert driver.result == {"b": 2, "c": 3}


def test_outputs_are_worked_out_when_all_is_over():
    driver = Driver(a_job(outputs={"n": "{{ nodes.a.output.n }}"}, a=""))
    driver.start()
    driver.succeed("a", output={"n": 5})
    assert driver.result == {"n": 5}


def test_outputs_without_a_value_fail_the_job():
    driver = Driver(a_job(outputs="{{ nodes.a.output.n }}", a=""))
    driver.start()
    driver.succeed("a", output={})
    assert (driver.job.status, driver.error["kind"]) == ("FAILED", "expression")


def test_a_result_that_cannot_be_loaded_yet_is_not_awaited():
    """It was neither answered nor ignored; and before the start it was a crash."""
    driver = Driver(a_job(a=""))
    assert isinstance(driver.apply(ResolutionFailed(None, "outputs", "gone"))[0], Ignore)
    driver.start()
    assert isinstance(driver.apply(ResolutionFailed(None, "outputs", "gone"))[0], Ignore)


def test_a_job_that_is_over_ignores_what_comes_late():
    driver = Driver(a_job(a=""))
    driver.start()
    driver.succeed("a")
    assert isinstance(driver.succeed("a")[0], Ignore)
    assert isinstance(driver.cancel()[0], Ignore)


# ── Needs ──


def test_a_fan_in_after_an_any_of_folds_what_it_asked_for():
    """It looked for the outputs of all nodes that were completed by then, and fell over one that was not loaded."""
    driver = Driver(a_job(a="", b="", f=fan_in(any_of("a", "b"))))
    driver.start()
    need = driver.step(a_success("a"), output={"n": 1})[1]
    assert isinstance(need, Need)
    answer = driver.answer(need)
    driver.step(a_success("b"), output={"n": 2})
    driver.step(answer)
    assert driver.outputs["f"] == {"results": [{"n": 1}], "count": 1}


def test_after_a_reload_the_needs_that_nobody_answered_are_asked_for_again():
    driver = Driver(a_job(a="", f=fan_out("{{ nodes.a.output }}", after="a")))
    driver.start()
    asked = driver.step(a_success("a"), output=[1])[1:]
    assert pending_needs(driver.rebuild()) == asked


def a_success(node_id: str):
    from dagmaster.engine.events import TaskSucceeded

    return TaskSucceeded(node_id, 1)
