"""The drain of a worker: what it releases, when, and that a change is noticed once."""

from __future__ import annotations

import asyncio
from typing import Any

from dagmaster.ports.task_ledger import DrainRequest
from dagmaster.store.memory.client_store import MemoryClientStore
from dagmaster.worker.drain import Drain
from tests.patience import PATIENCE_SECONDS
from tests.unit.worker.test_exclusive_tasks import World


class Pool:
    """Records what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def release_waiting(self) -> None:
        self.asked.append("release waiting")

    def stop(self, task_ids: list[str], *, releases: bool) -> None:
        self.asked.append((task_ids, releases))


def follow(drain: Drain, request: DrainRequest | None, held: list[str]) -> tuple[bool, list[Any]]:
    pool: Any = Pool()
    return drain.follow(request, held, [pool]), pool.asked


def test_what_waits_is_released_at_once_and_what_runs_when_the_time_is_over():
    drain = Drain()
    assert follow(drain, None, ["1"]) == (False, [])
    assert follow(drain, DrainRequest(5.0), ["1"]) == (True, ["release waiting"])
    assert follow(drain, DrainRequest(0.5), ["1"]) == (False, ["release waiting"])
    assert follow(drain, DrainRequest(-1.0), ["1"]) == (False, ["release waiting", (["1"], True)])


def test_without_a_limit_nothing_that_runs_is_stopped():
    drain = Drain()
    assert follow(drain, DrainRequest(None), ["1"]) == (True, ["release waiting"])
    assert drain.is_requested
    assert follow(drain, None, ["1"]) == (True, [])
    assert not drain.is_requested


def test_the_end_of_the_grace_period_does_not_wait_for_the_next_heartbeat():
    async def main() -> None:
        world = World()
        async with world.worker(heartbeat_seconds=1_000.0):
            world.add("a")
            await world.next_start()
            (worker_id,) = world.database.workers
            assert await MemoryClientStore(world.database).drain(worker_id, grace_seconds=0.01)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await world.ended.get() == "a"

    asyncio.run(main())
