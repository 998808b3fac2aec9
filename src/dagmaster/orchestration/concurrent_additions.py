"""Calls that add to jobs at the same time in one context: of two that share a task, one waits for the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dagmaster.authoring.python.graph_collection import Collected


class ConcurrentAdditions:
    """What a context is adding to jobs now."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], set[int]] = {}

    async def add(self, read: Callable[[], Collected], store: Callable[[Collected], Coroutine[Any, Any, None]]) -> None:
        """Read items and store them, once no other call is adding one of them: then they are part of the job already.

        A cancelled call is finished in the background: what it stored is known to the next one.
        """
        collected = read()
        while others := self._adding(collected.affected_ids()):
            await asyncio.wait(others)
            collected = read()
        task = asyncio.create_task(store(collected))
        self._running[task] = collected.affected_ids()
        task.add_done_callback(self._running.pop)
        await asyncio.shield(task)

    def _adding(self, ids: set[int]) -> list[asyncio.Task[None]]:
        return [task for task, adding in self._running.items() if not adding.isdisjoint(ids)]

    async def finish(self) -> None:
        """Wait for the calls that were cancelled."""
        await asyncio.gather(*self._running, return_exceptions=True)
