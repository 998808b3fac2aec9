"""Reads finished tasks across jobs from PostgreSQL, in windows of time from the newest one backwards.

The index on the time of events is coarse: it finds the pages of a window, not an order. A window is ten times
as long as the one before where that had few events, twice as long where it had many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.finished_tasks import MAX_SCANNED, FinishedTaskPage, FinishedTaskRecord
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
from dagmaster.store.postgres.read_rows import attempt_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record

    from dagmaster.ports.finished_tasks import FinishedTaskFilter
    from dagmaster.records.page import Position
    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("finished_tasks")
_FIRST_WINDOW_SECONDS: Final = 60.0
_CLOCK_SKEW_SECONDS: Final = 600.0
"""Clocks of services may be ahead of the database's by a little; an event is never of tomorrow."""
_FEW: Final = MAX_SCANNED // 10
_POSITION: Final = ("at", "seq")


class PostgresFinishedTaskReader:
    """Finished tasks. An id that no row can have, and a text that cannot be stored, match nothing."""

    def __init__(self, pool: Reader) -> None:
        self._pool = pool

    async def page(
        self, task_filter: FinishedTaskFilter, *, after: Position | None = None, limit: int = 100
    ) -> FinishedTaskPage:
        params = _params(task_filter, after)
        if params is None:
            return FinishedTaskPage([], None)
        if task_filter.job_id is not None:
            rows = await self._pool.fetch(_SQL["of_job"], {**params, "scanned": MAX_SCANNED, "limit": limit})
            return _to_page(rows, [], limit, MAX_SCANNED)
        return await self._read_windows(params, limit)

    async def _read_windows(self, params: dict[str, Any], limit: int) -> FinishedTaskPage:
        row = await self._pool.row(_SQL["now"], {})
        until = min(params["after_at"], (LAST_SECOND if row is None else row["now"]) + _CLOCK_SKEW_SECONDS)
        oldest, window, unread = params["since"], _FIRST_WINDOW_SECONDS, MAX_SCANNED
        page = FinishedTaskPage([], None)
        while until > oldest and page.after is None:
            start = max(until - window, oldest)
            limits = {"scanned": unread, "limit": limit - len(page.records)}
            rows = await self._pool.fetch(
                _SQL["in_window"], {**params, **limits, "since": start, "until": until}
            )
            page = _to_page(rows, page.records, limit, unread)
            unread -= rows[0]["scanned"]
            window *= 10 if rows[0]["scanned"] < _FEW else 2
            until = start
        return page


def _params(task_filter: FinishedTaskFilter, after: Position | None) -> dict[str, Any] | None:
    """Return the parameters; None if nothing can match."""
    ids = {name: getattr(task_filter, name) for name in ("worker_id", "job_id")}
    numbers = {name: None if text is None else bigint(text) for name, text in ids.items()}
    if any(numbers[name] is None and text is not None for name, text in ids.items()):
        return None
    if not is_storable(task_filter.queue or ""):
        return None
    at, job_id, seq = (LAST_SECOND, MAX_BIGINT, MAX_INTEGER) if after is None else after
    return {
        **numbers,
        "queue": task_filter.queue,
        "statuses": sorted(task_filter.statuses) or None,
        "since": clamp_time(task_filter.since or 0.0),
        "after_at": clamp_time(float(at)),
        "after_job_id": bigint(str(job_id)) or 0,
        "after_seq": clamp_integer(seq),
    }


def _to_page(
    rows: Sequence[Record], before: list[FinishedTaskRecord], limit: int, most_scanned: int
) -> FinishedTaskPage:
    """Return a page with more records.

    The first row says how many ends were scanned, and where that stopped.
    """
    records = before + [_to_record(row) for row in rows if row["task_id"] is not None]
    if len(records) == limit:
        return FinishedTaskPage(records, records[-1].position)
    first = rows[0]
    is_cut = first["scanned"] >= most_scanned
    last: Position = (first["last_at"], str(first["last_job_id"]), first["last_seq"])
    return FinishedTaskPage(records, last if is_cut else None)


def _to_record(row: Record) -> FinishedTaskRecord:
    fields = {name: value for name, value in dict(row).items() if name not in _POSITION and name not in _SCAN}
    attempt = attempt_record(fields)
    return FinishedTaskRecord(attempt, (row["at"], attempt.job_id, row["seq"]))


_SCAN: Final = ("scanned", "last_at", "last_job_id", "last_seq")
