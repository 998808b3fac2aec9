"""The levels of the lines of a log, as a worker writes them: `WARNING name: message`.

The lines of a traceback have the level of the record above them. What a task prints has none. It knows text
alone.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class LogLevel(StrEnum):
    """A level of Python's logging, least severe first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


_RECORD: Final = re.compile(rf"({'|'.join(level.name for level in LogLevel)})\b")
_TRACEBACK: Final = "Traceback (most recent call last):"
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct cause")


def levels_from(level: LogLevel) -> tuple[LogLevel, ...]:
    levels = tuple(LogLevel)
    return levels[levels.index(level) :]


def level_of(line: str) -> LogLevel | None:
    match = _RECORD.match(line)
    return None if match is None else LogLevel[match[1]]


def with_levels(lines: Iterable[str]) -> Iterator[tuple[LogLevel | None, str]]:
    level: LogLevel | None = None
    in_traceback = False
    for line in lines:
        if (own := level_of(line)) is not None:
            level, in_traceback = own, False
        elif line.startswith((_TRACEBACK, *_CHAINED)):
            in_traceback = True
        elif not line.startswith((" ", "\t")) and line:
            # The line that names the exception ends a traceback; any other text was printed.
            yield (level if in_traceback else None), line
            level, in_traceback = (level if in_traceback else None), False
            continue
        yield level, line
