"""Thousands of schedules, each with its own faults. A seed that breaks a promise gives the same schedule every time.

`python -m tests.simulation.test_schedules 1234` prints what happened in one.
"""

from __future__ import annotations

import sys
from typing import Final

import pytest

from dagmaster.testing.simulation import simulate
from tests.simulation.cases import cases
from tests.simulation.mutants import MUTANTS

SCHEDULES: Final = 5_500
AT_ONCE: Final = 100
MOST_SCHEDULES: Final = 1_000
"""Within so many a planted bug is to be found."""


@pytest.mark.parametrize("first", range(0, SCHEDULES, AT_ONCE))
def test_no_promise_is_broken_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        assert simulate(seed, case_of(seed)).violation is None, f"seed {seed}"


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_planted_bug_is_found(bug: str) -> None:
    doors = MUTANTS[bug]()
    assert any(simulate(seed, case_of(seed), doors=doors).violation for seed in range(MOST_SCHEDULES)), bug


def test_a_seed_gives_the_same_schedule_every_time() -> None:
    seeds = range(7_000, 7_011)
    first = [simulate(seed, case_of(seed)).trace for seed in seeds]
    assert all(len(trace) > 10 for trace in first)
    for _ in range(2):
        assert [simulate(seed, case_of(seed)).trace for seed in seeds] == first


def test_a_planted_bug_is_found_by_the_same_seed_every_time() -> None:
    doors = MUTANTS["report without deleting"]
    found = [simulate(0, case_of(0), doors=doors()).violation for _ in range(10)]
    assert found[0] is not None
    assert len(set(found)) == 1


def test_faults_of_every_kind_happen() -> None:
    faults = ("refused", "crashes", "paused", "given up, and carried out later", "answer is lost", "notification")
    words = (*faults, "is away", "forgets", "asked to stop")
    told = "\n".join(what for seed in range(200) for _, _, what in simulate(seed, case_of(seed)).trace)
    assert [word for word in words if word not in told] == []


def case_of(seed: int):
    return cases()[seed % len(cases())]


if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        outcome = simulate(number, case_of(number))
        for at, who, what in outcome.trace:
            print(f"{at:10.4f}  {who:<16}  {what}")  # noqa: T201
        print(number, outcome.violation or "no promise was broken")  # noqa: T201
