"""Search logs: the lines that contain a text, or have a level, without the lines between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.application.cursors import CursorKind, encode_cursor, next_cursor, start_page
from dagmaster.application.log_levels import levels_from, with_levels
from dagmaster.application.queries.events_and_logs import end_of_pages, find_job_with_nodes, select_nodes
from dagmaster.application.secret_inputs import job_redactor
from dagmaster.application.views.events_and_logs import LogLineView
from dagmaster.ports.read_records import LogFilter
from dagmaster.records.page import Page

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dagmaster.application.context import Application
    from dagmaster.application.log_levels import LogLevel
    from dagmaster.application.queries.events_and_logs import NodeSelection
    from dagmaster.ports.read_store import LogRecord
    from dagmaster.records.page import Position

_BATCH: Final = 50
"""How many chunks are read at once: 64 KB each at most."""
_MAX_LINE: Final = 64 * 1024
"""Characters before and after a chunk that are read for one line. A longer line is searched in parts."""


async def list_log_lines(  # noqa: PLR0913 - each is a parameter of a request
    app: Application,
    job_id: str | None,
    *,
    contains: str | None = None,
    level: LogLevel | None = None,
    node_id: NodeSelection = None,
    attempt: int | None = None,
    since: float | None = None,
    until: float | None = None,
    cursor: str | None = None,
    limit: int = 200,
    newest_first: bool = False,
) -> Page[LogLineView]:
    """List the lines of a job's logs that contain a text, in any case, and have at least this level.

    The store selects chunks, and this selects their lines, without secrets: what is redacted cannot be
    searched for. A line that goes on in the next chunk is one line, at the chunk where it begins.
    """
    start = start_page(CursorKind.LOG_LINES, cursor, limit)
    job = await find_job_with_nodes(app, job_id, node_id)
    redact = await job_redactor(app, job)
    levels = () if level is None else levels_from(level)
    search = _LineSearch(app, redact, needle=(contains or "").lower() or None, levels=levels)
    log_filter = LogFilter(
        node_ids=select_nodes(node_id),
        attempt=attempt,
        since=since,
        until=end_of_pages(job, until),
        contains=contains or None,
        words=tuple(one.name for one in levels),
    )
    after = None if start is None else _around(start, newest_first=newest_first)
    lines: list[tuple[Position, LogLineView]] = []
    while len(lines) < limit:
        records = await app.read.logs(
            job.job_id, log_filter, after=after, limit=_BATCH, newest_first=newest_first
        )
        for record in records:
            matching = [
                (position, view)
                for position, view in await search.lines_of(job.job_id, record)
                if not _is_before(position, start, newest_first=newest_first)
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
    at, task_id, chunk, _ = start
    return at, task_id, int(chunk) + (1 if newest_first else -1)


def _is_before(position: Position, start: Position | None, *, newest_first: bool) -> bool:
    """Return whether a page before this one has the line: one of the chunk in which that page ended."""
    if start is None or position[:3] != start[:3]:
        return False
    line, last = int(position[3]), int(start[3])
    return line >= last if newest_first else line <= last


class _Beginning(NamedTuple):
    """Where a line begins that goes on in a later chunk: its text there, and its number in that chunk."""

    text: str
    record: LogRecord
    line: int


class _LineSearch:
    """Selects lines of chunks.

    A line that goes on in the next chunk belongs to the chunk in which its match begins.
    """

    def __init__(
        self,
        app: Application,
        redact: Callable[[Any], Any],
        *,
        needle: str | None,
        levels: tuple[LogLevel, ...],
    ) -> None:
        self._app = app
        self._redact = redact
        self._needle = needle
        self._levels = levels

    async def lines_of(self, job_id: str, record: LogRecord) -> list[tuple[Position, LogLineView]]:
        text = record.text.removesuffix("\n")
        is_open = text == record.text
        first, last = text.partition("\n")[0], text.rpartition("\n")[2]
        goes_on = is_open and self._may_match(last, is_open=True)
        end = await self._read_end(record) if goes_on else ""
        begins_before = self._may_match(first, is_open=is_open and first == text)
        beginning = await self._find_beginning(record) if begins_before else None
        start = "" if beginning is None else str(self._redact(beginning.text))
        lines = str(self._redact(f"{beginning.text if beginning else ''}{text}{end}")).split("\n")
        own_end = len(lines[-1]) - len(str(self._redact(end)))
        matching: list[tuple[Position, LogLineView]] = []
        for number, (level, line) in enumerate(with_levels(lines), 1):
            own = (len(start) if number == 1 else 0, own_end if number == len(lines) else len(line))
            if (not self._levels or level in self._levels) and self._begins_in(line, own):
                position = (*record.position, number)
                source, at_line = (
                    (beginning.record, beginning.line) if beginning and number == 1 else (record, number)
                )
                matching.append((position, _line_view(job_id, source, at_line, position, level, line)))
        return matching

    def _may_match(self, line: str, *, is_open: bool) -> bool:
        """Return whether a line, or what it goes on with, may have the text."""
        needle = self._needle
        if needle is None or needle in line.lower():
            return True
        tail = line[-len(needle) :].lower()
        return is_open and any(tail.endswith(needle[:length]) for length in range(1, len(needle)))

    def _begins_in(self, line: str, own: tuple[int, int]) -> bool:
        """Return whether the first match begins in this part of a line; without a text, the line itself."""
        at = 0 if self._needle is None else line.lower().find(self._needle)
        return own[0] <= at < max(own[1], own[0] + 1)

    async def _find_beginning(self, record: LogRecord) -> _Beginning | None:
        """Return where the first line of a chunk begins; None if it begins there."""
        beginning: _Beginning | None = None
        _, task_id, number = record.position
        for chunk in range(int(number) - 1, 0, -1):
            before = await self._app.read.log_chunk(str(task_id), chunk)
            if before is None or before.text.endswith("\n"):
                break
            _, newline, tail = before.text.rpartition("\n")
            text = tail + (beginning.text if beginning else "")
            beginning = _Beginning(text, before, before.text.count("\n") + 1)
            if newline or len(text) > _MAX_LINE:
                break
        return beginning

    async def _read_end(self, record: LogRecord) -> str:
        """Return the rest of the last line of a chunk, from the chunks after it."""
        end = ""
        _, task_id, number = record.position
        while len(end) <= _MAX_LINE:
            number = int(number) + 1
            following = await self._app.read.log_chunk(str(task_id), number)
            if following is None:
                break
            text, newline, _ = following.text.partition("\n")
            end += text
            if newline:
                break
        return end


def _line_view(  # noqa: PLR0917 - each is a part of a line
    job_id: str, record: LogRecord, number: int, position: Position, level: LogLevel | None, text: str
) -> LogLineView:
    return LogLineView(
        job_id=job_id,
        node_id=record.node_id,
        attempt=record.attempt,
        at=record.at,
        level=level,
        line=number,
        text=text,
        chunk=encode_cursor(CursorKind.LOGS, record.position),
        cursor=encode_cursor(CursorKind.LOG_LINES, position),
    )
