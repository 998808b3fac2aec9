"""New runs of the same job: resume, retry of one node, items put back."""

from __future__ import annotations

from dagmaster.engine.advance import advance, pending_needs
from dagmaster.engine.decisions import Dispatch, Expand, Ignore, Need, Reopen, WaitUntil
from dagmaster.engine.events import RetryRequested, TaskSucceeded, ValuesLoaded
from dagmaster.engine.invariants import violations
from dagmaster.engine.model import FanOut
from dagmaster.engine.retry import RetryPolicy
from dagmaster.testing import (
    Driver,
    a_job,
    any_of,
    branch_of,
    conditional,
    fan_in,
    fan_out,
    join,
    task,
    wait,
)
from tests.unit.engine.engine_proof import batches_of


def reopened(driver: Driver) -> set[str]:
    """Return the nodes that the newest run opened."""
    return set(next(result.nodes for result in reversed(driver.decisions) if isinstance(result, Reopen)))


def attempts(driver: Driver) -> dict[str, int]:
    return {node_id: node.attempt for node_id, node in driver.job.nodes.items()}


# ── Resume ──


def test_resume_runs_what_failed_and_what_was_skipped_because_of_it():
    driver = Driver(a_job(a="", b="a", c="b", d="a"))
    driver.start()
    driver.succeed("a")
    driver.succeed("d")
    driver.fail("b")
    driver.resume()
    assert reopened(driver) == {"b", "c"}
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"
    assert driver.job.run == 2
    assert attempts(driver) == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_resume_of_a_cancelled_job_goes_on_where_it_was():
    driver = Driver(a_job(a="", b="a", c="b"))
    driver.start()
    driver.succeed("a")
    driver.cancel()
    driver.lose("b")
    driver.resume()
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"
    assert attempts(driver) == {"a": 1, "b": 2, "c": 1}


def test_attempts_go_on_counting_and_budgets_start_again():
    driver = Driver(a_job(a=task(retry=RetryPolicy(max_attempts=2, max_lost=0, jitter=False))))
    driver.start()
    driver.fail("a")
    driver.fire_timer("a")
    driver.fail("a")
    driver.resume()
    node = driver.job.nodes["a"]
    assert (node.attempt, node.failed_attempts, node.lost_attempts, node.error) == (3, 0, 0, None)
    driver.fail("a")
    assert driver.status("a") == "READY"


def test_a_report_from_an_earlier_run_changes_nothing():
    driver = Driver(a_job(a=""))
    driver.start()
    driver.fail("a")
    driver.resume()
    assert isinstance(driver.apply(TaskSucceeded("a", 1))[0], Ignore)
    assert driver.status("a") == "DISPATCHED"


def test_what_was_not_taken_and_what_was_allowed_to_fail_stays():
    route = conditional(branches={"left": None, "right": None})
    driver = Driver(a_job(route=route, r=branch_of("route", "right"), ok=task(allow_failure=True), bad="ok"))
    driver.start()
    driver.fail("ok")
    driver.fail("bad")
    driver.resume()
    assert reopened(driver) == {"bad"}


def test_a_completed_job_has_nothing_to_resume():
    driver = Driver(a_job(a=""))
    driver.start()
    driver.succeed("a")
    assert isinstance(driver.resume()[0], Ignore)
    assert driver.job.status == "COMPLETED"


def test_a_running_job_cannot_be_resumed():
    driver = Driver(a_job(a=""))
    driver.start()
    assert isinstance(driver.resume()[0], Ignore)


def test_resume_from_a_named_node_runs_it_and_all_that_follows_whatever_their_state():
    driver = Driver(a_job(a="", b="a", c="b", other="a"))
    driver.start()
    driver.succeed_all()
    driver.resume("b")
    assert reopened(driver) == {"b", "c"}
    driver.succeed_all()
    assert attempts(driver) == {"a": 1, "b": 2, "c": 2, "other": 1}
    assert driver.job.status == "COMPLETED"


def test_resume_from_a_node_that_is_not_there_changes_nothing():
    driver = Driver(a_job(a=""))
    driver.start()
    driver.succeed("a")
    assert isinstance(driver.resume("b")[0], Ignore)


def test_a_named_conditional_may_take_another_branch():
    route = conditional("{{ nodes.a.output.n }}", {"one": "== 1", "two": "== 2"}, after="a")
    driver = Driver(
        a_job(a="", route=route, x=branch_of("route", "one"), y=branch_of("route", "two"), j=join("x", "y"))
    )
    driver.start()
    driver.succeed("a", output={"n": 1})
    driver.succeed_all()
    driver.resume("a")
    driver.succeed("a", output={"n": 2})
    driver.succeed_all()
    assert driver.status("x") == "SKIPPED not_taken"
    assert driver.status("y") == driver.status("j") == "COMPLETED"


