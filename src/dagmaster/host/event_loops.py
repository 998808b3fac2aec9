"""Coroutines run to their end by code that is not async, also where an event loop runs."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator

R = TypeVar("R")


def has_running_loop() -> bool:
    """Return whether an event loop runs in this thread.

    What follows is not in the handler of an exception.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_blocking(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end, also where a loop is running, which is blocked meanwhile."""
    if not has_running_loop():
        return asyncio.run(work)
    pool = ThreadPoolExecutor(1, thread_name_prefix="dagmaster-run")
    try:
        return pool.submit(contextvars.copy_context().run, asyncio.run, work).result()
    finally:
        # Not waited for: an interrupted caller goes on.
        pool.shutdown(wait=False)


class LoopThread:
    """An event loop in a separate daemon thread: connections need one that stays."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run something on the loop, with the context variables of the caller, and wait for it."""
        if self._is_current():
            # Code that runs on this loop would wait for itself.
            return run_blocking(work)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # The caller was interrupted: nothing waits for the answer any more.
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[R, None]) -> Iterator[R]:
        async def read_next() -> tuple[R] | None:
            async for item in items:
                return (item,)
            return None

        try:
            while (item := self.run(read_next())) is not None:
                yield item[0]
        finally:
            # At the end of the program the loop is frozen, and on its own thread nothing can wait for it.
            if not sys.is_finalizing() and not self._is_current():
                self.run(items.aclose())

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _is_current(self) -> bool:
        return threading.current_thread() is self._thread
