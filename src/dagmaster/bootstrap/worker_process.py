"""What a process does that is a worker and nothing else: it ends if it hangs, and with what it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from dagmaster.settings import Settings

_INIT: Final = 1


class _Runnable(Protocol):
    async def run(self) -> None:
        """Run until stopped."""


async def run_worker_process(worker: _Runnable, settings: Settings) -> None:
    """Run a worker; then end the child processes that async and thread handlers have left.

    Those of plain functions end with their tasks.
    """
    from dagmaster.worker.lock_watchdog import watch_lock
    from dagmaster.worker.process_sweeper import end_children

    seconds = max(settings.blocked_seconds, settings.worker_lease_seconds)
    watching = asyncio.create_task(watch_lock(seconds))
    try:
        await worker.run()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        # The first process of a container adopts what others started, such as an embedded server; all of it
        # ends with the container.
        if os.getpid() != _INIT:
            end_children(frozenset())
