"""Async handlers that block their loop: each fails its own attempt, and its neighbours go on elsewhere."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.runtime.runtime_world import World


class Blocking:
    """A handler that blocks its loop until it is released, and one next to it that waits on its first attempt."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.is_held, self.returned = Gate(), Gate()

        @handler("blocks", queue="q")
        async def blocks(how: str = "itself") -> dict[str, Any]:
            print("about to block")  # noqa: T201 - what handlers print is what is tested
            await self.is_held.wait()
            if how == "itself":
                self._block()
            else:
                await asyncio.gather(asyncio.create_task(self._beside()))
            return {"too": "late"}

        @handler("neighbour", queue="q")
        async def neighbour(ctx: HandlerContext) -> None:
            self.is_held.open()
            if ctx.attempt == 1:
                await asyncio.Event().wait()

        self.handlers: list[Callable[..., Any]] = [blocks, neighbour]

    def _block(self) -> None:
        self.release.wait()
        self.returned.open()

    async def _beside(self) -> None:
        self._block()


@pytest.fixture
def blocking(world: World) -> Iterator[Blocking]:
    result = Blocking()
    world.handlers += result.handlers
    yield result
    result.release.set()


def flow(rest: str = "") -> str:
    return f"{{name: n, on_failure: continue, nodes: {{a: {{handler: blocks, retry: none{rest}}}, b: {{handler: neighbour, retry: none}}}}}}"


@pytest.mark.parametrize("how", ["itself", "beside"])
async def test_a_handler_that_blocks_its_loop_fails_and_its_neighbours_lose_no_retry(
    world: World, blocking: Blocking, how: str
):
    await world.orchestrator()
    await world.worker(blocked_seconds=1.0)
    report = await world.run(flow(f", params: {{how: {how}}}"))
    error = report.nodes["a"]["error"]
    assert error["kind"] == "blocked"
    assert "blocks the event loop: it did not await for" in error["message"]
    assert await world.attempts(report.job_id, "a") == ["FAILED"]
    assert await world.attempts(report.job_id, "b") == ["RELEASED", "COMPLETED"]
    log = await world.log(report.job_id, "a")
    assert log.index("about to block") < log.index("blocks the event loop") < log.index("in _block")
    # The abandoned thread continues; its result is ignored.
    blocking.release.set()
    await blocking.returned.wait()
    assert (await world.run("{name: m, nodes: {a: {handler: echo}}}")).status == "COMPLETED"
    assert await world.attempts(report.job_id, "a") == ["FAILED"]


async def test_a_handler_that_blocks_its_loop_has_the_time_that_it_was_given_and_no_more(
    world: World, blocking: Blocking
):
    await world.orchestrator()
    await world.worker(blocked_seconds=80_000)
    report = await world.run(flow(", timeout_seconds: 1"))
    assert report.nodes["a"]["error"]["kind"] == "unstoppable"
    assert report.nodes["b"]["status"] == "COMPLETED"
    assert not blocking.returned.is_open


async def test_a_cancel_reaches_a_handler_that_blocks_its_loop(world: World, blocking: Blocking):
    await world.orchestrator()
    await world.worker(blocked_seconds=80_000)
    job = await world.submit(flow())
    await blocking.is_held.wait()
    await world.send(job, "cancel")
    report = await world.finished(job)
    assert (report.status, report.nodes["a"]["status"], report.nodes["b"]["status"]) == ("CANCELLED",) * 3
    assert not blocking.returned.is_open
