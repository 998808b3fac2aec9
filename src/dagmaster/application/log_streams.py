"""Live streams of logs: chunks as they are written, each with its cursor; alone or in a job's stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from dagmaster.application.queries.events_and_logs import follow_log_range
from dagmaster.application.stream_messages import EndReason, MessageType, end, message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.application.context import Application
    from dagmaster.application.stream_messages import StreamMessage


async def stream_logs(app: Application, job_id: str, **selection: Any) -> AsyncGenerator[StreamMessage]:
    """Yield chunks of a job's logs until all are written. `selection`: of `follow_log_range`."""
    last: str | None = None
    async with contextlib.aclosing(follow_log_range(app, job_id, **selection)) as views:
        async for view in views:
            last = view.cursor
            yield message(MessageType.LOG, view.to_dict(), last)
    yield end(EndReason.FINISHED, "all chunks of the range were sent", last)


async def stream_with_logs(
    app: Application, job_id: str, job_messages: AsyncGenerator[StreamMessage], **selection: Any
) -> AsyncGenerator[StreamMessage]:
    """Yield the messages of a job's stream, and chunks of its logs between them.

    The end of a job that has finished comes after its last chunk.
    """
    ending: StreamMessage | None = None
    async with contextlib.aclosing(_merge(job_messages, _chunks(app, job_id, **selection))) as items:
        async for item in items:
            if item.type is not MessageType.END:
                yield item
                continue
            ending = item
            if item.reason is not EndReason.FINISHED:
                break
    if ending is not None:
        yield ending


async def _chunks(app: Application, job_id: str, **selection: Any) -> AsyncGenerator[StreamMessage]:
    """Yield chunks without an id: that of a job's stream is the number of an event.

    Their cursor is in the view.
    """
    async with contextlib.aclosing(follow_log_range(app, job_id, **selection)) as views:
        async for view in views:
            yield message(MessageType.LOG, view.to_dict())


async def _merge(*sources: AsyncGenerator[StreamMessage]) -> AsyncGenerator[StreamMessage]:
    """Yield what comes from any source, until all have ended; of each, at most one message is waiting."""
    upcoming = {asyncio.ensure_future(anext(source, None)): source for source in sources}
    try:
        while upcoming:
            await asyncio.wait(upcoming, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in upcoming if task.done()]:
                item = task.result()
                source = upcoming.pop(task)
                if item is not None:
                    yield item
                    upcoming[asyncio.ensure_future(anext(source, None))] = source
    finally:
        for task in upcoming:
            task.cancel()
        await asyncio.gather(*upcoming, return_exceptions=True)
        for source in sources:
            await source.aclose()
