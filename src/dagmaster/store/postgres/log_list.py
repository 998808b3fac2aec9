"""The parameters of the query about logs, from a filter and a position. See `logs` in `sql/read.sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.store.postgres.job_list import MAX_INTEGER, bigint, clamp_integer, clamp_time, is_storable

if TYPE_CHECKING:
    from dagmaster.ports.read_store import LogFilter
    from dagmaster.records.page import Position


def log_params(log_filter: LogFilter, after: Position | None) -> dict[str, Any] | None:
    """Return the parameters; None if nothing can match."""
    texts = "".join(log_filter.node_ids) + (log_filter.contains or "")
    if not is_storable(texts) or (log_filter.attempt or 0) > MAX_INTEGER:
        return None
    at, task_id, chunk = (None, "0", 0) if after is None else after
    times = {
        "since": log_filter.since,
        "until": log_filter.until,
        "after_at": None if at is None else float(at),
    }
    return {
        **{name: None if time is None else clamp_time(time) for name, time in times.items()},
        "node_ids": list(log_filter.node_ids),
        "attempt": log_filter.attempt,
        "contains": log_filter.contains,
        "words": list(log_filter.words),
        "task_id": bigint(str(task_id)) or 0,
        "chunk": clamp_integer(chunk),
    }
