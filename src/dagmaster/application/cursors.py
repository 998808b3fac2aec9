"""Opaque cursors of keyset-paged lists.

A cursor is URL-safe base64 of a small JSON document: a format version, the kind of list, and the position of
the last item of the page. It holds no state on a server, and survives inserts: the next page starts after
that position. A cursor that is damaged, of another list or of another format is a `CursorInvalid`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dagmaster.errors import CursorInvalid, QueryInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dagmaster.records.page import Position

T = TypeVar("T")

MAX_LIMIT: Final = 1_000
"""The most items that a page can have."""
_VERSION: Final = 1
_MAX_LENGTH: Final = 2_000
SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1
"""The numbers that a database can store. A cursor with another one is of no list."""


class CursorKind(StrEnum):
    """Which list a cursor belongs to."""

    JOBS = "jobs"
    NODES = "nodes"
    JOB_NODES = "job_nodes"
    TASKS = "tasks"
    FINISHED_TASKS = "finished_tasks"
    EVENTS = "events"
    RECENT_EVENTS = "recent_events"
    LOGS = "logs"
    LOG_LINES = "log_lines"
    WORKFLOWS = "workflows"
    VERSIONS = "versions"
    ATTEMPTS = "attempts"
    COMMANDS = "commands"
    FOOTPRINTS = "footprints"
    TIMELINE = "timeline"
    ORCHESTRATORS = "orchestrators"
    WORKERS = "workers"
    QUEUES = "queues"
    AUDIT_TRAIL = "audit_trail"
    HANDLERS = "handlers"
    API_KEYS = "api_keys"
    INVARIANTS = "invariants"
    METRIC_REBUILD = "metric_rebuild"
    GRAPH_TASKS = "graph_tasks"
    REQUESTS = "requests"
    GRAPH_DEPENDENCIES = "graph_dependencies"
    CALLBACKS = "callbacks"
    REPLAYED_CALLBACKS = "replayed_callbacks"


_SHAPES: Final[dict[CursorKind, tuple[type, ...]]] = {
    CursorKind.JOBS: (str,),
    CursorKind.NODES: (str, str),
    CursorKind.JOB_NODES: (str, int, str),
    CursorKind.TASKS: (str,),
    CursorKind.FINISHED_TASKS: (float, str, int),
    CursorKind.EVENTS: (int,),
    CursorKind.RECENT_EVENTS: (float, str, int),
    CursorKind.LOGS: (float, str, int),
    CursorKind.LOG_LINES: (float, str, int, int),
    CursorKind.WORKFLOWS: (str,),
    CursorKind.VERSIONS: (int,),
    CursorKind.ATTEMPTS: (int,),
    CursorKind.COMMANDS: (str,),
    CursorKind.FOOTPRINTS: (str, int),
    CursorKind.TIMELINE: (str, int),
    CursorKind.ORCHESTRATORS: (str,),
    CursorKind.WORKERS: (str,),
    CursorKind.QUEUES: (str,),
    CursorKind.AUDIT_TRAIL: (int,),
    CursorKind.HANDLERS: (str,),
    CursorKind.API_KEYS: (float, str),
    CursorKind.INVARIANTS: (str, int),
    CursorKind.METRIC_REBUILD: (int,),
    CursorKind.GRAPH_TASKS: (int,),
    CursorKind.REQUESTS: (float, str),
    CursorKind.GRAPH_DEPENDENCIES: (int,),
    CursorKind.CALLBACKS: (int,),
    CursorKind.REPLAYED_CALLBACKS: (int,),
}
"""The types of the parts of a position."""


def encode_cursor(kind: CursorKind, position: Sequence[int | float | str]) -> str:
    text = json.dumps([_VERSION, kind.value, list(position)], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def start_page(
    kind: CursorKind, cursor: str | None, limit: int, *, max_limit: int = MAX_LIMIT
) -> Position | None:
    """Return the position that a page starts after; raise `QueryInvalid` if the limit is too large."""
    if type(limit) is not int or not 1 <= limit <= max_limit:
        raise QueryInvalid(f"a page has 1 to {max_limit:,} items, not {limit!r:.100}", field="limit")
    return decode_cursor(kind, cursor)


def next_cursor(
    kind: CursorKind, records: Sequence[T], limit: int, position: Callable[[T], Sequence[int | float | str]]
) -> str | None:
    """Return the cursor after the last record of a full page; None after the last page."""
    return encode_cursor(kind, position(records[-1])) if len(records) == limit else None


def decode_cursor(kind: CursorKind, cursor: str | None) -> Position | None:
    """Return the position of a cursor, None without one; raise `CursorInvalid` for another list's."""
    if cursor is None:
        return None
    version, cursor_kind, position = _parse(cursor)
    if version != _VERSION:
        raise CursorInvalid(
            f"the cursor has format {version!r}, not {_VERSION}: start again without a cursor"
        )
    if cursor_kind != kind:
        raise CursorInvalid(f"the cursor belongs to a list of {cursor_kind!r}, not of {kind.value!r}")
    shape = _SHAPES[kind]
    if (
        not isinstance(position, list)
        or len(position) != len(shape)
        or not all(map(_is_of_type, position, shape))
    ):
        raise damaged_cursor()
    return tuple(float(part) if of is float else part for part, of in zip(position, shape, strict=True))


def _parse(cursor: str) -> tuple[Any, Any, Any]:
    if not cursor.isascii() or len(cursor) > _MAX_LENGTH:
        raise damaged_cursor()
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        version, kind, position = json.loads(text)
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise damaged_cursor() from error
    return version, kind, position


def _is_of_type(part: object, of: type) -> bool:
    if isinstance(part, bool):
        return False
    if of is float:
        return isinstance(part, int | float) and math.isfinite(part)
    return isinstance(part, of) and not (isinstance(part, int) and not SMALLEST_INT <= part <= LARGEST_INT)


def damaged_cursor() -> CursorInvalid:
    return CursorInvalid(
        "the cursor is damaged: use `next_cursor` of the page before as it is, or start without one"
    )
