"""The context that calls use: the one around the code, or a new one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.python.running_task import RunningTask, get_running_task
from dagmaster.session.context import CURRENT, OrchContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.session.job import Job


def current_orch_context() -> OrchContext | None:
    """Return the context around this code, if it can be used on this event loop."""
    context = CURRENT.get()
    if context is None or not context.is_open:
        return None
    return context if context.backend.is_shared or context.loop is asyncio.get_running_loop() else None


def get_current_context() -> RunningTask:
    """Return the task that runs here, or the `OrchContext` around this code: both can apply tasks and groups.

    In a `with blocking.OrchContext()` it is that context: its `apply` needs no `await`. The type is that of a
    task, where nothing else gives the context.
    """
    running, around = get_running_task(), CURRENT.get()
    if running is None and around is not None and around.is_open and around.blocking is not None:
        # Its methods have the same names. Their types differ: code that awaits them has entered the other
        # kind.
        plain_context: RunningTask = around.blocking
        return plain_context
    context: Any = running or current_orch_context()
    if context is None:
        raise RuntimeError(
            "there is no context here: call it in a running task, or in `async with OrchContext():`"
        )
    current: RunningTask = context
    return current


@contextlib.asynccontextmanager
async def a_context(url: str | None = None, key: str | None = None) -> AsyncIterator[OrchContext]:
    """Provide the context around this code, or one for this call."""
    context = current_orch_context() if url is None and key is None else None
    if context is not None:
        yield context
        return
    own = OrchContext(url=url, key=key)
    await own.open()
    try:
        yield own
    finally:
        await own.close()


def lasting(context: OrchContext) -> OrchContext | None:
    """Return the context if it is the one around this code; None if it was made for one call."""
    return context if context is current_orch_context() else None


async def create_job(
    name: str,
    entry: Any,
    *,
    idempotency_key: str | None = None,
    url: str | None = None,
    key: str | None = None,
) -> Job:
    """Store a job with the graph of a task, a group, a list of them, or a function (also by its name).

    In an `OrchContext` it cannot complete before the context exits, and is cancelled if that ends with an
    exception; outside of one it starts at once. If the job of this `idempotency_key` exists, it is returned,
    and the tasks and groups get the ids that it was stored with.
    """
    context = current_orch_context() if url is None and key is None else None
    if context is not None:
        return await context.create_job(name, entry, idempotency_key=idempotency_key)
    async with a_context(url, key) as own:
        job = await own.store_job(name, entry, is_held=False, idempotency_key=idempotency_key)
        job.context = None
        return job
