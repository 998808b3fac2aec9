"""Search logs: the lines that contain a text, or have a level, without the lines between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, encode_cursor, next_cursor, start_page
from dagmaster.application.log_levels import levels_from, with_levels
from dagmaster.application.queries.events_and_logs import end_of_pages, find_job_of_logs
from dagmaster.application.secret_inputs import job_redactor
from dagmaster.application.views.events_and_logs import LogLineView
from dagmaster.application.views.page import Page
from dagmaster.ports.read_records import LogFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from dagmaster.application.context import Application
    from dagmaster.application.log_levels import LogLevel
    from dagmaster.ports.read_store import LogRecord, Position

_BATCH: Final = 50
"""How many chunks are read at once: 64 KB each at most."""


async def list_log_lines(  # noqa: PLR0913 - each is a parameter of a request
    app: Application,
    job_id: str | None,
    *,
    contains: str | None = None,
    level: LogLevel | None = None,
    node_id: str | None = None,
    attempt: int | None = None,
    since: float | None = None,
    until: float | None = None,
    cursor: str | None = None,
    limit: int = 200,
    newest_first: bool = False,
) -> Page[LogLineView]:
    """List the lines of a job's logs that contain a text, in either case, and have this level or a higher one.

    The store selects chunks, and this selects their lines, without secrets: what is redacted cannot be searched for.
    A line that is split over two chunks is two lines here.
    """
    start = start_page(CursorKind.LOG_LINES, cursor, limit)
    job = await find_job_of_logs(app, job_id, node_id)
    redact = await job_redactor(app, job)
    levels = () if level is None else levels_from(level)
    needle = None if contains is None else contains.lower()
    log_filter = LogFilter(
        node_id=node_id,
        attempt=attempt,
        since=since,
        until=end_of_pages(job, until),
        contains=contains or None,
        words=tuple(one.name for one in levels),
    )
    after = None if start is None else _around(start, newest_first=newest_first)
    lines: list[tuple[Position, LogLineView]] = []
    while len(lines) < limit:
        records = await app.read.logs(job.id, log_filter, after=after, limit=_BATCH, newest_first=newest_first)
        for record in records:
            matching = [
                (position, view)
                for position, view in _lines_of(job.id, record, redact)
                if (needle is None or needle in view.text.lower())
                and (level is None or view.level in levels)
                and not _is_before(position, start, newest_first=newest_first)
            ]
            lines += reversed(matching) if newest_first else matching
        if len(records) < _BATCH:
            break
        after = records[-1].position
    lines = lines[:limit]
    return Page(
        items=tuple(view for _, view in lines),
        next_cursor=next_cursor(CursorKind.LOG_LINES, lines, limit, lambda line: line[0]),
    )


def _around(start: Position, *, newest_first: bool) -> Position:
    """Return the position from which the chunk of a line is read again."""
    at, task_id, chunk, _ = start
    return at, task_id, int(chunk) + (1 if newest_first else -1)


def _is_before(position: Position, start: Position | None, *, newest_first: bool) -> bool:
    """Return whether a page before this one has the line: one of the chunk in which that page ended."""
    if start is None or position[:3] != start[:3]:
        return False
    line, last = int(position[3]), int(start[3])
    return line >= last if newest_first else line <= last


def _lines_of(job_id: str, record: LogRecord, redact: Callable[[Any], Any]) -> Iterator[tuple[Position, LogLineView]]:
    text = str(redact(record.text))
    for number, (level, line) in enumerate(with_levels(text.removesuffix("\n").split("\n")), 1):
        position = (*record.position, number)
        yield (
            position,
            LogLineView(
                job_id=job_id,
                node_id=record.node_id,
                attempt=record.attempt,
                at=record.at,
                level=level,
                line=number,
                text=line,
                chunk=encode_cursor(CursorKind.LOGS, record.position),
                cursor=encode_cursor(CursorKind.LOG_LINES, position),
            ),
        )
