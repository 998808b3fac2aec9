"""A batch of twenty tiles: killed at the thirteenth, it goes on there."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dagmaster.errors import PermanentError
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded, TaskMessage
from dagmaster.sdk.handler_registry import discover
from dagmaster.worker.executor import Executor
from dagmaster.worker.lazy_services import ServicesConfig
from dagmaster.worker.process_pool import HandlerProcesses
from dagmaster.worker.task_reports import NoReports
from tests.patience import PATIENCE_SECONDS
from tests.unit.geo.raster.raster_context import HandlerHarness, numbers

if TYPE_CHECKING:
    from dagmaster.ports.handler_reports import Checkpoint, Progress

pytestmark = pytest.mark.process

HELD = "tests.unit.geo.raster.interrupted_batch"


class RecordedReports(NoReports):
    """What a task reported, and when it is at a tile."""

    def __init__(self) -> None:
        self.tiles: list[str] = []
        self.checkpoints: list[Checkpoint] = []
        self.at_thirteen = asyncio.Event()

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        if progress.message.startswith("tile "):
            self.tiles.append(progress.message)
        if progress.message == "tile 13 of 20":
            self.at_thirteen.set()

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)


def plan(harness: HandlerHarness) -> list[dict[str, Any]]:
    harness.bronze("a.tif", numbers(80, 100))
    tiles: list[dict[str, Any]] = harness.run("raster_plan_tiles", href="a.tif", tile_size=20).tiles
    assert len(tiles) == 20
    return tiles


def test_a_batch_that_was_killed_at_tile_13_goes_on_at_13(harness: HandlerHarness):
    tiles = plan(harness)
    services = ServicesConfig("dagmaster.bootstrap.services_config:open_services", harness.services._config)

    async def attempt(
        processes: HandlerProcesses, number: int, checkpoint: Checkpoint | None
    ) -> tuple[Outcome, RecordedReports]:
        reports = RecordedReports()
        executor = Executor(discover([HELD], entry_points=False), processes=processes, reports=reports)
        message = TaskMessage(
            "1", "7", "node", "held_tiles", {"tiles": tiles}, attempt=number, checkpoint=checkpoint
        )
        task = asyncio.create_task(executor.execute(message))
        if number == 1:
            await reports.at_thirteen.wait()
            (pid,) = processes.pids()
            os.kill(pid, signal.SIGKILL)
        return await task, reports

    async def main() -> tuple[RecordedReports, Outcome, RecordedReports]:
        processes = HandlerProcesses((HELD,), limit=1, services=services)
        try:
            died, first = await attempt(processes, 1, None)
            assert isinstance(died, Failed)
            assert not died.permanent
            # What it had in its scratch folder went with it.
            assert not list((harness.folder / "scratch").rglob("*.tif"))
            lived, second = await attempt(processes, 2, first.checkpoints[-1])
            return first, lived, second
        finally:
            await processes.close()

    first, outcome, second = asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))
    assert first.tiles == [f"tile {number} of 20" for number in range(1, 14)]
    assert first.checkpoints[-1].data == {"done": 12}
    assert [one.phase for one in first.checkpoints] == [f"tile_{number}" for number in range(1, 13)]
    assert second.tiles == [f"tile {number} of 20" for number in range(13, 21)]
    assert isinstance(outcome, Succeeded)
    batch = outcome.output
    assert (batch["count"], batch["resumed_from"], len(batch["items"])) == (20, 12, 20)
    assert [tile["index"] for tile in batch["tiles"]] == list(range(20))
    mosaic = harness.run("raster_mosaic", sources=[batch])
    assert np.array_equal(harness.read(mosaic.cog_url), numbers(80, 100))


def test_a_batch_that_is_asked_to_stop_stops_between_tiles(harness: HandlerHarness):
    ctx = harness.context("raster_process_tile_batch", tiles=plan(harness))

    class Stopping:
        def progress(self, progress: Progress) -> None:
            if progress.message == "tile 3 of 20":
                ctx.cancel()

        def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
            return checkpoint

    ctx.reporter = Stopping()
    with pytest.raises(PermanentError, match="asked to stop"):
        harness.call(ctx, "raster_process_tile_batch")
    assert ctx.last_checkpoint is not None
    # The third was begun, and is not published half.
    assert ctx.last_checkpoint.data["done"] == len(harness.silver()) == 2


def test_a_batch_gives_the_tiles_that_single_tasks_would_give(harness: HandlerHarness):
    tiles = plan(harness)
    batch = harness.run("raster.process_tile_batch", tiles=tiles[:3])
    single = [harness.run("raster.create_cog", tile_spec=tile) for tile in tiles[:3]]
    assert [tile["sha256"] for tile in batch.tiles] == [one.sha256 for one in single]
    assert [item["id"] for item in batch.items] == [one.item["id"] for one in single]


def test_a_tile_that_says_not_of_what_it_is_is_reported(harness: HandlerHarness):
    with pytest.raises(PermanentError, match="the tile does not name its raster"):
        harness.run("raster.process_tile_batch", tiles=[{"window": [0, 0, 9, 9]}])
