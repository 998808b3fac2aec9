"""Calls that callers share: those who ask for the same while a call runs get its result."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

R = TypeVar("R")


class SharedCalls(Generic[R]):
    """Runs one call at a time for each key."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[R]] = {}

    async def run(self, key: str, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Return the result of the call that runs for a key, or of this one; all callers get its error."""
        task = self._running.get(key)
        if task is None:
            # In a separate context: it is part of no caller's trace.
            task = asyncio.create_task(call(), context=contextvars.Context())
            self._running[key] = task
            task.add_done_callback(lambda ended: self._end(key, ended))
        # A caller that is cancelled leaves the call to the others.
        return await asyncio.shield(task)

    def _end(self, key: str, ended: asyncio.Task[R]) -> None:
        del self._running[key]
        if not ended.cancelled():
            # If all callers were cancelled, none reads it, and asyncio would log that.
            ended.exception()