def test_a_new_run_has_a_new_deadline_and_says_so():
    """It had one, but no timer was set for it."""
    driver = Driver(a_job(deadline_seconds=60.0, a=""))
    driver.start()
    driver.fail("a")
    driver.now = 500.0
    assert WaitUntil(None, 560.0) in driver.resume()
    driver.fire_timer()
    driver.lose("a")
    assert driver.error["kind"] == "deadline"


# ── Fan-outs in a new run ──


def test_a_resumed_fan_out_keeps_its_source_and_its_completed_children():
    driver = Driver(a_job(f=fan_out([1, 2, 3]), g="f"))
    driver.start()
    driver.succeed("f__0", "f__2")
    driver.fail("f__1")
    decided = driver.resume()
    assert reopened(driver) == {"f", "f__1", "g"}
    assert not any(isinstance(result, Expand | Need) for result in decided)
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"
    assert attempts(driver) == {"f": 0, "g": 1, "f__0": 1, "f__1": 2, "f__2": 1}


def test_a_fan_out_that_follows_a_named_node_resolves_its_source_again():
    driver = Driver(a_job(a="", f=fan_out("{{ nodes.a.output }}", after="a")))
    driver.start()
    driver.succeed("a", output=["x", "y", "z"])
    driver.succeed_all()
    driver.resume("a")
    assert driver.status("f__0") == "SKIPPED superseded"
    driver.succeed("a", output=["v"])
    assert driver.dispatched() == ["f__0"]
    assert driver.job.nodes["f__0"].attempt == 2
    driver.succeed("f__0")
    assert driver.status("f__2") == "SKIPPED superseded"
    assert driver.job.status == "COMPLETED"
    assert violations(driver.job) == []


def test_a_longer_list_wakes_the_children_of_an_earlier_run_first():
    driver = Driver(a_job(a="", f=fan_out("{{ nodes.a.output }}", after="a")))
    driver.start()
    driver.succeed("a", output=["x"])
    driver.succeed_all()
    driver.resume("a")
    driver.succeed("a", output=["x", "y"])
    assert attempts(driver) == {"a": 2, "f": 0, "f__0": 2, "f__1": 1}


# ── Retry of one node ──


def test_retry_of_tile_47_of_100_runs_only_that_and_what_follows():
    tiles = [f"f__{index}" for index in range(100)]
    driver = Driver(a_job(before="", f=fan_out(list(range(100)), after="before"), g="f", beside="before"))
    driver.start()
    driver.succeed("before")
    driver.succeed("beside", *tiles[:47], *tiles[48:])
    driver.fail("f__47")
    assert driver.job.status == "FAILED"
    driver.retry("f__47")
    assert reopened(driver) == {"f", "f__47", "g"}
    assert driver.dispatched() == ["f__47"]
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"
    again = {node_id for node_id, attempt in attempts(driver).items() if attempt > 1}
    assert again == {"f__47"}


def test_retry_leaves_other_failures_alone():
    driver = Driver(a_job(on_failure="continue", a="", b="", c="a", d="b"))
    driver.start()
    driver.fail("a", "b")
    driver.retry("a")
    assert reopened(driver) == {"a", "c"}
    driver.succeed_all()
    assert driver.statuses() == {
        "a": "COMPLETED",
        "b": "FAILED",
        "c": "COMPLETED",
        "d": "SKIPPED upstream_failed",
    }
    assert driver.job.status == "FAILED"


def test_retry_goes_on_although_another_failure_is_left_from_an_earlier_run():
    """The old failure ended the new run before it began: the node stayed PENDING for ever."""
    for on_failure in ("finish_running", "cancel_running"):
        driver = Driver(a_job(on_failure=on_failure, a="", b=task(retry=2), c="a"))
        driver.start()
        driver.fail("b", permanent=True)
        driver.fail("a")
        driver.retry("a")
        driver.job = driver.rebuild()
        assert driver.dispatched() == ["a"]
        driver.succeed("a")
        assert driver.dispatched() == ["c"]
        driver.succeed("c")
        assert driver.job.status == "FAILED"


