"""Live streams of logs: chunks as they are written, each with the cursor to resume from."""

from __future__ import annotations

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
