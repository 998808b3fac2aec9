"""A queue for jobs that only this process runs: orchestrators leave them alone while its worker is alive.

It is what a local run has (`ports.run_queues`), before there is a worker that runs tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING

from dagmaster.errors import DagmasterError, DatabaseUnavailable
from dagmaster.host.snowflakes import TASK_IDS
from dagmaster.ports.run_queues import run_queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.session.backends import ApplicationBackend

_LOGGER = logging.getLogger("dagmaster.session")


@contextlib.asynccontextmanager
async def reserved_queue(backend: ApplicationBackend) -> AsyncIterator[str]:
    """Provide the name of a queue of this process.

    After it, or if the process dies, the fleet claims its jobs.
    """
    reservation = _Reservation(backend, run_queue(str(TASK_IDS.new())))
    await reservation.register()
    renewal = asyncio.create_task(reservation.renew())
    try:
        yield reservation.queue
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)
        await reservation.deregister()


class _Reservation:
    """A worker that only holds its queue."""

    def __init__(self, backend: ApplicationBackend, queue: str) -> None:
        self._backend = backend
        self.queue = queue

    async def register(self) -> None:
        self._registered = await self._backend.register_worker(
            socket.gethostname(), os.getpid(), (self.queue,)
        )

    async def renew(self) -> None:
        """Renew the lease until cancelled; register again if it has expired."""
        while True:
            await asyncio.sleep(self._registered.heartbeat_seconds)
            try:
                await self._renew_once()
            except DagmasterError as error:
                text = "could not renew the lease of queue %s; the fleet may claim its jobs: %s"
                _LOGGER.warning(text, self.queue, error)

    async def _renew_once(self) -> None:
        try:
            await self._backend.renew_worker(self._registered.worker_id)
        except DatabaseUnavailable:
            raise
        except DagmasterError:
            # Its lease expired in an outage or a pause.
            await self.register()

    async def deregister(self) -> None:
        try:
            await self._backend.deregister_worker(self._registered.worker_id)
        except DagmasterError as error:
            _LOGGER.warning(
                "%s; the fleet claims the jobs of queue %s when its lease expires", error, self.queue
            )