def test_retry_of_what_ended_the_job_opens_all_that_was_swept_with_it():
    """Only followers were opened: the job was COMPLETED with `later` SKIPPED as job_failed."""
    driver = Driver(a_job(a="", beside="", later="beside", f=fan_out([1, 2], max_parallel=1)))
    driver.start()
    driver.fail("a")
    driver.succeed("beside", "f__0")
    assert driver.statuses()["f"] == "CANCELLED"
    driver.retry("a")
    assert reopened(driver) == {"a", "later", "f", "f__1"}
    driver.succeed_all()
    assert set(driver.statuses().values()) == {"COMPLETED"}


def test_retry_does_not_run_a_failed_follower_again():
    """It had failed by itself, after the other leaf of its any_of."""
    driver = Driver(a_job(on_failure="continue", a="", b="", c=any_of("a", "b")))
    driver.start()
    driver.succeed("b")
    driver.fail("c", "a")
    driver.retry("a")
    assert reopened(driver) == {"a"}


def test_retry_of_a_node_that_is_fine_changes_nothing():
    driver = Driver(a_job(a="", b="a"))
    driver.start()
    driver.succeed("a")
    for node_id in ("a", "b", "nobody"):
        assert isinstance(driver.apply(RetryRequested((node_id,)))[0], Ignore)


def test_a_failed_node_can_be_retried_while_the_rest_goes_on():
    driver = Driver(a_job(on_failure="continue", a="", b="", c="a b"))
    driver.start()
    driver.fail("a")
    driver.retry("a")
    assert driver.statuses() == {"a": "DISPATCHED", "b": "DISPATCHED", "c": "PENDING"}
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"


def test_nothing_is_retried_while_the_job_is_ending():
    driver = Driver(a_job(a="", b=""))
    driver.start()
    driver.fail("a")
    assert isinstance(driver.retry("a")[0], Ignore)


def test_a_node_that_waits_for_its_values_cannot_be_retried():
    driver = Driver(a_job(a="", f=fan_out("{{ nodes.a.output }}", after="a")))
    driver.start()
    driver.step(TaskSucceeded("a", 1), output=[1])
    assert isinstance(driver.retry("f")[0], Ignore)


def test_no_child_is_retried_while_its_fan_out_or_one_around_it_is_being_stopped():
    driver = Driver(
        a_job(f=fan_out([[1, 2], 3], fan_out("{{ item }}", tolerate=1), fail_fast=True, tolerate=0))
    )
    driver.start()
    assert driver.status("f__1") == "FAILED"
    driver.lose("f__0__0")
    assert driver.status("f__0__0") == "CANCELLED"
    assert isinstance(driver.retry("f__0__0")[0], Ignore)
    assert isinstance(driver.retry("f__1")[0], Ignore)


def test_retry_in_a_cancelled_job_opens_the_node_and_what_follows_it():
    driver = Driver(a_job(a="", b="a", beside="", later="beside"))
    driver.start()
    driver.cancel()
    driver.fail("a", "beside")
    driver.retry("a")
    assert reopened(driver) == {"a", "b"}


def test_retry_after_a_cancel_does_not_open_what_the_cancel_ended():
    driver = Driver(a_job(a="", b="a", beside="", later="beside"))
    driver.start()
    driver.fail("a")
    driver.cancel()
    driver.lose("beside")
    driver.retry("a")
    assert reopened(driver) == {"a", "b"}


def test_where_a_failure_ends_nothing_a_retry_opens_only_what_follows():
    driver = Driver(
        a_job(on_failure="continue", a="", b="a", f=fan_out([1, [2]], fan_out("{{ item }}"), fail_fast=True))
    )
    driver.start()
    driver.fail("a")
    assert driver.status("f") == "FAILED"
    driver.retry("a")
    assert reopened(driver) == {"a", "b"}


def test_a_retried_child_is_not_taken_for_one_that_was_asked_to_stop():
    """Failures that were left made the fan-out stopped from its start: the attempt was CANCELLED, not tried again."""
    driver = Driver(a_job(f=fan_out([1, 2, 3], task(retry=2), fail_fast=True, tolerate=1)))
    driver.start()
    driver.fail("f__0", "f__1", "f__2", permanent=True)
    assert driver.statuses() == {"f": "FAILED", "f__0": "FAILED", "f__1": "FAILED", "f__2": "CANCELLED"}
    driver.retry("f__2")
    driver.fail("f__2")
    assert driver.status("f__2") == "READY"
    driver.fire_timer("f__2")
    driver.succeed("f__2")
    assert driver.status("f") == "FAILED"


