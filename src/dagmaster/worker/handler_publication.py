"""Publishes the definitions of a worker's handlers after each registration, concurrently with claims."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dagmaster.errors import DagmasterError

if TYPE_CHECKING:
    from dagmaster.ports.task_ledger import TaskLedger
    from dagmaster.sdk.handler_registry import Registry

_LOGGER = logging.getLogger("dagmaster.worker")


class HandlerPublication:
    """Publishes in the background: no task waits for it."""

    def __init__(self, ledger: TaskLedger, registry: Registry) -> None:
        self._ledger, self._registry = ledger, registry
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.stop()
        self._running = asyncio.create_task(self._publish())

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def _publish(self) -> None:
        try:
            # Schemas are made from types, which takes some milliseconds.
            await self._ledger.publish_handlers(await asyncio.to_thread(self._registry.definitions))
        except DagmasterError as error:
            _LOGGER.warning(
                "definitions of handlers were not published; servers may know older ones: %s", error
            )
