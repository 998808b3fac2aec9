"""Coroutines run to their end by code that is not async, also where an event loop runs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

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
    return _run_on_thread(work) if has_running_loop() else asyncio.run(work)


def _run_on_thread(work: Coroutine[Any, Any, R]) -> R:
    """Run on a loop of its own, in the context of the caller: the loop of this thread is running, and is blocked."""
    context = contextvars.copy_context()
    outcome: list[R] = []
    failures: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(context.run(asyncio.run, work))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            failures.append(error)

    thread = threading.Thread(target=target, name="dagmaster-run")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return outcome[0]