def test_children_that_were_opened_do_not_outlive_a_fan_out_that_is_halted_before_it_starts_again():
    """Their fan-out was CANCELLED, and they stayed PENDING for ever."""
    driver = Driver(a_job(f=fan_out([[1], [1]], fan_out("{{ item }}"), max_parallel=1, fail_fast=True)))
    driver.start()
    driver.succeed("f__0__0")
    driver.cancel()
    driver.lose("f__1__0")
    driver.resume("f__0")
    assert driver.status("f__1") == driver.status("f__1__0") == "PENDING"
    driver.fail("f__0__0")
    assert driver.status("f__1") == driver.status("f__1__0") == "CANCELLED"
    assert driver.job.status == "FAILED"


def test_children_that_were_opened_do_not_outlive_a_fan_out_whose_gate_broke():
    """Their fan-out was SKIPPED, and they stayed PENDING for ever."""
    driver = Driver(a_job(a=task(allow_failure=True), f=fan_out([1, 2], after="a", on_item_error="tolerate")))
    driver.start()
    driver.fail("a")
    driver.fail("f__0")
    driver.succeed("f__1")
    driver.retry("a")
    driver.cancel()
    driver.lose("a")
    assert driver.status("a") == "CANCELLED"
    driver.retry("f__0")
    assert driver.status("f") == driver.status("f__0") == "SKIPPED upstream_failed"
    assert driver.job.status == "COMPLETED"


def test_a_fan_in_whose_source_is_retried_before_it_has_its_values_goes_on_after_a_reload():
    """`pending_needs` decided it at once, and its dependents were not evaluated."""
    driver = Driver(
        a_job(f=fan_out([1], on_item_error="tolerate"), g=fan_in(join("f")), h="g", keep=wait(signal="go"))
    )
    driver.start()
    driver.step(a_failure("f__0"))
    driver.step(RetryRequested(("f__0",)))
    assert driver.status("g") == "READY"
    job = driver.rebuild()
    assert pending_needs(job) == [Need("g", ())]
    decided = advance(job, ValuesLoaded("g", {}), 0.0)
    assert any(isinstance(result, Dispatch) and result.node == "h" for result in decided)


def test_a_fan_in_whose_fan_out_is_retried_before_it_has_its_values_fails_instead_of_the_shell():
    """It raised a KeyError, again and again."""
    driver = Driver(
        a_job(on_failure="continue", f=fan_out([1], on_item_error="tolerate"), g=fan_in("f", over="f"))
    )
    driver.start()
    need = driver.step(a_failure("f__0"))[-1]
    assert isinstance(need, Need)
    driver.step(RetryRequested(("f__0",)))
    driver.step(driver.answer(need))
    assert (driver.job.nodes["g"].error or {}) == {
        "kind": "expression",
        "message": "`nodes.f.failed` is missing",
        "path": "nodes.f.failed",
    }


def a_failure(node_id: str):
    from dagmaster.engine.events import TaskFailed

    return TaskFailed(node_id, 1, {"kind": "error", "message": "boom"})


# ── Items put back ──


def test_items_put_back_bring_what_follows_up_to_date():
    driver = Driver(a_job(f=fan_out([1, 2, 3], on_item_error="quarantine"), g=fan_in("f", over="f"), h="g"))
    driver.start()
    driver.fail("f__1")
    driver.succeed("f__0", "f__2", output="old")
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"
    driver.reinject("f", 1)
    assert reopened(driver) == {"f", "f__1", "g", "h"}
    driver.succeed("f__1", output="new")
    assert driver.outputs["g"] == {"results": ["old", "new", "old"], "count": 3}
    driver.succeed("h")
    assert attempts(driver) == {"f": 0, "g": 0, "h": 2, "f__0": 1, "f__1": 2, "f__2": 1}
    assert driver.job.status == "COMPLETED"


def test_items_can_only_be_put_back_into_a_fan_out_of_a_job_that_is_over():
    driver = Driver(a_job(f=fan_out([1]), a=""))
    driver.start()
    driver.succeed("f__0")
    assert isinstance(driver.reinject("f", 0)[0], Ignore)
    driver.succeed("a")
    for node_id, index in [("f", 1), ("f", -1), ("a", 0), ("nobody", 0)]:
        assert isinstance(driver.reinject(node_id, index)[0], Ignore)
    assert driver.job.status == "COMPLETED"


def test_a_fan_out_that_was_cut_short_makes_its_other_children_when_it_is_opened():
    with batches_of(2):
        driver = Driver(a_job(f=fan_out([1, 2, 3])))
        driver.start()
        driver.cancel()
        driver.lose("f__0")
        driver.lose("f__1")
        fan = driver.job.nodes["f"]
        assert isinstance(fan, FanOut)
        assert (fan.status, fan.expanded) == ("CANCELLED", 2)
        driver.resume()
        assert driver.dispatched() == ["f__0", "f__1", "f__2"]
