"""Schedules by seed. `python -m tests.simulation.schedules 1234` prints the trace of one."""

# ruff: noqa: T201 - to print is what it is for

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from dagmaster.authoring.compiler import compile as compiler
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.engine import backlog
from dagmaster.simulation.world import simulate
from tests.simulation.cases import cases, commanded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.simulation.case import Case
    from dagmaster.simulation.world import Outcome, StoreFactories


def play(seed: int, stores: StoreFactories | None = None) -> Outcome:
    """Run one schedule; its seed selects the case and the faults."""
    # Every orchestrator of every schedule compiles its graphs, which are few: a tenth of all time went into that.
    with (
        mock.patch.object(compiler, "compile_definition", _compiled),
        # In every second schedule of a case, a step starts one of several tasks that are ready.
        mock.patch.object(backlog, "START_BATCH", 1 if _round_of(seed) % 2 else backlog.START_BATCH),
    ):
        return simulate(seed, _case(seed), stores=stores)


def _case(seed: int) -> Case:
    """Return one of the cases, or once in a round one of its own."""
    number = seed % (len(cases()) + 1)
    return cases()[number] if number < len(cases()) else commanded(seed)


def _round_of(seed: int) -> int:
    return seed // (len(cases()) + 1)


def _compiled(definition: Mapping[str, Any], _limits: object = None) -> Graph:
    return _compiled_text(json.dumps(definition))


@cache
def _compiled_text(text: str) -> Graph:
    return compile_definition(json.loads(text))


def broken_in(seeds: range) -> tuple[int, str] | None:
    """Return the first schedule with a violation, and that violation."""
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
        print(number, outcome.violation or "no violation")
