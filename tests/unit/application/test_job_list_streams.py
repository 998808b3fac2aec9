"""Streams of lists of jobs: a snapshot, then what changed in it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application import job_list_streams
from dagmaster.application.job_list_streams import JobListStreams
from dagmaster.engine.status import JobStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.job_filter import JobFilter
from dagmaster.store.memory.read_store import MemoryReadStore
from tests.conformance.jobs import Played
from tests.conformance.stores import MemoryWorld
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import memory_application, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.application.stream_messages import StreamMessage

FLOW = "{name: one, nodes: {a: {handler: h, queue: q}}}"
RUNNING = JobFilter(statuses=frozenset({JobStatus.RUNNING}))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list_streams, "LIST_SECONDS", 0.001)
    monkeypatch.setattr(job_list_streams, "pause_after", lambda _seconds: 0.001)


async def following(stream: AsyncGenerator[StreamMessage]) -> tuple[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        item = await anext(stream)
    assert item.id is None
    return item.type.value, json.loads(item.data)


def ids(jobs: list[dict[str, Any]]) -> list[str]:
    return [job["job_id"] for job in jobs]


def test_a_list_is_a_snapshot_then_new_changed_and_removed_jobs():
    async def scenario() -> None:
        world = MemoryWorld()
        first = await Played.begin(world, FLOW)
        stream = JobListStreams(memory_application(world.database)).stream(RUNNING, limit=2)
        kind, data = await following(stream)
        assert (kind, ids(data["jobs"])) == ("snapshot", [first.job_id])
        second = await Played.begin(world, FLOW, first.orchestrator)
        kind, data = await following(stream)
        assert (kind, ids(data["jobs"]), data["removed"]) == ("delta", [second.job_id], [])
        await first.worker.claim(1)
        await first.turn()
        third = await Played.begin(world, FLOW, first.orchestrator)
        kind, data = await following(stream)
        assert (kind, ids(data["jobs"]), data["removed"]) == ("delta", [third.job_id], [first.job_id])
        stored = world.database.jobs[third.job_id]
        stored.row = replace(stored.row, status=JobStatus.COMPLETED)
        kind, data = await following(stream)
        assert (kind, ids(data["jobs"]), data["removed"]) == ("delta", [first.job_id], [third.job_id])
        await stream.aclose()

    asyncio.run(scenario())


def test_every_stream_begins_with_a_snapshot_and_readers_of_a_list_share_its_reads(monkeypatch):
    reads = 0
    jobs = MemoryReadStore.jobs

    async def count(self: MemoryReadStore, *args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await jobs(self, *args, **options)

    monkeypatch.setattr(MemoryReadStore, "jobs", count)
    monkeypatch.setattr(job_list_streams, "LIST_SECONDS", 60.0)

    async def scenario() -> None:
        world = MemoryWorld()
        await Played.begin(world, FLOW)
        streams = JobListStreams(memory_application(world.database))
        opened = [streams.stream(JobFilter(), limit=10) for _ in range(5)]
        answers = [await following(stream) for stream in opened]
        assert answers == [answers[0]] * 5
        assert answers[0][0] == "snapshot"
        assert reads == 1
        for stream in opened:
            await stream.aclose()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(scenario())


def test_a_list_waits_out_an_outage_and_says_nothing_while_nothing_changes(monkeypatch):
    jobs = MemoryReadStore.jobs
    failures = 3

    async def fail(self: MemoryReadStore, *args: Any, **options: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise DatabaseUnavailable("the connection to the database was lost")
        return await jobs(self, *args, **options)

    monkeypatch.setattr(MemoryReadStore, "jobs", fail)

    async def scenario() -> None:
        world = MemoryWorld()
        first = await Played.begin(world, FLOW)
        stream = JobListStreams(memory_application(world.database)).stream(JobFilter(), limit=10)
        assert (await following(stream))[0] == "snapshot"
        waiting = asyncio.ensure_future(following(stream))
        reached = failures
        await until(lambda: failures < reached - 5)
        world.clock.move(100.0)
        await until(lambda: failures < reached - 10)
        assert not waiting.done()
        await first.work({"a": {}})
        kind, data = await waiting
        assert (kind, data["jobs"][0]["status"]) == ("delta", "COMPLETED")
        await stream.aclose()

    asyncio.run(scenario())


def test_a_bug_in_a_read_ends_the_streams_of_its_list(monkeypatch):
    monkeypatch.setattr(MemoryReadStore, "jobs", None)

    async def scenario() -> None:
        stream = JobListStreams(memory_application(MemoryWorld().database)).stream(JobFilter(), limit=10)
        kind, data = await following(stream)
        assert (kind, data["reason"]) == ("end", "failed")

    asyncio.run(scenario())
