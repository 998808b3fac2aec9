"""Streams of jobs: every event once and in order, whatever comes between; one read for all readers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application import job_deltas, job_streams
from dagmaster.application.job_lookup import find_job
from dagmaster.application.job_streams import JobStreams
from dagmaster.application.stream_messages import MessageType
from dagmaster.errors import DatabaseUnavailable, PermanentError
from dagmaster.records.redacted import redacted
from dagmaster.store.memory.job_feed import MemoryJobFeed
from tests.conformance.jobs import Played
from tests.conformance.stores import MemoryWorld
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import memory_application, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from dagmaster.application.stream_messages import StreamMessage

SECRET = "hunter2-canary"
FLOW = """
name: tiles
inputs: {token: {type: string, secret: true, default: ""}}
nodes:
  plan: {handler: h, queue: q, params: {token: "{{ inputs.token }}"}, next: [tiles]}
  tiles: {type: fan_out, source: "{{ nodes.plan.output.items }}", task: {handler: h, queue: q}, next: [last]}
  last: {handler: h, queue: q}
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_streams, "COALESCE_SECONDS", 0.001)


class Stage:
    """A job that a test drives, and the streams of a server."""

    def __init__(self, world: MemoryWorld, played: Played) -> None:
        self.world = world
        self.played = played
        self.job_id = played.job_id
        self.app = memory_application(world.database)
        self.streams = JobStreams(self.app)

    async def open(self, after: int | None = None, job_id: str | None = None) -> Follower:
        record = await find_job(self.app, job_id or self.job_id)
        return Follower(self.streams.stream(record, after))

    async def finish(self) -> None:
        await self.played.work({"plan": {"items": [1, 2, 3]}})
        await self.played.work({f"tiles__{number}": {} for number in range(3)})
        await self.played.work({"last": {}})

    def numbers(self) -> list[int]:
        return [event.seq for event in self.world.database.jobs[self.job_id].events]


class Follower:
    """Reads a stream."""

    def __init__(self, stream: AsyncGenerator[StreamMessage]) -> None:
        self.stream = stream

    async def next(self, *kinds: str) -> tuple[StreamMessage, Any]:
        """Return the next message, of some types if they are named, and its data."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for item in self.stream:
                if item.type in kinds or (not kinds and item.type is not MessageType.TASKS):
                    return item, json.loads(item.data)
        raise AssertionError("the stream has ended")

    async def rest(self) -> list[tuple[str, Any]]:
        """Return all messages until the end, but not those about tasks."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            items = [(item.type.value, json.loads(item.data)) async for item in self.stream]
        return [item for item in items if item[0] != "tasks"]


def numbers_in(messages: list[tuple[str, Any]]) -> list[int]:
    return [event["seq"] for kind, data in messages if kind == "delta" for event in data["events"]]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def begin(**inputs: Any) -> Stage:
    world = MemoryWorld()
    return Stage(world, await Played.begin(world, FLOW, **({"token": ""} | inputs)))


def test_a_stream_is_a_snapshot_then_every_event_once_then_the_end():
    async def scenario() -> None:
        stage = await begin()
        reader = await stage.open()
        first, job = await reader.next()
        assert (first.type, first.id, job["job_id"]) == ("snapshot", str(job["event_seq"]), stage.job_id)
        assert job["nodes"]["plan"]["status"] == "DISPATCHED"
        await stage.played.work({"plan": {"items": [1, 2, 3]}})
        second, delta = await reader.next()
        assert (second.type, second.id) == ("delta", str(delta["events"][-1]["seq"]))
        assert delta["nodes"]["plan"]["status"] == "COMPLETED"
        assert delta["nodes"]["tiles"]["children"] == {"total": 3, "counts": {"DISPATCHED": 3}}
        assert set(delta["nodes"]) == {"plan", "tiles"}, "children are counted in their fan-out"
        assert delta["job"]["nodes_finished"] == 1
        await stage.played.work({f"tiles__{number}": {} for number in range(3)})
        await stage.played.work({"last": {}})
        messages = await reader.rest()
        assert [event["seq"] for event in delta["events"]] + numbers_in(messages) == stage.numbers()[
            job["event_seq"] :
        ]
        assert messages[-1] == ("end", {"reason": "finished", "detail": "the job is COMPLETED"})
        assert messages[-2][1]["job"]["status"] == "COMPLETED"

    run(scenario())


