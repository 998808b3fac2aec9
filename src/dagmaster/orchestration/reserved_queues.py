"""A queue for jobs that only this process runs: orchestrators leave its jobs alone while a worker of it is alive.

It is what a local run has (`ports.run_queues`), before there is a worker that runs tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING

from dagmaster.errors import DagmasterError
from dagmaster.ports.run_queues import run_queue
from dagmaster.snowflakes import TASK_IDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.application.views.remote_tasks import RegistrationView
    from dagmaster.orchestration.backends import ApplicationBackend

_LOGGER = logging.getLogger("dagmaster.orchestration")


@contextlib.asynccontextmanager
async def reserved_queue(backend: ApplicationBackend) -> AsyncIterator[str]:
    """Provide the name of a queue of this process. After it, or if the process dies, the fleet claims its jobs."""
    queue = run_queue(str(TASK_IDS.new()))
    registered = await backend.register_worker(socket.gethostname(), os.getpid(), (queue,))
    renewal = asyncio.create_task(_renew(backend, registered, queue))
    try:
        yield queue
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)
        try:
            await backend.deregister_worker(registered.worker_id)
        except DagmasterError as error:
            _LOGGER.warning("%s; the fleet claims the jobs of queue %s when its lease expires", error, queue)


async def _renew(backend: ApplicationBackend, registered: RegistrationView, queue: str) -> None:
    while True:
        await asyncio.sleep(registered.heartbeat_seconds)
        try:
            await backend.renew_worker(registered.worker_id)
        except DagmasterError as error:
            _LOGGER.warning("could not renew the lease of queue %s; the fleet may claim its jobs: %s", queue, error)
