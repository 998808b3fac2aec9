"""Follow a job over HTTP until it has finished: its view, its events, its logs."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from dagmaster.connection_backoff import ConnectionBackoff
from dagmaster.errors import Category, DagmasterError, JobNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.application.views.events_and_logs import EventView, LogView
    from dagmaster.application.views.jobs import JobDetailView
    from dagmaster.client.job_methods import JobMethods

POLL_SECONDS: Final = 0.25
_MAX_POLL_SECONDS: Final = 2.0
# What comes without an event (live services, progress of handlers) is read at least this often.
_STALE_SECONDS: Final = 1.0
_PAUSE_FACTOR: Final = 4.0
_PAGE: Final = 1_000


async def wait(client: JobMethods, job_id: str, timeout_seconds: float | None) -> JobDetailView:
    """Wait until a job has finished, and return it."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            progress = await client.job_progress(job_id)
            if progress.is_finished:
                return await client.job_detail(progress.job_id)
            await asyncio.sleep(POLL_SECONDS)


async def watch_job(client: JobMethods, job_id: str | None) -> AsyncGenerator[JobDetailView, None]:
    """Yield a job's view whenever it has changed. An outage of the server is waited out."""
    job_id = (await client.job_progress(job_id)).job_id
    backoff = ConnectionBackoff(logging.getLogger("dagmaster"))
    seq, read_at = -1, 0.0
    while True:
        began, view = time.monotonic(), None
        try:
            progress = await client.job_progress(job_id)
            if progress.event_seq != seq or progress.is_finished or began - read_at > _STALE_SECONDS:
                view = await client.job_detail(job_id)
                seq, read_at = view.event_seq, time.monotonic()
            backoff.on_success()
            pause = min(max(POLL_SECONDS, (time.monotonic() - began) * _PAUSE_FACTOR), _MAX_POLL_SECONDS)
        except JobNotFound:
            # It was removed.
            return
        except DagmasterError as error:
            if error.category is not Category.UNAVAILABLE:
                raise
            pause = backoff.on_failure(error)
        if view is not None:
            yield view
            if view.is_finished:
                return
        await asyncio.sleep(pause)


async def follow_events(
    client: JobMethods, job_id: str | None, *, after: int, node_id: str | None, follow: bool
) -> AsyncGenerator[EventView, None]:
    """Yield the events of a job in order and without gaps."""
    while True:
        # Read before the events: what a finished job has to say is then complete.
        progress = await client.job_progress(job_id)
        job_id = progress.job_id
        while True:
            page = await client.list_events(job_id, after=after, limit=_PAGE)
            for event in page.items:
                after = event.seq
                if node_id in (None, event.node_id):
                    yield event
            if page.next_cursor is None:
                break
        if not follow or progress.is_finished:
            return
        await asyncio.sleep(POLL_SECONDS)


async def follow_logs(
    client: JobMethods, job_id: str | None, *, node_id: str | None, attempt: int | None, follow: bool
) -> AsyncGenerator[LogView, None]:
    """Yield chunks of a job's logs as they are written.

    A page that is not full has no cursor: it is read again, and begins with what it had before.
    """
    cursor, seen = None, 0
    while True:
        progress = await client.job_progress(job_id)
        job_id = progress.job_id
        while True:
            page = await client.list_logs(job_id, node_id=node_id, attempt=attempt, cursor=cursor, limit=_PAGE)
            for log in page.items[seen:]:
                yield log
            seen = len(page.items)
            if page.next_cursor is None:
                break
            cursor, seen = page.next_cursor, 0
        if not follow or progress.is_finished:
            return
        await asyncio.sleep(POLL_SECONDS)
