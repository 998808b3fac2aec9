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
    the newest event backwards, each ten times as long as the one before. Most lists end with the first one.
    """
    after_at, after_job_id, after_seq = LAST_SECOND, MAX_BIGINT, MAX_INTEGER
    if after is not None:
        after_at, after_job_id = clamp_time(float(after[0])), bigint(str(after[1])) or 0
        after_seq = clamp_integer(after[2])
    storable = [kind for kind in types if is_storable(kind)]
    if types and not storable:
        return []
    oldest = clamp_time(since or 0.0)
    params: dict[str, Any] = {"types": storable or None, "limit": limit, "recent_seconds": None}
    params |= {"after_at": after_at, "after_job_id": after_job_id, "after_seq": after_seq}
    events: list[JobEvent] = []
    until, window = after_at, _FIRST_WINDOW_SECONDS
    if after is None:
        params |= {"since": oldest, "until": LAST_SECOND, "recent_seconds": window}
        events = await _read(reader, params)
        if len(events) == limit:
            return events
        until, window = await _end_of_first_window(reader), window * _WINDOW_GROWTH
    params["recent_seconds"] = None
    while len(events) < limit and until > oldest:
        start = max(until - window, oldest)
        params |= {"since": start, "until": until, "limit": limit - len(events)}
        if events:
            job_id, last = events[-1].job_id, events[-1].event
            params |= {"after_at": last.at, "after_job_id": int(job_id), "after_seq": last.seq}
        events += await _read(reader, params)
        until, window = start, window * _WINDOW_GROWTH
    return events


async def _read(reader: Reader, params: dict[str, Any]) -> list[JobEvent]:
    rows = await reader.fetch(_SQL["recent_events"], params)
    return [JobEvent(str(row["job_id"]), stored_event(row)) for row in rows]


async def _end_of_first_window(reader: Reader) -> float:
    """Return when the window began that was read first: a little later, so that no event is left out."""
    row = await reader.row(_SQL["now"], {})
    return LAST_SECOND if row is None else row["now"] - _FIRST_WINDOW_SECONDS
