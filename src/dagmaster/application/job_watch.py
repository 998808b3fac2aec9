"""Watch a job: its view again whenever it has changed, until it has finished.

A notification ends the wait early; polling is the fallback. A read that took long is followed by a longer
pause, so that a job of 100,000 nodes does not pay for being watched.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from dagmaster.application.job_lookup import find_job
from dagmaster.application.job_snapshot import load_snapshot
from dagmaster.application.queries.job_detail import detail_view, snapshot_view
from dagmaster.errors import DatabaseUnavailable
from dagmaster.host.connection_backoff import ConnectionBackoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.application.context import Application
    from dagmaster.application.job_snapshot import JobSnapshot
    from dagmaster.application.views.jobs import JobDetailView

POLL_SECONDS: Final = 0.25
# Reads take at most one part in five of the time. The pause is bounded: a read may have waited for a database
# that is back now, and the next one is quick.
_PAUSE_FACTOR: Final = 4.0
_MAX_PAUSE_SECONDS: Final = 3.0
# What comes without an event (live services, progress of handlers) is read at least this often.
_STALE_SECONDS: Final = 1.0


async def watch_job(app: Application, job_id: str | None) -> AsyncGenerator[JobDetailView]:
    """Yield a job's view whenever it has changed. The last one has its result, unless the job was removed.

    A finished job with a resume that waits for an orchestrator is watched on. An outage of the database is
    waited out.
    """
    record = await find_job(app, job_id)
    graph = await app.outlines.of_job(record)
    backoff = ConnectionBackoff(logging.getLogger("dagmaster"))
    snapshot: JobSnapshot | None = None
    read_at = 0.0
    async with app.read.subscribe(record.job_id) as subscription:
        while True:
            began, view = time.monotonic(), None
            pause = POLL_SECONDS
            try:
                current = await app.read.job(record.job_id)
                if current is None:
                    return
                is_new = (
                    snapshot is None or current.event_seq != snapshot.job.event_seq or current.is_finished
                )
                if is_new or began - read_at > _STALE_SECONDS:
                    snapshot = await load_snapshot(app, current, graph, before=snapshot)
                    view = (
                        await detail_view(app, snapshot) if current.is_finished else snapshot_view(snapshot)
                    )
                    read_at = time.monotonic()
                    pause = pause_after(read_at - began)
                backoff.on_success()
            except DatabaseUnavailable as error:
                pause = backoff.on_failure(error)
            if view is not None:
                yield view
                if view.is_settled:
                    return
            await subscription.wait(pause)


def pause_after(read_seconds: float) -> float:
    return min(max(POLL_SECONDS, read_seconds * _PAUSE_FACTOR), _MAX_PAUSE_SECONDS)
