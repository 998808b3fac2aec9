"""Follow a job over HTTP until it has finished: its view, its events, its logs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from dagmaster.application.views.events_and_logs import EventView, LogView
from dagmaster.client.event_streams import read_stream
from dagmaster.client.request_bodies import job_query
from dagmaster.errors import Category, DagmasterError, JobNotFound
from dagmaster.host.connection_backoff import ConnectionBackoff
from dagmaster.records.jobs import JobRecord
from dagmaster.records.parsing import parse_record
from dagmaster.records.record import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from dagmaster.application.views.jobs import JobDetailView, JobProgressView
    from dagmaster.client.job_methods import JobMethods
    from dagmaster.ports.job_filter import JobFilter
    from dagmaster.records.page import Page

V = TypeVar("V", bound=Record)
POLL_SECONDS: Final = 0.5
"""How often a job is read where no stream can be opened."""
_SAFETY_SECONDS: Final = 10.0
_LONG_POLL_SECONDS: Final = 20.0
"""How long the server waits for the end of a job where no stream can be opened: proxies cut off later."""
_STATE_SECONDS: Final = 1.0
"""How long to read the status of a job that has not finished in time."""
# What comes without an event (live services) is read at least this often.
_STALE_SECONDS: Final = 1.0
_MIN_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 3.0
_PAUSE_FACTOR: Final = 4.0
_PAGE: Final = 1_000
_MAX_SEEN: Final = 10_000


async def wait(client: JobMethods, job_id: str | None, timeout_seconds: float | None) -> JobDetailView:
    """Wait until a job has finished; return it, or raise `TimeoutError` with its status."""
    limit, waited_for = asyncio.timeout(timeout_seconds), job_id
    try:
        async with limit:
            progress = await client.job_progress(job_id)
            # The last job may be another one later.
            waited_for = progress.job_id
            return await _wait_for_end(client, progress)
    except TimeoutError:
        if not limit.expired():
            raise
        state = await _read_state(client, waited_for)
        raise TimeoutError(f"{state} after {timeout_seconds:g} s: it has not finished") from None


async def _wait_for_end(client: JobMethods, progress: JobProgressView) -> JobDetailView:
    async with job_changes(client, progress.job_id, progress.event_seq) as changes:
        while True:
            while not progress.is_finished:
                if changes.has_stream:
                    await changes.wait(_SAFETY_SECONDS, until_end=True)
                elif not await _wait_there(client, progress.job_id):
                    await changes.wait(POLL_SECONDS)
                progress = await client.job_progress(progress.job_id)
            view = await client.job_detail(progress.job_id)
            if view.is_settled:
                return view
            # A resume waits for an orchestrator.
            await asyncio.sleep(POLL_SECONDS)
            progress = await client.job_progress(progress.job_id)


async def _wait_there(client: JobMethods, job_id: str) -> bool:
    """Let the server wait for the end of a job for a while; return whether it can."""
    try:
        await client.job_detail(job_id, wait_seconds=_LONG_POLL_SECONDS)
    except DagmasterError as error:
        # A server of an older version does not know the parameter.
        if error.category is not Category.INVALID:
            raise
        return False
    return True


async def _read_state(client: JobMethods, job_id: str | None) -> str:
    with contextlib.suppress(DagmasterError, TimeoutError):
        async with asyncio.timeout(_STATE_SECONDS):
            progress = await client.job_progress(job_id)
            return f"job {progress.job_id} is {progress.status}"
    return f"the server does not answer about job {job_id or 'last'}"


async def watch_job(client: JobMethods, job_id: str | None) -> AsyncGenerator[JobDetailView, None]:
    """Yield a job's view whenever it has changed. An outage of the server is waited out."""
    view = await client.job_detail(job_id)
    yield view
    backoff = ConnectionBackoff(logging.getLogger("dagmaster"), remote="server")
    pause = _MIN_PAUSE_SECONDS
    async with job_changes(client, view.job_id, view.event_seq) as changes:
        while not view.is_settled:
            # Reads take at most one part in five of the time.
            await asyncio.sleep(pause)
            await changes.wait(_STALE_SECONDS)
            began = time.monotonic()
            try:
                view = await client.job_detail(view.job_id)
            except JobNotFound:
                # It was removed.
                return
            except DagmasterError as error:
                if error.category is not Category.UNAVAILABLE:
                    raise
                pause = backoff.on_failure(error)
                continue
            backoff.on_success()
            yield view
            pause = min(
                max(_MIN_PAUSE_SECONDS, (time.monotonic() - began) * _PAUSE_FACTOR), _MAX_PAUSE_SECONDS
            )


