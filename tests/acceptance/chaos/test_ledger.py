"""The ledger finds repeated work: the chaos tests can fail."""

from __future__ import annotations

import pytest

from tests.acceptance.chaos.ledger import Ledger

COMPLETED = [(7, "a", 2, '{"mark": "m2"}')]
LINES = ["begin 7 a 1 100", "begin 7 a 2 200", "end 7 a 2 m2"]


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def violations(ledger: Ledger, *more: str, may_repeat: bool = False) -> list[str]:
    ledger.path.write_text("".join(f"{line}\n" for line in [*LINES, *more]))
    return ledger.violations(COMPLETED, may_repeat=may_repeat)


def test_an_attempt_that_was_lost_and_one_that_completed_are_valid(ledger):
    assert violations(ledger) == []


def test_a_completed_node_that_was_started_again_is_found(ledger):
    assert violations(ledger, "begin 7 a 3 300") == ["a completed in attempt 2, and attempt 3 was started"]


def test_an_output_of_no_attempt_is_found(ledger):
    ledger.path.write_text("begin 7 a 2 200\nend 7 a 2 other\n")
    (violation,) = ledger.violations(COMPLETED, may_repeat=False)
    assert "attempt 2 wrote ['other']" in violation


def test_an_attempt_that_was_started_twice_is_found_unless_a_server_forgot_its_claim(ledger):
    assert violations(ledger, "begin 7 a 2 201") == ["attempt 2 of a was started 2 times"]
    assert violations(ledger, "begin 7 a 2 201", may_repeat=True) == []


@pytest.mark.parametrize("token", [99, 100, 200, 300])
def test_an_execution_whose_fencing_token_does_not_grow_with_its_attempt_is_found(ledger, token):
    again = f"begin 7 a 1 {token}"
    assert ("fencing tokens" in str(violations(ledger, again, may_repeat=True))) is (token != 99)


def test_executions_are_counted_with_those_that_are_repeated(ledger):
    violations(ledger, "begin 7 a 2 201", "begin 7 b 1 50")
    assert ledger.executions() == {"nodes": 2, "executions": 4, "repeated": 2, "repeated_in_one_attempt": 1}
