"""What the heartbeats of a worker say of it."""

from __future__ import annotations

import asyncio

from dagmaster.errors import DatabaseDiskFull
from tests.unit.worker.test_exclusive_tasks import World


def test_a_full_disk_that_a_report_met_is_in_the_heartbeats():
    async def main() -> None:
        async with World().worker() as worker:
            assert "database_condition" not in worker._heartbeat_counters()
            worker._backoff.on_failure(DatabaseDiskFull("the disk is full"))
            assert worker._heartbeat_counters()["database_condition"] == DatabaseDiskFull.code

    asyncio.run(main())
