"""Faults of a fleet of real processes change only how long jobs take. `make soak` runs more of them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tests.acceptance.chaos import scenarios

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.acceptance.chaos.scenarios import Done


def play(scenario: Coroutine[None, None, Done]) -> dict[str, int]:
    """Run a scenario, which checks the invariants; return the counts of its faults."""
    return dict(asyncio.run(scenario).counts)


def test_owners_and_workers_are_killed_and_nothing_is_lost_or_done_twice():
    done = play(scenarios.kill_services(5, nodes=10_000, chance=random.Random(1)))
    assert done == {"kill orchestrator": 5, "kill worker": 5}


def test_tasks_that_a_killed_task_added_run_once():
    done = play(scenarios.kill_growing_jobs(2, tasks=20, chance=random.Random(2)))
    assert done == {"kill orchestrator": 2, "kill worker": 2}


def test_a_task_that_kills_its_worker_fails_and_its_neighbours_complete():
    # It dies once next to the others; then its child process dies alone.
    assert play(scenarios.poison_workers(kills_worker=False)) == {"poison": 1}


def test_a_task_that_kills_its_worker_even_from_a_child_process_is_run_alone_until_it_fails():
    # Up to three times next to others; then alone: max_lost is 1.
    deaths = play(scenarios.poison_workers(kills_worker=True))["poison"]
    assert 2 <= deaths <= 5


def test_postgresql_is_killed_and_nothing_accepted_or_seen_is_lost():
    assert play(scenarios.kill_server(2, nodes=3_000, chance=random.Random(1))) == {"kill PostgreSQL": 2}


def test_an_owner_that_was_paused_past_its_lease_changes_nothing():
    assert play(scenarios.stop_owner(3, chance=random.Random(1))) == {"stop owner": 3}


def test_a_worker_that_was_paused_past_its_lease_reports_nothing():
    done = asyncio.run(scenarios.stop_worker(2, chance=random.Random(1)))
    assert done.counts == {"stop worker": 2}
    # What it held was executed again, under another attempt number.
    assert done.work["repeated"] > 0
    assert done.work["repeated_in_one_attempt"] == 0


def test_without_faults_every_handler_is_executed_once():
    done = asyncio.run(scenarios.no_fault(2, nodes=2_000))
    assert (done.work["executions"], done.work["repeated"]) == (2 * 2_002, 0)


def test_cut_connections_and_lost_commit_responses_do_no_harm():
    assert play(scenarios.lose_answers(10, chance=random.Random(1))) == {"cut connection": 10}


def test_one_key_from_many_clients_makes_one_job():
    assert play(scenarios.share_keys(20, clients=64)) == {"same key": 20}


def test_all_jobs_of_a_dead_owner_are_reclaimed():
    assert play(scenarios.kill_owner_of_many(200)) == {"owner of many jobs": 200}


def test_a_graceful_shutdown_releases_work_and_uses_up_no_retry():
    done = play(scenarios.terminate_services(3, nodes=3_000, chance=random.Random(1)))
    assert done == {"release": 3, "SIGTERM": 6}
