"""A worker holds no more than it can run: plain functions have as much room as there are processes for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dagmaster.host.clocks import loop_time
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.runtime.runtime_world import World

A_YEAR = 365 * 24 * 3600.0


def waiting(count: int, file: Path) -> str:
    """So many plain functions that wait for a file."""
    return f"{{name: n, nodes: {{f: {{type: fan_out, source: {list(range(count))}, task: {{handler: until_there, params: {{path: {file}}}}}}}}}}}"


async def test_what_waits_for_a_process_is_left_to_another_worker(world: World, place: Path):
    await world.orchestrator()
    file = place / "go"
    one = await world.worker(processes=2)
    job = await world.submit(waiting(4, file))
    await world.until_claimed(2)
    two = await world.worker(processes=2)
    await world.until("SELECT count(*) = 4 AND count(DISTINCT worker_id) = 2 FROM dag_task_queue")
    assert (len(one.held), len(two.held)) == (2, 2)
    file.touch()
    assert (await world.finished(job)).status == "COMPLETED"


async def test_tasks_behind_plain_functions_that_wait_are_not_kept_waiting(world: World, place: Path):
    await world.orchestrator()
    file = place / "go"
    await world.worker(concurrency=2, processes=1)
    job = await world.submit(waiting(5, file))
    await world.until_claimed()
    assert (await world.run("{name: m, nodes: {a: {handler: echo, queue: q}}}")).status == "COMPLETED"
    assert await world.value("SELECT count(*) FROM dag_task_queue WHERE worker_id IS NOT NULL") == 1
    file.touch()
    assert (await world.finished(job)).status == "COMPLETED"


async def test_prefetched_tasks_behind_long_ones_are_released_to_another_worker(world: World, place: Path):
    await world.orchestrator()
    file = place / "go"
    one = await world.worker(processes=1, stall_seconds=0.1)
    # It believes that its tasks are quick.
    for budget in (one.held._budget, one.held._process_budget):
        budget.rate, budget._since = 20.0, loop_time() + 3600
    job = await world.submit(waiting(2, file))
    await world.until_claimed(2)
    # From then on it knows better.
    await world.until("SELECT count(*) = 1 FROM dag_task_queue WHERE worker_id IS NOT NULL")
    await world.worker(processes=1)
    await world.until("SELECT count(*) = 2 AND count(DISTINCT worker_id) = 2 FROM dag_task_queue")
    file.touch()
    assert (await world.finished(job)).status == "COMPLETED"
    # A task that never started has no events.
    assert await world.types(job, "AttemptFailed", "AttemptLost", "AttemptReleased") == []


async def test_a_task_that_is_claimed_again_while_its_release_is_in_flight_runs_under_the_new_claim(
    world: World, place: Path
):
    await world.orchestrator()
    file = place / "go"
    one = await world.worker(processes=1, stall_seconds=0.1)
    for budget in (one.held._budget, one.held._process_budget):
        budget.rate, budget._since = 40.0, loop_time() + 3600
    release, again = one.ledger.release, asyncio.Event()

    async def slowly(reports: Any) -> set[str]:
        """Let it go, and answer when it is held once more."""
        tokens = {report.task_id: report.token for report in reports}
        free = await release(reports)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(one.held[task_id].token == tokens[task_id] for task_id in free):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
        again.set()
        return free

    one.ledger.release = slowly  # type: ignore[method-assign]
    job = await world.submit(waiting(2, file))
    await again.wait()
    file.touch()
    assert (await world.finished(job)).status == "COMPLETED"
    assert await world.types(job, "AttemptReleased", "AttemptLost") == []


async def test_a_process_that_is_free_is_given_what_waited_in_the_queue_and_no_poll_is_waited_for(
    world: World, place: Path
):
    await world.orchestrator()
    await world.worker(processes=1, poll_seconds=A_YEAR)
    file = place / "go"
    job = await world.submit(waiting(5, file))
    await world.until_claimed()
    file.touch()
    assert (await world.finished(job)).status == "COMPLETED"
