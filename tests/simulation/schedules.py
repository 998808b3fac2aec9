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
from dagmaster.simulation.world import simulate
from tests.simulation.cases import cases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.simulation.world import Outcome, StoreFactories


def play(seed: int, stores: StoreFactories | None = None) -> Outcome:
    """Run one schedule; its seed selects the case and the faults."""
    # Every orchestrator of every schedule compiles its graphs, which are few: a tenth of all time went into that.
    with mock.patch.object(compiler, "compile_definition", _compiled):
        return simulate(seed, cases()[seed % len(cases())], stores=stores)


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
