"""What an orchestrator that runs says and does: its heartbeats, and a drain, which releases also what it has not loaded."""

from __future__ import annotations

import asyncio
from typing import Any

from dagmaster.errors import DatabaseDiskFull
from dagmaster.orchestrator.service import Orchestrator
from dagmaster.store.memory.database import MemoryDatabase
from tests.conformance.jobs import submitted
from tests.conformance.stores import MemoryWorld
from tests.patience import PATIENCE_SECONDS


def test_a_job_that_is_quarantined_during_the_drain_is_released():
    async def main() -> None:
        world = MemoryWorld()
        # With a clock that passes: the loop of the turns waits with it.
        world.database = MemoryDatabase()
        client = await world.client()
        store: Any = await world.orchestrator()
        orchestrator = Orchestrator(store, blobs=world.blobs)
        job_id = await submitted(world, client)
        # The claim was on its way when the drain was requested and its jobs were released, and cannot be loaded.
        (claimed,) = await store.claim(1)
        await client.drain(str(store.owner_id))
        await orchestrator._heartbeat()
        orchestrator._drain._is_new = False
        orchestrator._quarantine(claimed.row.id, ValueError())
        turns = asyncio.create_task(orchestrator._turn_loop({}))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while orchestrator.quarantined:  # noqa: ASYNC110 - in memory, a turn is a few steps of the loop
                await asyncio.sleep(0)
        orchestrator.stop()
        await turns
        assert world.database.jobs[job_id].owner_id is None

    asyncio.run(main())


def test_a_full_disk_that_a_turn_met_is_in_the_next_heartbeat():
    async def main() -> None:
        world = MemoryWorld()
        store: Any = await world.orchestrator()
        orchestrator = Orchestrator(store, blobs=world.blobs)
        orchestrator._backoff.on_failure(DatabaseDiskFull("the disk is full"))
        await orchestrator._heartbeat()
        assert (await (await world.reader()).fleet_counts()).hindered_orchestrators == 1

    asyncio.run(main())
