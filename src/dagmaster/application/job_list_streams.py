"""Live streams of lists of jobs, for dashboards: a snapshot, then what changed in it, once a second.

Readers of the same list share its reads and its messages. Events of different jobs have no common order, so
there is no position to resume from: every stream begins with a snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.job_watch import pause_after
from dagmaster.application.queries.jobs import list_jobs
from dagmaster.application.stream_messages import EndReason, MessageType, StreamMessage, end, message
from dagmaster.errors import DatabaseUnavailable
from dagmaster.host.clocks import wait_at_most
from dagmaster.host.connection_backoff import ConnectionBackoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.application.context import Application
    from dagmaster.ports.job_filter import JobFilter

LIST_SECONDS: Final = 1.0
"""The least time between two reads of a list."""
_VOLATILE: Final = ("duration_seconds", "owner")
_LOGGER = logging.getLogger("dagmaster.streams")

_Jobs = dict[str, dict[str, Any]]


@dataclass(slots=True, eq=False)
class LiveList:
    """A list that has readers: its jobs by id, newest first, as they were read last."""

    job_filter: JobFilter
    limit: int
    readers: int = 0
    jobs: _Jobs | None = None
    ending: StreamMessage | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last reader has left."""
    loop: asyncio.Task[None] | None = None
    last_delta: tuple[_Jobs, StreamMessage | None] | None = None

    def delta(self, seen: _Jobs) -> StreamMessage | None:
        """Return what changed since a reader's jobs; None if nothing did.

        Readers that saw the same share it.
        """
        if self.last_delta is None or self.last_delta[0] is not seen:
            self.last_delta = (seen, _delta(seen, self.jobs or {}))
        return self.last_delta[1]


class JobListStreams:
    """The lists that are streamed by one process."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._lists: dict[tuple[JobFilter, int], LiveList] = {}

    async def stream(self, job_filter: JobFilter, *, limit: int) -> AsyncGenerator[StreamMessage]:
        """Yield the newest jobs that match, and then every change of them, without end."""
        key = (job_filter, limit)
        live = self._lists.setdefault(key, LiveList(job_filter, limit))
        live.readers += 1
        if live.loop is None:
            live.loop = asyncio.create_task(self._read(live))
        try:
            seen: _Jobs | None = None
            while True:
                if live.ending is not None:
                    yield live.ending
                    return
                # Taken before the yield: what changes while the reader is busy is in its next delta.
                changed, jobs = live.changed, live.jobs
                if jobs is not None:
                    item = _snapshot(jobs) if seen is None else live.delta(seen)
                    seen = jobs
                    if item is not None:
                        yield item
                await changed.wait()
        finally:
            live.readers -= 1
            if not live.readers:
                # Not cancelled: a read that is cancelled takes its connection along.
                live.is_left.set()
                if self._lists.get(key) is live:
                    del self._lists[key]

    async def _read(self, live: LiveList) -> None:
        backoff = ConnectionBackoff(logging.getLogger("dagmaster"))
        while live.ending is None and not live.is_left.is_set():
            began = time.monotonic()
            pause = LIST_SECONDS
            try:
                page = await list_jobs(self._app, live.job_filter, limit=live.limit)
                live.jobs = {view.job_id: view.to_dict() for view in page.items}
                backoff.on_success()
                pause = max(pause, pause_after(time.monotonic() - began))
            except DatabaseUnavailable as error:
                pause = backoff.on_failure(error)
            except Exception:
                _LOGGER.exception("the stream of a list of jobs failed; readers have to connect again")
                live.ending = end(EndReason.FAILED, "the server failed; its log has the reason")
            # A new event for each change: readers that are not back yet do not miss it.
            live.changed.set()
            live.changed = asyncio.Event()
            await wait_at_most(live.is_left, pause)


def _snapshot(jobs: _Jobs) -> StreamMessage:
    return message(MessageType.SNAPSHOT, {"jobs": list(jobs.values())})


def _delta(before: _Jobs, jobs: _Jobs) -> StreamMessage | None:
    changed = [job for job_id, job in jobs.items() if _stable(job) != _stable(before.get(job_id))]
    removed = [job_id for job_id in before if job_id not in jobs]
    return message(MessageType.DELTA, {"jobs": changed, "removed": removed}) if changed or removed else None


def _stable(job: dict[str, Any] | None) -> tuple[str | None, dict[str, Any]] | None:
    """Return what tells whether a job has changed: all but its duration and its owner's heartbeat."""
    if job is None:
        return None
    owner = None if job["owner"] is None else str(job["owner"]["orchestrator_id"])
    return owner, {name: value for name, value in job.items() if name not in _VOLATILE}