async def watch_jobs(
    client: JobMethods, job_filter: JobFilter | None, limit: int
) -> AsyncGenerator[tuple[JobRecord, ...], None]:
    """Yield the newest jobs that match whenever one of them has changed."""
    jobs: dict[str, JobRecord] = {}
    messages = read_stream(client.connection, "stream", params={**job_query(job_filter), "limit": limit})
    async with contextlib.aclosing(messages):
        async for message in messages:
            if message.type not in ("snapshot", "delta"):
                continue
            changed = [
                parse_record(JobRecord, document, read_at=time.time()) for document in message.data["jobs"]
            ]
            if message.type == "snapshot":
                jobs.clear()
            for removed in message.data.get("removed", ()):
                jobs.pop(removed, None)
            jobs.update({job.job_id: job for job in changed})
            # An id begins with its time: the newest has the greatest number.
            yield tuple(sorted(jobs.values(), key=lambda job: -int(job.job_id)))


class JobChanges:
    """Wakes a reader when a job may have changed.

    Without a stream, it does so as often as a job is polled.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._has_stream = True

    @property
    def has_stream(self) -> bool:
        return self._has_stream

    async def wait(self, timeout_seconds: float, *, until_end: bool = False) -> None:
        """Wait for the next change, with `until_end` for the last one; at most so long."""
        timeout = timeout_seconds if self._has_stream else min(timeout_seconds, POLL_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()
                while until_end and self._has_stream:
                    self._changed.clear()
                    await self._changed.wait()
        self._changed.clear()

    async def read(self, client: JobMethods, job_id: str, seq: int) -> None:
        """Read the stream of a job after an event."""
        # A proxy may allow no streams; what else is wrong is raised by the requests of the reader.
        with contextlib.suppress(DagmasterError):
            async for _ in read_stream(client.connection, "jobs", job_id, "stream", last_id=str(seq)):
                self._changed.set()
        self._has_stream = False
        self._changed.set()


@contextlib.asynccontextmanager
async def job_changes(client: JobMethods, job_id: str, seq: int) -> AsyncIterator[JobChanges]:
    """Follow the changes of a job after an event."""
    changes = JobChanges()
    reading = asyncio.create_task(changes.read(client, job_id, seq))
    try:
        yield changes
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def follow_events(
    client: JobMethods, job_id: str | None, *, after: int, node_id: str | None, follow: bool
) -> AsyncGenerator[EventView, None]:
    """Yield the events of a job in order and without gaps."""
    job_id = (await client.job_progress(job_id)).job_id
    if node_id is not None:
        # A node that the job does not have is an error, as without a server.
        await client.node_detail(job_id, node_id)
    if not follow:
        async for event in _all_items(partial(client.list_events, job_id, after=after, limit=_PAGE)):
            if node_id in (None, event.node_id):
                yield event
        return
    messages = read_stream(client.connection, "jobs", job_id, "stream", last_id=str(after))
    async with contextlib.aclosing(messages):
        async for message in messages:
            for document in message.data["events"] if message.type == "delta" else ():
                event = parse_record(EventView, document, read_at=time.time())
                # A job that has not reached `after` begins with a snapshot, and then with earlier events.
                if event.seq > after and node_id in (None, event.node_id):
                    yield event


async def follow_logs(
    client: JobMethods, job_id: str | None, *, node_id: str | None, attempt: int | None, follow: bool
) -> AsyncGenerator[LogView, None]:
    """Yield chunks of a job's logs as they are written."""
    job_id = (await client.job_progress(job_id)).job_id
    if not follow:
        async for log in _all_items(
            partial(client.list_logs, job_id, node_id=node_id, attempt=attempt, limit=_PAGE)
        ):
            yield log
        return
    params = {"follow": True, "node_id": node_id, "attempt": attempt}
    # Chunks of the last two seconds come again after a break, with the same id.
    seen: dict[str | None, None] = {}
    messages = read_stream(client.connection, "jobs", job_id, "logs", params=params)
    async with contextlib.aclosing(messages):
        async for message in messages:
            if message.type == "log" and message.id not in seen:
                seen[message.id] = None
                if len(seen) > _MAX_SEEN:
                    del seen[next(iter(seen))]
                yield parse_record(LogView, message.data, read_at=time.time())


async def _all_items(read_page: Callable[..., Awaitable[Page[V]]]) -> AsyncGenerator[V, None]:
    cursor = None
    while True:
        page = await read_page(cursor=cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
