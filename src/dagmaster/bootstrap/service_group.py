"""Several services in one process, which start and stop together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Service(Protocol):
    ready: asyncio.Event

    async def run(self) -> None: ...

    def stop(self) -> None: ...


class ServiceGroup:
    """Runs services until one ends; then it stops the others. It is ready when all of them are."""

    def __init__(self, services: Sequence[_Service]) -> None:
        self.ready = asyncio.Event()
        self._services = services

    async def run(self) -> None:
        """Run all services; raise the first error of one."""
        running = [asyncio.create_task(service.run()) for service in self._services]
        watcher = asyncio.create_task(self._watch_ready())
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.cancel()
            self.stop()
            results = await asyncio.gather(*running, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def stop(self) -> None:
        for service in self._services:
            service.stop()

    async def _watch_ready(self) -> None:
        for service in self._services:
            await service.ready.wait()
        self.ready.set()
