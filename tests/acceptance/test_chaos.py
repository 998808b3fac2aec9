"""What happens to a fleet of real processes changes only how long it takes. `make soak` does more of it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tests.acceptance.chaos import scenarios

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.acceptance.chaos.scenarios import Done


def lived(scenario: Coroutine[None, None, Done]) -> dict[str, int]:
    """Play a scenario, and give what was done in it. What is promised is checked there, after each."""
    return dict(asyncio.run(scenario).counts)


def test_owners_and_workers_are_killed_and_nothing_is_lost_or_done_twice():
    done = lived(scenarios.kill_services(5, nodes=10_000, chance=random.Random(1)))
    assert done == {"kill orchestrator": 5, "kill worker": 5}


def test_postgresql_is_killed_and_what_was_accepted_or_seen_is_there():
    assert lived(scenarios.kill_server(2, nodes=3_000, chance=random.Random(1))) == {"kill PostgreSQL": 2}


def test_an_owner_that_slept_past_its_lease_changes_nothing():
    assert lived(scenarios.stop_owner(3, chance=random.Random(1))) == {"stop owner": 3}


def test_connections_are_cut_and_answers_of_commits_are_lost_without_harm():
    assert lived(scenarios.lose_answers(10, chance=random.Random(1))) == {"cut connection": 10}


def test_one_key_from_many_clients_makes_one_job():
    assert lived(scenarios.share_keys(20, clients=64)) == {"same key": 20}


def test_the_jobs_of_a_dead_owner_are_all_owned_again():
    assert lived(scenarios.kill_owner_of_many(200)) == {"owner of many jobs": 200}


def test_services_that_are_told_to_stop_hand_over_and_use_up_no_retry():
    done = lived(scenarios.terminate_services(3, nodes=3_000, chance=random.Random(1)))
    assert done == {"hand over": 3, "SIGTERM": 6}
