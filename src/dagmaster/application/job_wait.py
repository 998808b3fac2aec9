"""Wait until a job has ended. A notification wakes the waiter: nothing is read meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from dagmaster.application.job_lookup import find_job
from dagmaster.ports.command_kinds import RUN_AGAIN

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.records.jobs import JobRecord

MAX_WAIT_SECONDS: Final = 60.0
"""How long a request may wait: less than proxies give a request that shows no sign of life."""
POLL_SECONDS: Final = 1.0
"""How often a job is read where no notification arrives."""
RECHECK_SECONDS: Final = 15.0
"""How often it is read where they do, in case one was lost."""


async def wait_for_end(app: Application, job_id: str | None, *, wait_seconds: float) -> None:
    """Return when a job has ended, and no command waits after which it runs again; or after some time."""
    record = await find_job(app, job_id)
    if await _has_ended(app, record):
        return
    deadline = time.monotonic() + wait_seconds
    async with app.read.subscribe(record.job_id) as subscription:
        interval = RECHECK_SECONDS if subscription.has_notifications else POLL_SECONDS
        while True:
            # What happened before the subscription is found by this.
            current = await app.read.job(record.job_id)
            seconds = deadline - time.monotonic()
            if current is None or seconds <= 0 or await _has_ended(app, current):
                return
            await subscription.wait(min(seconds, interval))


async def _has_ended(app: Application, record: JobRecord) -> bool:
    if not record.is_finished:
        return False
    commands = await app.read.pending_commands(record.job_id)
    return not any(command.kind in RUN_AGAIN for command in commands)
