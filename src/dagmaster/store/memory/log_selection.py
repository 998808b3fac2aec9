"""Which chunks of logs match a filter, as `logs` in `store/postgres/sql/read.sql` decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.read_store import LogFilter
    from dagmaster.store.memory.database import StoredLog


def is_log_selected(
    logs: Mapping[tuple[str, int], StoredLog], key: tuple[str, int], log_filter: LogFilter
) -> bool:
    log = logs[key].record
    return (
        (log_filter.since is None or log.at >= log_filter.since)
        and (log_filter.until is None or log.at <= log_filter.until)
        and (not log_filter.node_ids or log.node_id in log_filter.node_ids)
        and log_filter.attempt in (None, log.attempt)
        and (log_filter.contains is None or _has_or_begins(_folded(log.text), _folded(log_filter.contains)))
        and (not log_filter.words or _has_word(logs, key, log_filter))
    )


def _has_word(logs: Mapping[tuple[str, int], StoredLog], key: tuple[str, int], log_filter: LogFilter) -> bool:
    text = logs[key].record.text.encode("utf-8", "surrogatepass")
    if any(_has_or_begins(text, word.encode()) for word in log_filter.words):
        return True
    task_id, chunk = key
    before = logs.get((task_id, chunk - 1))
    begins_in_line = chunk > 1 and (before is None or not before.record.text.endswith("\n"))
    return log_filter.contains is not None and begins_in_line


def _has_or_begins(text: bytes, searched: bytes) -> bool:
    """Return whether a text contains another, or ends with the beginning of it."""
    return searched in text or any(text.endswith(searched[:length]) for length in range(1, len(searched)))


def _folded(text: str) -> bytes:
    """Return a text with its ASCII letters in lower case, as the collation "C" folds them."""
    return text.encode("utf-8", "surrogatepass").lower()
