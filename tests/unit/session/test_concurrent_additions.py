"""Two calls that add the same task at the same time, with stores that wait for the test."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import create_task
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.errors import NodesRejected
from dagmaster.session.concurrent_additions import ConcurrentAdditions
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dagmaster import Task
    from dagmaster.authoring.python.graph_collection import Collected

JOB = 7


class Store:
    """Stores what it is given once `go` is set; `has_begun`: a call waits for that."""

    def __init__(self, *, fails: bool = False) -> None:
        self.added: list[list[str | None]] = []
        self.has_begun = asyncio.Event()
        self.go = asyncio.Event()
        self._fails = fails

    async def store(self, collected: Collected) -> None:
        self.has_begun.set()
        await self.go.wait()
        if self._fails:
            raise NodesRejected("the store says no")
        self.added.append([item.name for item in collected.items])
        collected.mark_applied(JOB, collected.part.names(2))

    def add(self, additions: ConcurrentAdditions, task: Task) -> asyncio.Task[None]:
        return asyncio.create_task(
            additions.add(lambda: collect(task, job_id=JOB, default_queue="q"), self.store)
        )


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


def named(name: str, *sources: Task) -> Task:
    return create_task("m.f", dict(zip("abc", sources, strict=False)), name=name)


@on_a_loop
async def test_a_shared_task_is_added_by_the_first_call_only():
    additions, first, second = ConcurrentAdditions(), Store(), Store()
    shared = named("shared")
    one = first.add(additions, named("one", shared))
    await first.has_begun.wait()
    two = second.add(additions, named("two", shared))
    other = first.add(additions, named("other"))
    second.go.set()
    first.go.set()
    await asyncio.gather(one, two, other)
    assert (first.added, second.added) == ([["shared", "one"], ["other"]], [["two"]])


@on_a_loop
async def test_calls_that_share_nothing_do_not_wait_for_each_other():
    additions, slow, quick = ConcurrentAdditions(), Store(), Store()
    waiting = slow.add(additions, named("slow"))
    await slow.has_begun.wait()
    quick.go.set()
    await quick.add(additions, named("quick"))
    assert quick.added == [["quick"]]
    slow.go.set()
    await waiting


@on_a_loop
async def test_a_shared_task_of_a_call_that_fails_is_added_by_the_next():
    additions, failing, second = ConcurrentAdditions(), Store(fails=True), Store()
    shared = named("shared")
    one = failing.add(additions, named("one", shared))
    await failing.has_begun.wait()
    two = second.add(additions, named("two", shared))
    second.go.set()
    failing.go.set()
    with pytest.raises(NodesRejected):
        await one
    await two
    assert second.added == [["shared", "two"]]


@on_a_loop
async def test_a_cancelled_call_is_finished_before_the_next_and_before_the_context_closes():
    additions, first, second = ConcurrentAdditions(), Store(), Store()
    shared = named("shared")
    one = first.add(additions, named("one", shared))
    await first.has_begun.wait()
    one.cancel()
    await asyncio.wait([one])
    two = second.add(additions, named("two", shared))
    second.go.set()
    first.go.set()
    await additions.finish()
    await two
    assert one.cancelled()
    assert (first.added, second.added) == ([["shared", "one"]], [["two"]])


@on_a_loop
async def test_a_dependency_that_is_made_while_its_task_is_stored_is_stored_by_the_next_call():
    additions, first, second = ConcurrentAdditions(), Store(), Store()
    task, before = named("task"), named("before")
    one = first.add(additions, task)
    await first.has_begun.wait()
    before >> task
    two = second.add(additions, before)
    second.go.set()
    first.go.set()
    await asyncio.gather(one, two)
    assert second.added == [["before"]]
    assert (task.stored, before.node_id) == (1, "before")


@on_a_loop
async def test_calls_that_share_only_what_waits_for_their_tasks_do_not_wait_for_each_other():
    additions, slow, quick = ConcurrentAdditions(), Store(), Store()
    one, two, sink = named("one"), named("two"), named("sink")
    [one, two] >> sink
    waiting = slow.add(additions, one)
    await slow.has_begun.wait()
    quick.go.set()
    await quick.add(additions, two)
    assert quick.added == [["two"]]
    slow.go.set()
    await waiting


@on_a_loop
async def test_calls_that_share_a_task_are_made_in_their_order_and_read_it_twice_at_most():
    additions, store, reads = ConcurrentAdditions(), Store(), []
    shared = named("shared")
    tasks = [named(f"task{number}", shared) for number in range(20)]

    def read(number: int) -> Collected:
        reads.append(number)
        return collect(tasks[number], job_id=JOB, default_queue="q")

    store.go.set()
    await asyncio.gather(
        *(additions.add(functools.partial(read, number), store.store) for number in range(20))
    )
    assert store.added == [["shared", "task0"], *([f"task{number}"] for number in range(1, 20))]
    assert max(map(reads.count, range(20))) == 2


@on_a_loop
async def test_a_call_that_is_cancelled_while_it_waits_stores_nothing_and_does_not_block_the_next():
    additions, first, second = ConcurrentAdditions(), Store(), Store()
    shared = named("shared")
    one = first.add(additions, named("one", shared))
    await first.has_begun.wait()
    two, three = second.add(additions, named("two", shared)), second.add(additions, named("three", shared))
    await asyncio.sleep(0)
    two.cancel()
    second.go.set()
    first.go.set()
    await asyncio.gather(one, three)
    assert (two.cancelled(), second.added) == (True, [["three"]])
