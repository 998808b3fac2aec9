"""Live streams of jobs: one subscription and one loop for all readers of a process.

The position of a reader is a number of its job's audit log, which has no gaps. So there is nothing to queue:
a reader that is ready gets the events after its position, however many came since; for one that is not ready
nothing is read. Readers that wake up together are read for together, one query for each kind of record, and
readers at the same position get the same encoded message. Without readers nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.application.job_deltas import DeltaReader, JobContext, finish
from dagmaster.application.job_lookup import SHOWN_BYTES
from dagmaster.application.job_snapshot import load_snapshot
from dagmaster.application.queries.job_detail import detail_view
from dagmaster.application.stream_messages import (
    NO_TASKS,
    EndReason,
    MessageType,
    StreamMessage,
    end,
    message,
)
from dagmaster.errors import DatabaseUnavailable
from dagmaster.host.clocks import wait_at_most
from dagmaster.host.connection_backoff import ConnectionBackoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.application.context import Application
    from dagmaster.ports.job_feed import JobFeed
    from dagmaster.records.jobs import JobRecord

COALESCE_SECONDS: Final = 0.05
"""The least time between two reads: what happens meanwhile is one message."""
POLL_SECONDS: Final = 1.0
"""How often every watched job is read, whatever notifications come."""
UNNOTIFIED_POLL_SECONDS: Final = 0.25
"""The same where no notification can come."""
TASKS_SECONDS: Final = 1.0
OUTAGE_SECONDS: Final = 60.0
"""How long an outage of the database is waited out."""
# A delta counts the nodes of its job, and all streams wait for it: a job of 100,000 nodes has two deltas a
# second.
_PAUSE_PER_NODE_SECONDS: Final = 5e-6
_TASKS_PAUSE_FACTOR: Final = 4.0
_LOGGER = logging.getLogger("dagmaster.streams")


@dataclass(slots=True, eq=False)
class Reader:
    """One reader of a job. It is ready while it waits for `delivery`."""

    job: WatchedJob
    after: int
    delivery: asyncio.Future[list[StreamMessage]] | None = None
    tasks: str = NO_TASKS
    """The data of the last message about tasks."""
    ending: StreamMessage | None = None
    """What the reader gets next, whatever it waits for."""

    @property
    def is_ready(self) -> bool:
        return self.delivery is not None and not self.delivery.done()

    def deliver(self, messages: list[StreamMessage]) -> None:
        """Hand messages over; the reader is not ready until it comes back."""
        if self.delivery is not None and not self.delivery.done():
            self.delivery.set_result(messages)

    def end(self, reason: EndReason, detail: str) -> None:
        """End the stream now, or when the reader comes back."""
        self.ending = end(reason, detail, self.after)
        self.deliver([self.ending])


@dataclass(slots=True, eq=False)
class WatchedJob:
    """A job that has readers."""

    context: JobContext
    readers: set[Reader] = field(default_factory=set)
    pause_seconds: float = 0.0
    read_again_at: float = 0.0
    tasks_again_at: float = 0.0


class JobStreams:
    """The streams of one process."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._jobs: dict[str, WatchedJob] = {}
        self._due: set[Reader] = set()
        self._wakeup = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def stream(self, record: JobRecord, after: int | None = None) -> AsyncGenerator[StreamMessage]:
        """Yield a job as a snapshot and deltas until it ends; with `after`, only deltas after a number."""
        context = await JobContext.load(self._app, record)
        if after is None or after > record.event_seq:
            snapshot = await load_snapshot(self._app, record, context.graph)
            view = await detail_view(self._app, snapshot, max_bytes=SHOWN_BYTES)
            yield message(MessageType.SNAPSHOT, view.to_dict(), record.event_seq)
            after = record.event_seq
        if record.is_finished and after == record.event_seq:
            yield finish(record)
            return
        async with contextlib.aclosing(self._follow(context, after)) as items:
            async for item in items:
                yield item

    async def _follow(self, context: JobContext, after: int) -> AsyncGenerator[StreamMessage]:
        reader = self._register(context, after)
        try:
            while True:
                for item in await self._next(reader):
                    yield item
                    if item.type is MessageType.END:
                        return
        finally:
            self._unregister(reader)

    def _register(self, context: JobContext, after: int) -> Reader:
        job = self._jobs.setdefault(context.job_id, WatchedJob(context))
        reader = Reader(job, after)
        job.readers.add(reader)
        self._due.add(reader)
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        return reader

    def _unregister(self, reader: Reader) -> None:
        self._due.discard(reader)
        reader.job.readers.discard(reader)
        job_id = reader.job.context.job_id
        if not reader.job.readers and self._jobs.get(job_id) is reader.job:
            del self._jobs[job_id]
            self._wakeup.set()

    async def _next(self, reader: Reader) -> list[StreamMessage]:
        if reader.ending is not None:
            return [reader.ending]
        reader.delivery = asyncio.get_running_loop().create_future()
        if reader in self._due:
            self._wakeup.set()
        return await reader.delivery

    def _on_change(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            self._due |= job.readers
            self._wakeup.set()

    # ── The loop ──

    async def _run(self) -> None:
        try:
            async with self._app.read.feed(self._on_change) as feed:
                await self._serve(feed)
        except Exception:
            _LOGGER.exception("live streams failed; readers have to connect again")
            self._end_all(EndReason.FAILED, "the server failed; its log has the reason")
        finally:
            self._loop = None
            if self._jobs:
                # A reader came after the last look.
                self._loop = asyncio.create_task(self._run())

    async def _serve(self, feed: JobFeed) -> None:
        deltas = DeltaReader(self._app, feed)
        backoff = ConnectionBackoff(logging.getLogger("dagmaster"))
        poll_seconds = POLL_SECONDS if feed.has_notifications else UNNOTIFIED_POLL_SECONDS
        poll_at, reachable_at = 0.0, time.monotonic()
        watched: set[str] = set()
        while self._jobs:
            self._wakeup.clear()
            pause = COALESCE_SECONDS
            try:
                now = time.monotonic()
                if now >= poll_at:
                    self._due.update(*(job.readers for job in self._jobs.values()))
                if now >= poll_at or not self._jobs.keys() <= watched:
                    watched = set(self._jobs)
                    await feed.watch(watched)
                await self._read_due(deltas, now)
                if now >= poll_at:
                    await self._read_tasks(deltas, now)
                    poll_at = now + poll_seconds
                backoff.on_success()
                reachable_at = time.monotonic()
            except DatabaseUnavailable as error:
                pause = max(backoff.on_failure(error), COALESCE_SECONDS)
                poll_at = 0.0
                if time.monotonic() - reachable_at > OUTAGE_SECONDS:
                    self._end_all(EndReason.UNAVAILABLE, "the database is not available")
            await asyncio.sleep(pause)
            await self._wait(poll_at)

    async def _wait(self, poll_at: float) -> None:
        """Wait until a reader can be read for, or until the next poll."""
        now = time.monotonic()
        paused = [reader.job.read_again_at for reader in self._due if reader.is_ready]
        until = min([poll_at, *paused])
        if until > now and not self._wakeup.is_set():
            await wait_at_most(self._wakeup, until - now)

    async def _read_due(self, deltas: DeltaReader, now: float) -> None:
        """Read once for all readers that are due and ready, and hand over what is new."""
        groups: dict[tuple[str, int], list[Reader]] = {}
        for reader in self._due:
            if reader.is_ready and reader.job.read_again_at <= now:
                groups.setdefault((reader.job.context.job_id, reader.after), []).append(reader)
        if not groups:
            return
        # What changes while it is read makes a reader due again. After an outage all are due.
        self._due.difference_update(*groups.values())
        read = await deltas.read({position: readers[0].job.context for position, readers in groups.items()})
        for position, delta in read.items():
            for reader in groups[position]:
                reader.after = delta.last
                reader.deliver(delta.messages)
                job = reader.job
                job.pause_seconds = delta.nodes_total * _PAUSE_PER_NODE_SECONDS
                job.read_again_at = now + job.pause_seconds
                if delta.has_more and reader in job.readers:
                    self._due.add(reader)

    async def _read_tasks(self, deltas: DeltaReader, now: float) -> None:
        """Hand over what runs now, where that has changed."""
        jobs = [job for job in self._jobs.values() if job.tasks_again_at <= now]
        for job, item in zip(jobs, await deltas.read_tasks([job.context for job in jobs]), strict=True):
            job.tasks_again_at = now + max(TASKS_SECONDS, job.pause_seconds * _TASKS_PAUSE_FACTOR)
            for reader in job.readers:
                if reader.is_ready and item.data != reader.tasks:
                    reader.tasks = item.data
                    reader.deliver([item])

    def _end_all(self, reason: EndReason, detail: str) -> None:
        for job in self._jobs.values():
            for reader in job.readers:
                reader.end(reason, detail)
        self._jobs.clear()
        self._due.clear()
