"""Thousands of schedules, each with its own faults. A seed that violates an invariant replays the same schedule."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from dagmaster.simulation.case import Case
from dagmaster.simulation.world import calm, simulate
from tests.simulation.cases import CHAIN, FAN_OUT, POISON, added_again, commanded, graph, restarted
from tests.simulation.planted_bugs import PLANTED
from tests.simulation.schedules import broken_in, play

if TYPE_CHECKING:
    from dagmaster.simulation.world import Outcome

SCHEDULES: Final = 5_000
BATCH: Final = 100
MAX_SCHEDULES: Final = 1_000
"""A planted bug must be found within this many schedules."""


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_no_invariant_is_violated_with_any_faults(first: int) -> None:
    assert broken_in(range(first, first + BATCH)) is None


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    stores = PLANTED[bug]()
    assert any(play(seed, stores).violation for seed in range(MAX_SCHEDULES)), bug


@pytest.mark.parametrize("seed", range(40))
def test_only_the_node_that_kills_its_workers_fails(seed: int) -> None:
    # The calm: no other process crashes, so that every lost attempt is the doing of `bad`.
    case = Case(graphs=[graph(POISON), graph(FAN_OUT), graph(CHAIN)], poison=["bad"], failing=0.0)
    outcome = calm(seed, case)
    assert outcome.violation is None
    assert {key: nodes for key, nodes in outcome.ends.items() if not _are_successful(nodes)}.keys() == {
        "job-0"
    }
    assert [reason.error["kind"] for reason in outcome.reasons.values()] == ["lost"]
    assert any("is killed by its task" in what for _, _, what in outcome.trace)


@pytest.mark.parametrize("first", range(9_000, 9_040, 20))
def test_services_that_drain_during_faults_lose_nothing_and_claim_nothing(first: int) -> None:
    case = Case(graphs=[graph(FAN_OUT), graph(CHAIN)], drains=True)
    outcomes = [simulate(seed, case) for seed in range(first, first + 20)]
    assert [(outcome.seed, outcome.violation) for outcome in outcomes if outcome.violation] == []
    assert any(_drained_jobs_claimed_by_others(outcome) for outcome in outcomes)


def _drained_jobs_claimed_by_others(outcome: Outcome) -> list[str]:
    """Return the orchestrators that claimed what another one released. None stopped: it was because of a drain."""
    assert not any(text == "is asked to stop" for _, _, text in outcome.trace)
    claims = [report.event for report in outcome.story if report.event.data.get("after") == "released"]
    return [event.by for event in claims if event.by != f"orchestrator {event.data['before']}"]


def _are_successful(nodes: dict[str, Any]) -> bool:
    return all(status in ("COMPLETED", "SKIPPED") for status, _ in nodes.values())


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(43, id="a resume that arrives while its job finishes is not left behind"),
        pytest.param(
            1_765, id="a task of an attempt after the one that completed in the same turn is stopped"
        ),
    ],
)
def test_a_resume_right_after_a_cancel(seed: int) -> None:
    # A change of timing changes the schedules of all seeds: break what these guard (`PollSchedule.on_finish`, `to_commit`)
    # and look for others.
    assert simulate(seed, restarted()).violation is None


def test_nodes_that_are_added_while_a_job_is_cancelled_run_after_a_resume() -> None:
    assert simulate(14_685, commanded(14_685)).violation is None


def test_a_node_that_adds_others_can_be_run_again() -> None:
    added = 0
    for seed in range(60):
        outcome = simulate(seed, added_again())
        assert outcome.violation is None, f"seed {seed}"
        added = max(added, sum(report.event.type == "NodesAdded" for report in outcome.story))
    assert added > 1, "of one job"


def test_results_that_were_read_before_a_crash_of_the_database_and_are_lost_with_it_do_not_count() -> None:
    # Without `Network._is_still_connected` it never ends.
    assert play(20_581).violation is None


def test_a_seed_yields_the_same_schedule_every_time() -> None:
    seeds = range(7_000, 7_011)
    first = [play(seed).trace for seed in seeds]
    assert all(len(trace) > 10 for trace in first)
    for _ in range(2):
        assert [play(seed).trace for seed in seeds] == first


def test_a_seed_yields_the_same_schedule_in_every_process() -> None:
    """The order of sets, which differs between processes, does not matter."""
    command = [sys.executable, "-m", "tests.simulation.schedules", *map(str, range(7_100, 7_112))]
    outputs = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert len(outputs[0]) > 10_000
    assert len(set(outputs)) == 1


def test_a_planted_bug_is_found_by_the_same_seed_every_time() -> None:
    stores = PLANTED["report without deleting"]()
    violations = [play(0, stores).violation for _ in range(10)]
    assert violations[0] is not None
    assert len(set(violations)) == 1


def test_faults_of_every_kind_happen() -> None:
    faults = (
        "refused",
        "crashes",
        "paused",
        "timed out, and executed later",
        "response is lost",
        "notification",
    )
    missing = {*faults, "is down", "loses data", "asked to stop"}
    for seed in range(200):
        trace = "\n".join(what for _, _, what in play(seed).trace)
        missing = {word for word in missing if word not in trace}
        if not missing:
            break
    assert missing == set()
