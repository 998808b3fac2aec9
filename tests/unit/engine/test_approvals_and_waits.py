"""Approvals, waits and signals: nodes that an outsider or the clock moves on."""

from __future__ import annotations

import pytest

from dagmaster.engine.decisions import Complete, Ignore, RequestApproval, WaitUntil
from dagmaster.engine.events import TimerFired
from dagmaster.testing import Driver, a_job, approval, end, wait


def a_pause(pause, **nodes) -> Driver:
    driver = Driver(a_job(p=pause, **nodes), now=1000.0)
    driver.start()
    return driver


def error_of(driver: Driver) -> str:
    return str((driver.job.nodes["p"].error or {})["kind"])


# ── Approvals ──


def test_an_approval_asks_and_waits():
    driver = a_pause(approval())
    assert [type(result) for result in driver.decisions] == [RequestApproval]
    assert driver.status("p") == "WAITING"


def test_a_person_lets_it_through():
    driver = a_pause(approval())
    driver.approve("p", by="ada")
    assert driver.result == {"approved_by": "ada", "at": "2026-01-01T00:00:00Z", "comment": ""}


def test_a_rejection_is_a_failure_with_that_reason():
    driver = a_pause(approval())
    driver.reject("p", by="ada", comment="not today")
    assert (driver.job.nodes["p"].error or {})["message"] == "rejected by ada: not today"
    assert driver.job.status == "FAILED"


def test_only_an_approver_may_answer():
    driver = a_pause(approval(approvers="ada bob"))
    assert isinstance(driver.approve("p", by="eve")[0], Ignore)
    assert isinstance(driver.reject("p", by="eve")[0], Ignore)
    driver.approve("p", by="bob")
    assert driver.status("p") == "COMPLETED"


def test_the_second_answer_changes_nothing():
    driver = a_pause(approval(), keep=wait(signal="go"))
    driver.approve("p")
    assert isinstance(driver.reject("p")[0], Ignore)
    assert driver.status("p") == "COMPLETED"


def test_nobody_can_approve_what_does_not_wait():
    driver = a_pause("", q=approval("p"))
    assert isinstance(driver.approve("q")[0], Ignore)
    assert isinstance(driver.approve("p")[0], Ignore)


@pytest.mark.parametrize(("on_timeout", "status"), [("approve", "COMPLETED"), ("reject", "FAILED")])
def test_an_approval_that_nobody_answers_does_what_it_says(on_timeout, status):
    driver = a_pause(approval(timeout_seconds=60.0, on_timeout=on_timeout))
    assert driver.job.nodes["p"].wake_at == 1060.0
    driver.fire_timer("p")
    assert driver.status("p") == status


def test_an_approval_by_the_clock_names_nobody():
    driver = a_pause(approval(timeout_seconds=60.0, on_timeout="approve"))
    assert driver.fire_timer("p")[0] == Complete(
        "p", {"approved_by": None, "at": "1970-01-01T00:17:40Z", "comment": "approved by timeout"}
    )


# ── Times ──


def test_a_wait_goes_on_after_its_seconds():
    driver = a_pause(wait(seconds=5))
    assert driver.decisions == [WaitUntil("p", 1005.0)]
    driver.now = 1004.9
    assert isinstance(driver.apply(TimerFired("p"))[0], Ignore)
    driver.fire_timer("p")
    assert driver.result == {"waited_until": "1970-01-01T00:16:45Z"}


def test_the_seconds_may_come_from_another_node():
    driver = Driver(a_job(a="", p=wait("a", seconds="{{ nodes.a.output.n }}")))
    driver.start()
    driver.succeed("a", output={"n": 7})
    assert driver.job.nodes["p"].wake_at == 7.0


@pytest.mark.parametrize("seconds", [-1, True, "5", None, 1e300])
def test_seconds_that_are_no_sensible_number_fail_the_node(seconds):
    driver = Driver(a_job(a="", p=wait("a", seconds="{{ nodes.a.output.n }}")))
    driver.start()
    driver.succeed("a", output={"n": seconds})
    assert error_of(driver) == "expression"


def test_a_wait_until_a_moment_that_has_passed_is_due_at_once():
    driver = a_pause(wait(until="1970-01-01T00:00:30Z"))
    assert driver.job.nodes["p"].wake_at == 30.0
    driver.fire_timer("p")
    assert driver.now == 1000.0
    assert driver.status("p") == "COMPLETED"


@pytest.mark.parametrize("until", ["2026-01-01T00:00:00", "tomorrow", ""])
def test_a_moment_without_its_zone_fails_the_node(until):
    assert error_of(a_pause(wait(until=until))) == "expression"


# ── Signals ──


def test_the_payload_of_a_signal_is_the_output():
    driver = a_pause(wait(signal="go"))
    driver.signal("go", {"n": 1})
    assert driver.result == {"n": 1}


def test_a_signal_goes_to_every_node_that_waits_for_it():
    driver = a_pause(wait(signal="go"), q=wait(signal="go"), other=wait(signal="stop"))
    driver.signal("go", 1)
    assert driver.statuses() == {"p": "COMPLETED", "q": "COMPLETED", "other": "WAITING"}


def test_a_signal_that_comes_early_is_kept_for_the_next_node_that_wants_it():
    driver = a_pause("", q=wait("p", signal="go"), r=wait("q", signal="go"))
    driver.signal("go", 1)
    driver.signal("go", 2)
    driver.job = driver.rebuild()
    driver.succeed("p")
    assert driver.outputs["q"] == 2
    assert driver.status("r") == "WAITING"


def test_a_signal_that_nobody_can_want_any_more_is_ignored():
    driver = a_pause(wait(signal="go"), keep=approval())
    driver.signal("go")
    assert isinstance(driver.signal("go")[0], Ignore)
    assert isinstance(driver.signal("other")[0], Ignore)
    assert driver.job.signals == {}


@pytest.mark.parametrize(("on_timeout", "status"), [("go_on", "COMPLETED"), ("fail", "FAILED")])
def test_a_signal_that_does_not_come_in_time(on_timeout, status):
    driver = a_pause(wait(signal="go", timeout_seconds=9.0, on_timeout=on_timeout), end=end("p"))
    driver.fire_timer("p")
    assert driver.status("p") == status
