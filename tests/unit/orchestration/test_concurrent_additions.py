"""Calls that add to a job at the same time wait for one another only if they share what they add."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from dagmaster import create_task
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.orchestration.concurrent_additions import ConcurrentAdditions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from dagmaster.authoring.python.graph_collection import Collected


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


def a_task(name: str):
    return create_task("m.f", queue="q", name=name)


async def start(additions: ConcurrentAdditions, items, begun: list[str], may_end: asyncio.Event) -> asyncio.Task[None]:
    """Add items; what is stored is noted, and ends when it may."""
    reads = 0

    def read() -> Collected:
        nonlocal reads
        reads += 1
        assert reads <= 2, "once, and once more after the calls before"
        return collect(items, job_id=1)

    async def store(collected: Collected) -> None:
        begun.append(collected.items[0].label)
        await may_end.wait()

    task = asyncio.create_task(additions.add(read, store))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


@on_a_loop
async def test_calls_that_share_only_what_waits_for_both_are_made_together():
    begun: list[str] = []
    additions, may_end = ConcurrentAdditions(), asyncio.Event()
    one, two, sink = a_task("one"), a_task("two"), a_task("sink")
    [one, two] >> sink
    calls = [await start(additions, task, begun, may_end) for task in (one, two)]
    assert begun == ["one", "two"]
    may_end.set()
    await asyncio.gather(*calls)


@on_a_loop
async def test_calls_that_share_a_task_are_made_in_their_order_and_read_twice_at_most():
    begun: list[str] = []
    additions, may_end = ConcurrentAdditions(), asyncio.Event()
    tasks = [a_task("one")] * 20
    calls = [await start(additions, task, begun, may_end) for task in tasks]
    assert len(begun) == 1
    may_end.set()
    await asyncio.gather(*calls)
    assert len(begun) == 20


@on_a_loop
async def test_a_call_that_is_cancelled_while_it_waits_stores_nothing_and_does_not_block_others():
    begun: list[str] = []
    additions, may_end = ConcurrentAdditions(), asyncio.Event()
    shared = a_task("shared")
    first, second, third = [await start(additions, shared, begun, may_end) for _ in range(3)]
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    may_end.set()
    await asyncio.gather(first, third)
    assert len(begun) == 2
    await additions.finish()
