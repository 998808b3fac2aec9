"""Services that an operator drains: what they hold is finished or released, and others go on with the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.runtime.runtime_world import owner_of, read, worker_of
from tests.integration.runtime.test_workers import Held

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

MANY = "{name: n, nodes: {f: {type: fan_out, source: [1, 2, 3, 4, 5], task: {handler: held}}}}"
ONE = "{name: n, nodes: {a: {handler: held, next: b}, b: {handler: echo}}}"


async def until_drained(world: World, worker_id: int) -> None:
    await world.until(
        "SELECT drain_seen_at IS NOT NULL AND NOT EXISTS (SELECT FROM dag_task_queue q WHERE q.worker_id = $1)"
        " FROM dag_workers WHERE worker_id = $1",
        worker_id,
    )


async def test_a_worker_that_drains_finishes_what_runs_and_others_get_what_waits(world: World):
    held = Held()
    world.handlers.append(held.handler)
    await world.orchestrator()
    # Its heartbeat would come in an hour: the request wakes it.
    worker = await world.worker(concurrency=1, heartbeat_seconds=3600)
    job = await world.submit(MANY)
    await world.until_claimed()
    worker_id = worker_of(worker)
    assert await world.client.drain(str(worker_id))
    await world.until("SELECT drain_seen_at IS NOT NULL FROM dag_workers WHERE worker_id = $1", worker_id)
    other = await world.worker(concurrency=4)
    await world.until(
        "SELECT count(*) = 4 FROM dag_task_queue WHERE worker_id = $1 AND started_at IS NOT NULL",
        worker_of(other),
    )
    held.gate.open()
    assert (await world.finished(job)).status == "COMPLETED"
    await until_drained(world, worker_id)
    assert [await world.attempts(job, f"f__{index}") for index in range(5)] == [["COMPLETED"]] * 5
    # It is still there, claims nothing, and claims again when it is asked to.
    assert world.is_alive(worker)
    await world.stop(other)
    again = await world.submit(MANY)
    await world.until("SELECT count(*) = 5 FROM dag_task_queue WHERE worker_id IS NULL")
    assert await world.client.undrain(str(worker_id))
    assert (await world.finished(again)).status == "COMPLETED"


async def test_after_its_grace_period_a_task_is_released_and_runs_elsewhere(world: World):
    held = Held(2)
    world.handlers.append(held.handler)
    await world.orchestrator()
    worker = await world.worker()
    job = await world.submit(ONE)
    await held.started.wait()
    assert await world.client.drain(str(worker_of(worker)), grace_seconds=0)
    await until_drained(world, worker_of(worker))
    await world.worker()
    assert (await world.finished(job)).status == "COMPLETED"
    assert await world.attempts(job, "a") == ["RELEASED", "COMPLETED"]


async def test_an_orchestrator_that_drains_hands_its_jobs_over_at_once_and_stays(world: World):
    held = Held()
    world.handlers.append(held.handler)
    first = await world.orchestrator(beats=False)
    await world.worker()
    job = await world.submit(ONE)
    await world.until_claimed()
    second = await world.orchestrator()
    assert await world.client.drain(str(owner_of(first)))
    await world.until("SELECT owner_id = $2 FROM dag_jobs WHERE id = $1", int(job), owner_of(second))
    held.gate.open()
    assert (await world.finished(job)).status == "COMPLETED"
    claims = [read(event["data"]) for event in await world.events(job, "JobClaimed")]
    assert [(data["epoch"], data.get("after")) for data in claims] == [(1, None), (2, "released")]
    assert await world.attempts(job, "a") == ["COMPLETED"]
    # Without another one, jobs wait for it.
    await world.stop(second)
    waiting = await world.submit(ONE)
    assert world.is_alive(first)
    assert first.jobs == {}
    assert await world.client.undrain(str(owner_of(first)))
    assert (await world.finished(waiting)).status == "COMPLETED"
