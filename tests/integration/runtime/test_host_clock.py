"""Hosts whose clocks are wrong. The database's time decides, so no service is taken for dead, and no timer fires early."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.runtime.runtime_world import Gate
from tests.integration.runtime.test_ownership import GATED, gated_by

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

SCANS = 5


@pytest.mark.parametrize("seconds", [-3600, -300, 300, 3600])
async def test_a_wrong_host_clock_expires_no_service_and_fires_no_timer(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    gate = Gate()
    world.handlers.append(gated_by(gate))
    right = await world.orchestrator()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + seconds)
    # Everything that begins from here on has a clock that is wrong.
    wrong = await world.orchestrator()
    await world.worker()
    jobs = [await world.submit(GATED) for _ in range(4)]
    waits = await world.submit("{name: w, nodes: {rest: {type: wait, seconds: 120}}}")
    await world.until_claimed(4)
    await world.until_node(waits, "rest", "WAITING")
    for service in (right, wrong):
        # Each has looked for the dead several times, and said so with a heartbeat of its own.
        for _ in range(SCANS):
            assert await service.store.reclaim() == []
            assert await service.store.mark_lost_tasks() == []
        await service.store.heartbeat({})
    assert await world.value(
        "SELECT status FROM dag_node_states WHERE job_id = $1 AND node_id = 'rest'", int(waits)
    ) == ("WAITING")
    far = "SELECT count(*) FROM dag_job_events WHERE abs(extract(epoch FROM at - clock())) > 60"
    assert await world.value(far) == 0
    gate.open()
    for job in jobs:
        assert (await world.finished(job)).status == "COMPLETED"
        assert await world.types(job, "JobClaimed", "AttemptLost") == ["JobClaimed"]
    await world.send(waits, "cancel")
    await world.finished(waits)
