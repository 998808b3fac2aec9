"""Schedules by their numbers. `python -m tests.simulation.schedules 1234` tells all that happens in one."""

# ruff: noqa: T201 - to print is what it is for

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dagmaster.testing.simulation import simulate
from tests.simulation.cases import cases

if TYPE_CHECKING:
    from dagmaster.testing.simulation import Doors, Outcome


def play(seed: int, doors: Doors | None = None) -> Outcome:
    """Play one schedule: its number says which case it storms, and how."""
    return simulate(seed, cases()[seed % len(cases())], doors=doors)


def broken_in(seeds: range) -> tuple[int, str] | None:
    """The first schedule that breaks a promise, and which."""
    for seed in seeds:
        violation = play(seed).violation
        if violation is not None:
            return seed, violation
    return None


if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        outcome = play(number)
        for at, who, what in outcome.trace:
            print(f"{at:10.4f}  {who:<16}  {what}")
        print(number, outcome.violation or "no promise was broken")
