"""A worker runs an exclusive task alone: it lets its tasks finish first, and claims nothing meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.engine.status import Isolation
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.store.memory.database import MemoryDatabase, StoredTask
from dagmaster.store.memory.worker_store import MemoryWorkerStore
from dagmaster.worker import service
from dagmaster.worker.options import WorkerOptions, WorkerPorts
from dagmaster.worker.service import Worker
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class World:
    """A worker over a queue that the test fills. Its handler runs until the test lets it end."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        # What the store reads of the job.
        job: Any = SimpleNamespace(
            owner_id=None, new=SimpleNamespace(workflow_id="w", version=1, trace_parent=None)
        )
        self.database.jobs["1"] = job
        self.running: dict[str, asyncio.Event] = {}
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self._count = 0

        @handler("work", queue="q")
        async def work(name: str) -> dict[str, Any]:
            self.running[name] = asyncio.Event()
            self.started.put_nowait(name)
            try:
                await self.running[name].wait()
            finally:
                del self.running[name]
                self.ended.put_nowait(name)
            return {}

        self.registry = Registry([work])

    def add(self, name: str, isolation: Isolation = Isolation.SHARED) -> str:
        self._count += 1
        task = StoredTask(
            str(self._count), "1", name, "work", 1, f'{{"name": "{name}"}}', None, 60.0, 5,
            self.database.clock.now() - 100.0, queue="q", isolation=isolation,
        )  # fmt: skip
        self.database.enqueue(task)
        self.database.notify("tasks", "q")
        return task.task_id

    async def next_start(self) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.started.get()

    async def end(self, name: str) -> None:
        self.running[name].set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await self.ended.get() == name

    @contextlib.asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Worker]:
        store = MemoryWorkerStore(self.database)
        ports = WorkerPorts(
            source=store,
            ledger=store,
            journal=store,
            blobs=self.database.blobs,
            secrets=lambda _name: None,
        )
        defaults = {"queues": ["q"], "shares_loop": True, "poll_seconds": 0.02, "heartbeat_seconds": 0.02}
        worker = Worker(ports, self.registry, options=WorkerOptions(**{**defaults, **options}))
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        try:
            yield worker
        finally:
            for event in self.running.values():
                event.set()
            worker.stop()
            await running


def test_an_exclusive_task_starts_when_the_others_have_ended_and_nothing_starts_with_it():
    async def main() -> None:
        world = World()
        world.add("one")
        world.add("two")
        async with world.worker(concurrency=4):
            assert {await world.next_start(), await world.next_start()} == {"one", "two"}
            world.add("alone", Isolation.EXCLUSIVE)
            await world.end("one")
            await world.end("two")
            assert await world.next_start() == "alone"
            world.add("later")
            assert list(world.running) == ["alone"]
            await world.end("alone")
            assert await world.next_start() == "later"

    asyncio.run(main())


def test_exclusive_tasks_run_one_after_the_other():
    async def main() -> None:
        world = World()
        for name in ("a", "b", "c"):
            world.add(name, Isolation.EXCLUSIVE)
        async with world.worker(concurrency=4):
            for name in ("a", "b", "c"):
                assert await world.next_start() == name
                assert list(world.running) == [name]
                await world.end(name)

    asyncio.run(main())


def test_a_worker_whose_tasks_take_long_goes_on_claiming(monkeypatch):
    monkeypatch.setattr(service, "EXCLUSIVE_DRAIN_SECONDS", 0.05)

    async def main() -> None:
        world = World()
        world.add("long")
        async with world.worker(concurrency=4):
            assert await world.next_start() == "long"
            exclusive = world.add("alone", Isolation.EXCLUSIVE)
            world.add("short")
            assert await world.next_start() == "short"
            # No worker holds it: an idle worker could take it, and it can be cancelled.
            assert world.database.queue[exclusive].worker_id is None
            await world.end("short")
            await world.end("long")
            assert await world.next_start() == "alone"

    asyncio.run(main())


def test_a_worker_does_not_stop_claiming_again_for_a_task_that_outlasted_the_last_pause(monkeypatch, caplog):
    monkeypatch.setattr(service, "EXCLUSIVE_DRAIN_SECONDS", 0.05)
    caplog.set_level("INFO", logger="dagmaster.worker")
    announced = 0
    heartbeat = MemoryWorkerStore.heartbeat

    async def counted(self: MemoryWorkerStore, *args: Any) -> Any:
        nonlocal announced
        answer = await heartbeat(self, *args)
        announced += answer is not None and answer.has_exclusive
        return answer

    monkeypatch.setattr(MemoryWorkerStore, "heartbeat", counted)

    async def main() -> None:
        world = World()
        world.add("long")
        async with world.worker(concurrency=4):
            assert await world.next_start() == "long"
            world.add("alone", Isolation.EXCLUSIVE)
            while announced < 12:
                world.add("short")
                assert await world.next_start() == "short"
                await world.end("short")
            assert sum("claiming nothing" in record.message for record in caplog.records) == 1
            await world.end("long")
            assert await world.next_start() == "alone"

    asyncio.run(main())


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_worker_can_be_stopped_while_an_exclusive_task_waits_or_runs(is_busy):
    async def main() -> None:
        world = World()
        if is_busy:
            world.add("other")
        else:
            world.add("alone", Isolation.EXCLUSIVE)
        async with world.worker(concurrency=4, drain_seconds=0.5):
            await world.next_start()
            if is_busy:
                world.add("alone", Isolation.EXCLUSIVE)
                await asyncio.sleep(0)
        assert all(task.worker_id is None for task in world.database.queue.values())

    asyncio.run(main())
