"""The threads of `asyncio.to_thread` on the loop of async handlers: which task each call belongs to.

A handler that is cancelled there ends at once, and its thread continues unseen, in one of few places.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from dagmaster.worker.task_log_capture import TASK_LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.worker.task_log_capture import TaskLog

P = ParamSpec("P")
R = TypeVar("R")


class LoopThreads(ThreadPoolExecutor):
    """The default executor of a loop. Calls are noted in the log of their task."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call on a thread."""
        future = super().submit(fn, *args, **kwargs)
        log = TASK_LOG.get()
        if log is not None:
            log.calls.add(future)
            future.add_done_callback(log.calls.discard)
        return future


async def until_calls_end(log: TaskLog) -> None:
    """Wait until the threads that a task started have ended.

    A coroutine that was asked to stop ends before them. They have the rest of its grace period, and then
    count as a handler that could not be stopped.
    """
    calls = [asyncio.wrap_future(call) for call in list(log.calls)]
    if calls:
        await asyncio.wait(calls)
