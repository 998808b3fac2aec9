"""The logs of a job and its child jobs as one stream, each chunk with its node's path (`sub/fetch`)."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.application.queries.events_and_logs import follow_logs
from dagmaster.application.queries.jobs import list_jobs
from dagmaster.errors import JobNotFound
from dagmaster.ports.job_filter import JobFilter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.application.views import JobRecord, LogView
    from dagmaster.client.system import System

MAX_CHILD_JOBS: Final = 500
"""How many child jobs are read, of all levels together."""
MAX_STREAMS: Final = 50
"""How many jobs are followed at the same time: a client has 100 connections to a server."""
LOOK_SECONDS: Final = 1.0
"""How long a follower waits before it looks for new child jobs again; longer, if that takes long."""
SILENT_SECONDS: Final = 5.0
"""How long a follower waits for child jobs that outlive the job, as those that are being cancelled."""
_PAGE: Final = 100
# To look for child jobs takes at most one part in five of the time.
_PAUSE_FACTOR: Final = 4.0


class PathLog(NamedTuple):
    """A chunk, and the path of its node from the job on."""

    path: str
    log: LogView


class _Source(NamedTuple):
    """A job of the tree. `prefix`: the path of its nodes, without their ids."""

    job_id: str
    prefix: str


class JobTreeLogs:
    """Reads the logs of a job and of its child jobs. `node_id`: only of this node and its child job."""

    def __init__(
        self, system: System, job_id: str, *, node_id: str | None = None, attempt: int | None = None
    ) -> None:
        self._system = system
        self._root = _Source(job_id, "")
        self._node_id = node_id
        self._attempt = attempt
        self._known = {job_id: self._root}
        # Those that may get further child jobs.
        self._unfinished = {job_id: self._root}
        self._is_over = asyncio.Event()
        self.has_more = False
        """Whether there are more child jobs than are read."""

    async def read(self) -> AsyncGenerator[PathLog]:
        """Yield what is written, in the order of time."""
        sources = [self._root, *await self._find_children()]
        logs = [self._logs(source, follow=False) for source in sources]
        try:
            first = [(number, await anext(one, None)) for number, one in enumerate(logs)]
            heap = [(item.log.at, number, item) for number, item in first if item is not None]
            heapq.heapify(heap)
            while heap:
                _, number, item = heap[0]
                yield item
                upcoming = await anext(logs[number], None)
                if upcoming is None:
                    heapq.heappop(heap)
                else:
                    heapq.heapreplace(heap, (upcoming.log.at, number, upcoming))
        finally:
            for one in logs:
                await one.aclose()

    async def follow(self) -> AsyncGenerator[PathLog]:
        """Yield chunks as they are written until the job has finished; child jobs may start meanwhile."""
        streams = _Streams()
        waiting = deque([self._root])
        try:
            streams.add(self._new_children())
            while waiting or streams:
                while waiting and len(streams) < MAX_STREAMS:
                    streams.add(self._logs(waiting.popleft(), follow=True))
                items = await streams.next_items(SILENT_SECONDS if self._is_over.is_set() else None)
                if items is None:
                    return
                waiting += [item for item in items if isinstance(item, _Source)]
                for item in items:
                    if isinstance(item, PathLog):
                        yield item
        finally:
            await streams.close()

    async def _logs(self, source: _Source, *, follow: bool) -> AsyncGenerator[PathLog]:
        is_root = source is self._root
        # Nodes of child jobs have their own attempts.
        node_id, attempt = (self._node_id, self._attempt) if is_root else (None, None)
        chunks = self._system.call(
            follow_logs, source.job_id, node_id=node_id, attempt=attempt, follow=follow
        )
        # A child job may have been removed meanwhile.
        with contextlib.nullcontext() if is_root else contextlib.suppress(JobNotFound):
            async with contextlib.aclosing(chunks):
                async for log in chunks:
                    yield PathLog(f"{source.prefix}{log.node_id}", log)
        if is_root:
            self._is_over.set()

    async def _new_children(self) -> AsyncGenerator[_Source]:
        """Yield child jobs as they come, until the job has finished."""
        while True:
            is_over, began = self._is_over.is_set(), time.monotonic()
            for child in await self._find_children():
                yield child
            if is_over:
                return
            pause = max(LOOK_SECONDS, (time.monotonic() - began) * _PAUSE_FACTOR)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._is_over.wait()

    async def _find_children(self) -> list[_Source]:
        """Return the child jobs of all levels that were not known before."""
        known = len(self._known)
        pending = deque(self._unfinished.values())
        while pending:
            parent = pending.popleft()
            for view in await self._list_children(parent.job_id):
                node_id = view.parent_node_id or ""
                if parent is self._root and self._node_id not in (None, node_id):
                    continue
                child = self._known.get(view.job_id)
                if child is None:
                    if len(self._known) > MAX_CHILD_JOBS:
                        self.has_more = True
                        break
                    child = self._known[view.job_id] = _Source(view.job_id, f"{parent.prefix}{node_id}/")
                    pending.append(child)
                if view.is_finished:
                    self._unfinished.pop(view.job_id, None)
                else:
                    self._unfinished[view.job_id] = child
        return list(self._known.values())[known:]

    async def _list_children(self, job_id: str) -> list[JobRecord]:
        """Return the child jobs of a job, oldest first; of very many, the newest."""
        views: list[JobRecord] = []
        cursor = None
        while True:
            children = JobFilter(parent_job_id=job_id)
            page = await self._system.call(list_jobs, children, cursor=cursor, limit=_PAGE)
            views += page.items
            cursor = page.next_cursor
            if cursor is None or len(views) > MAX_CHILD_JOBS:
                return views[::-1]


class _Streams:
    """What comes next from each of several generators."""

    def __init__(self) -> None:
        self._upcoming: dict[asyncio.Future[PathLog | _Source | None], AsyncGenerator[PathLog | _Source]] = {}

    def __len__(self) -> int:
        return len(self._upcoming)

    def add(self, stream: AsyncGenerator[PathLog | _Source]) -> None:
        self._upcoming[asyncio.ensure_future(anext(stream, None))] = stream

    async def next_items(self, timeout_seconds: float | None) -> list[PathLog | _Source] | None:
        """Return what came from any of them; None if nothing came in this time."""
        done, _ = await asyncio.wait(
            self._upcoming, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        items: list[PathLog | _Source] = []
        for task in done:
            item = task.result()
            stream = self._upcoming.pop(task)
            if item is not None:
                items.append(item)
                self.add(stream)
        return items if done else None

    async def close(self) -> None:
        upcoming, self._upcoming = self._upcoming, {}
        for task in upcoming:
            task.cancel()
        await asyncio.gather(*upcoming, return_exceptions=True)
        for stream in upcoming.values():
            await stream.aclose()
