"""Imports the modules of entrypoints that tasks name, outside the loop of the service.

An import may take longer than a lease: the heartbeat must not wait for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.sdk.handler_registry import Registry


class EntrypointImports:
    """Tasks that wait for an import. `enqueue` is called with them on the loop, even if it failed."""

    def __init__(
        self,
        registry: Registry,
        held: Mapping[str, ClaimedTask],
        enqueue: Callable[[list[ClaimedTask]], None],
    ) -> None:
        self._registry = registry
        self._held = held
        self._enqueue = enqueue
        self._waiting: dict[str, list[ClaimedTask]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def add(self, task: ClaimedTask) -> None:
        """Import the module of a task, unless this is under way."""
        waiting = self._waiting.setdefault(task.handler, [])
        waiting.append(task)
        if len(waiting) == 1:
            running = asyncio.get_running_loop().create_task(self._run(task.handler))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    def stop(self) -> None:
        """Wait for nothing any more. An import that is under way ends on its thread."""
        for task in self._running:
            task.cancel()

    async def _run(self, handler: str) -> None:
        # It remembers why a name cannot be imported, and raises nothing about it.
        await asyncio.to_thread(self._registry.find, handler)
        # Those that are still held: the lease may have expired meanwhile.
        self._enqueue([task for task in self._waiting.pop(handler) if self._held.get(task.task_id) is task])