def test_a_stream_resumes_after_every_number_without_gap_or_repeat(monkeypatch):
    monkeypatch.setattr(job_deltas, "MAX_EVENTS", 4)
    monkeypatch.setattr(job_streams, "POLL_SECONDS", 60.0)

    async def scenario() -> None:
        stage = await begin()
        await stage.finish()
        numbers = stage.numbers()
        assert len(numbers) > 12
        for after in numbers[:-1]:
            messages = await (await stage.open(after)).rest()
            assert numbers_in(messages) == numbers[after:]
            assert [kind for kind, _ in messages] == ["delta"] * ((len(numbers) - after + 3) // 4) + ["end"]
        for after, kinds in ((numbers[-1], ["end"]), (numbers[-1] + 1, ["snapshot", "end"])):
            assert [kind for kind, _ in await (await stage.open(after)).rest()] == kinds

    run(scenario())


def test_readers_that_wake_together_are_read_for_together_and_share_a_message(monkeypatch):
    reads: list[int] = []
    events = MemoryJobFeed.events

    async def count(self: MemoryJobFeed, positions: Any, *, limit: int) -> Any:
        reads.append(len(positions))
        return await events(self, positions, limit=limit)

    monkeypatch.setattr(MemoryJobFeed, "events", count)
    monkeypatch.setattr(job_streams, "POLL_SECONDS", 60.0)

    async def scenario() -> None:
        stage = await begin()
        others = [
            await Played.begin(stage.world, FLOW, stage.played.orchestrator, token="") for _ in range(4)
        ]
        readers = [await stage.open() for _ in range(3)] + [
            await stage.open(job_id=other.job_id) for other in others
        ]
        for reader in readers:
            await reader.next("snapshot")
        waiting = [asyncio.ensure_future(reader.next()) for reader in readers]
        await until(lambda: bool(reads) and reads[-1] == len(others) + 1)
        reads.clear()
        for job in (stage.played, *others):
            stage.world.database.notify(f"turn {job.job_id}")
        await until(lambda: bool(reads))
        assert reads == [5], "three readers of one job and one of each other job: one read of five positions"
        for waiter in waiting:
            waiter.cancel()

    run(scenario())


def test_readers_at_the_same_position_get_the_same_encoded_message():
    async def scenario() -> None:
        stage = await begin()
        readers = [await stage.open() for _ in range(3)]
        for reader in readers:
            await reader.next("snapshot")
        waiting = [asyncio.ensure_future(reader.next("delta")) for reader in readers]
        await stage.played.work({"plan": {"items": [1]}})
        first, *more = [item for item, _ in await asyncio.gather(*waiting)]
        assert all(item is first for item in more)

    run(scenario())


def test_a_reader_that_does_not_come_back_delays_no_other_and_gets_one_larger_delta():
    async def scenario() -> None:
        stage = await begin()
        slow, quick = await stage.open(), await stage.open()
        _, job = await slow.next()
        await quick.next()
        await stage.finish()
        assert numbers_in(await quick.rest()) == stage.numbers()[job["event_seq"] :]
        messages = await slow.rest()
        assert [kind for kind, _ in messages] == ["delta", "end"]
        assert numbers_in(messages) == stage.numbers()[job["event_seq"] :]

    run(scenario())


def test_an_outage_of_the_database_leaves_no_gap(monkeypatch):
    is_down, failures = True, asyncio.Semaphore(0)
    events = MemoryJobFeed.events

    async def fail(self: MemoryJobFeed, positions: Any, *, limit: int) -> Any:
        if is_down:
            failures.release()
            raise DatabaseUnavailable("the connection to the database was lost")
        return await events(self, positions, limit=limit)

    monkeypatch.setattr(MemoryJobFeed, "events", fail)

    async def scenario() -> None:
        nonlocal is_down
        stage = await begin()
        reader = await stage.open()
        _, job = await reader.next()
        rest = asyncio.ensure_future(reader.rest())
        await stage.finish()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await failures.acquire()
            await failures.acquire()
        assert not rest.done()
        is_down = False
        assert numbers_in(await rest) == stage.numbers()[job["event_seq"] :]
        is_down = True
        monkeypatch.setattr(job_streams, "OUTAGE_SECONDS", 0.0)
        (last,) = await (await stage.open(1)).rest()
        assert (last[0], last[1]["reason"]) == ("end", "unavailable")

    run(scenario())


def test_a_secret_is_in_no_message():
    async def scenario() -> None:
        stage = await begin(token=SECRET)
        reader = await stage.open()
        waiting = asyncio.ensure_future(reader.rest())
        (task,) = await stage.played.worker.claim(1)
        progress = json.dumps({"current": 1, "total": 2, "message": f"with {SECRET}"})
        stage.world.database.queue[task.task_id].progress = progress
        tasks = await (await stage.open()).next("tasks")
        assert tasks[1]["tasks"][0]["progress"]["message"] == "with ***"
        job = stage.world.database.jobs[stage.job_id]
        stage.world.database.queue[task.task_id].worker_id = None
        await stage.played.work({"plan": PermanentError(f"cannot use {SECRET}")})
        assert SECRET in str(job.events[-2:]) or SECRET in str(job.nodes["plan"].row)
        messages = await waiting
        assert SECRET not in json.dumps(messages)
        assert "cannot use ***" in json.dumps(messages)

    run(scenario())


def test_what_runs_is_sent_when_it_changes():
    async def scenario() -> None:
        stage = await begin()
        reader = await stage.open()
        await reader.next("snapshot")
        (task,) = await stage.played.worker.claim(1)
        item, data = await reader.next("tasks")
        assert item.id is None
        assert [(shown["task_id"], shown["status"]) for shown in data["tasks"]] == [(task.task_id, "CLAIMED")]
        stage.world.database.queue[task.task_id].progress = json.dumps(
            {"current": 3, "total": 10, "message": ""}
        )
        _, data = await reader.next("tasks")
        assert data["tasks"][0]["progress"] == {"current": 3, "total": 10, "message": ""}

    run(scenario())


def test_a_job_that_cannot_be_shown_ends_its_own_stream_only(monkeypatch):
    async def scenario() -> None:
        stage = await begin()
        other = await Played.begin(stage.world, FLOW, stage.played.orchestrator, token="")

        def fail(record: Any, redact: Any) -> Any:
            assert record.job_id != other.job_id, "a bug"
            return redacted(record, redact)

        monkeypatch.setattr(job_deltas, "redacted", fail)
        reader, failing = await stage.open(1), await stage.open(1, other.job_id)
        (last,) = await failing.rest()
        assert (last[0], last[1]["reason"]) == ("end", "failed")
        await reader.next("delta")

    run(scenario())


def test_a_bug_in_the_loop_ends_the_streams_and_the_next_one_works(monkeypatch):
    async def scenario() -> None:
        stage = await begin()
        with monkeypatch.context() as patched:
            patched.setattr(MemoryJobFeed, "watch", None)
            (last,) = await (await stage.open(1)).rest()
            assert (last[0], last[1]["reason"]) == ("end", "failed")
        await (await stage.open(1)).next("delta")

    run(scenario())


def test_nothing_runs_without_readers():
    async def scenario() -> None:
        stage = await begin()
        reader = await stage.open(1)
        await reader.next("delta")
        assert len(asyncio.all_tasks()) == 2
        with contextlib.suppress(StopAsyncIteration):
            await reader.stream.aclose()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        assert not stage.world.database._listeners[f"turn {stage.job_id}"]

    run(scenario())
