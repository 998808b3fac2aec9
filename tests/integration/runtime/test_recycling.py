"""Workers that cannot stop a handler, or run out of memory: they end, and only the guilty attempt is charged."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.runtime.runtime_world import World


class Runaways:
    """Handlers that ignore a stop until the test ends, and neighbours of them."""

    def __init__(self) -> None:
        self.release, self.neighbour_runs, self.may_finish = threading.Event(), Gate(), Gate()

        @handler("spins", queue="q")
        async def spins() -> None:
            await self.neighbour_runs.wait()
            self.release.wait()

        @handler("swallows", queue="q")
        async def swallows() -> None:
            await self.neighbour_runs.wait()
            while not self.release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

        @handler("ignores", queue="q", isolation="thread")
        def ignores() -> None:
            self.release.wait()

        @handler("leaves_a_thread", queue="q")
        async def leaves_a_thread() -> None:
            await asyncio.to_thread(self.release.wait)

        @handler("neighbour", queue="q")
        async def neighbour(ctx: HandlerContext) -> None:
            self.neighbour_runs.open()
            if ctx.attempt == 1:
                await self.may_finish.wait()

        self.handlers: list[Callable[..., Any]] = [spins, swallows, ignores, leaves_a_thread, neighbour]


@pytest.fixture
def runaways(world: World) -> Iterator[Runaways]:
    result = Runaways()
    world.handlers += result.handlers
    yield result
    result.release.set()


def flow(name: str, rest: str = "timeout_seconds: 1") -> str:
    nodes = (
        f"a: {{handler: {name}, retry: {{max_attempts: 20}}, {rest}}}, b: {{handler: neighbour, retry: none}}"
    )
    return f"{{name: n, on_failure: continue, nodes: {{{nodes}}}}}"


@pytest.mark.parametrize("name", ["spins", "swallows", "ignores", "leaves_a_thread"])
async def test_a_handler_that_cannot_be_stopped_costs_its_attempt_and_its_worker(
    world: World, runaways: Runaways, name: str
):
    await world.orchestrator()
    worker = await world.worker(recycles=True, blocked_seconds=10.0, drain_seconds=1.0)
    job = await world.submit(flow(name))
    # It releases what has not ended, and exits by itself.
    assert await world.until_ended(worker) == 80
    await world.worker()
    report = await world.finished(job)
    error = report.nodes["a"]["error"]
    assert error["kind"] == "unstoppable"
    told = r"could not be stopped \(it ignored cancellation for [\d.]+ s\); its worker restarted, so it is not retried"
    assert re.search(told, error["message"])
    # A retry would cost the next worker, and its neighbours their work.
    assert await world.attempts(job, "a") == ["FAILED"]
    assert await world.attempts(job, "b") == ["RELEASED", "COMPLETED"]


async def test_a_healthy_neighbour_finishes_before_its_worker_ends(
    world: World, runaways: Runaways, caplog: pytest.LogCaptureFixture
):
    await world.orchestrator()
    worker = await world.worker(recycles=True)
    job = await world.submit(flow("swallows"))
    await world.until_node(job, "a", "FAILED")
    assert "claims nothing more and exits with code 80" in caplog.text
    runaways.may_finish.open()
    assert await world.until_ended(worker) == 80
    await world.finished(job)
    assert await world.attempts(job, "b") == ["COMPLETED"]


async def test_a_worker_that_was_asked_to_stop_exits_with_0_and_does_not_wait_for_a_thread(
    world: World, runaways: Runaways
):
    await world.orchestrator()
    worker = await world.worker(recycles=True, drain_seconds=0.5)
    job = await world.submit("{name: n, nodes: {b: {handler: neighbour}, a: {handler: leaves_a_thread}}}")
    await runaways.neighbour_runs.wait()
    await world.until_claimed(2)
    worker.stop()
    assert await world.until_ended(worker) == 0
    assert worker.recycling.has_abandoned
    await world.send(job, "cancel")
    await world.finished(job)


async def test_a_cancelled_task_stays_cancelled(world: World, runaways: Runaways):
    await world.orchestrator()
    worker = await world.worker(recycles=True, drain_seconds=1.0)
    job = await world.submit(flow("swallows", ""))
    await runaways.neighbour_runs.wait()
    await world.send(job, "cancel")
    assert await world.until_ended(worker) == 80
    report = await world.finished(job)
    assert {node["status"] for node in report.nodes.values()} == {"CANCELLED"}


async def test_of_several_suspects_of_a_full_memory_none_is_charged_and_each_is_isolated(
    world: World, runaways: Runaways
):
    await world.orchestrator()
    worker = await world.worker(recycles=True, drain_seconds=1.0)
    job = await world.submit(flow("neighbour", ""))
    await runaways.neighbour_runs.wait()
    worker.recycling.on_memory(950, 900)
    assert await world.until_ended(worker) == 81
    for node in "ab":
        assert await world.attempts(job, node) == ["LOST"]
    rows = await world.rows("SELECT coalesce(shared_losses, 0), lost_attempts FROM dag_node_states")
    assert {tuple(row) for row in rows} == {(1, 0)}
    await world.send(job, "cancel")
    await world.finished(job)


async def test_the_only_suspect_of_a_full_memory_fails(world: World, runaways: Runaways):
    await world.orchestrator()
    worker = await world.worker(recycles=True, drain_seconds=1.0)
    job = await world.submit("{name: n, nodes: {b: {handler: neighbour, retry: none}}}")
    await runaways.neighbour_runs.wait()
    worker.recycling.on_memory(950, 900)
    assert await world.until_ended(worker) == 81
    report = await world.finished(job)
    error = report.nodes["b"]["error"]
    assert error["kind"] == "out_of_memory"
    assert "its worker reached its memory limit (900 MB)" in error["message"]
