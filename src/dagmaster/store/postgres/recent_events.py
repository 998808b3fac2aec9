"""Events across jobs, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.read_store import JobEvent
from dagmaster.store.postgres.job_list import (
    LAST_SECOND,
    MAX_BIGINT,
    MAX_INTEGER,
    bigint,
    clamp_integer,
    clamp_time,
    is_storable,
)
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.read_rows import stored_event

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.records.page import Position
    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("read")
_FIRST_WINDOW_SECONDS: Final = 600.0
_WINDOW_GROWTH: Final = 10.0


async def read_recent_events(
    reader: Reader,
    *,
    types: Collection[str] = (),
    since: float | None = None,
    after: Position | None = None,
    limit: int = 100,
) -> list[JobEvent]:
    """Return events across jobs, newest first.

    The index on time is coarse: it finds the pages of a window, not an order. So windows are read from
    the newest event backwards, each ten times as long as the one before.
    """
    after_at, after_job_id, after_seq = LAST_SECOND, MAX_BIGINT, MAX_INTEGER
    if after is not None:
        after_at, after_job_id = clamp_time(float(after[0])), bigint(str(after[1])) or 0
        after_seq = clamp_integer(after[2])
    storable = [kind for kind in types if is_storable(kind)]
    if types and not storable:
        return []
    params: dict[str, Any] = {"types": storable or None, "limit": limit}
    params |= {"after_at": after_at, "after_job_id": after_job_id, "after_seq": after_seq}
    newest = await _newest_event_time(reader, after_at)
    events: list[JobEvent] = []
    if newest is None:
        return events
    oldest, until, window = clamp_time(since or 0.0), newest, _FIRST_WINDOW_SECONDS
    while len(events) < limit and until > oldest:
        start = max(until - window, oldest)
        params |= {"since": start, "until": until, "limit": limit - len(events)}
        rows = await reader.fetch(_SQL["recent_events"], params)
        events += [JobEvent(str(row["job_id"]), stored_event(row)) for row in rows]
        until, window = start, window * _WINDOW_GROWTH
    return events


async def _newest_event_time(reader: Reader, limit_at: float) -> float | None:
    row = await reader.row(_SQL["now"], {})
    # Clocks of services may be ahead of the database's by a little; an event is never of tomorrow.
    return None if row is None else min(row["now"] + _FIRST_WINDOW_SECONDS, limit_at)
