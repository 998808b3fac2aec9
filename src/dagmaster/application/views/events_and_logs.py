"""Views of audit events, logs and pending commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagmaster.ports.audit_events import StoredEvent
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView(StoredEvent, order={"job_id": "", "data": "checkpoint_name"}):
    """An audit event. Events of a job are numbered without gaps by `seq`; `sentence` is the event for people.

    `event_status` is success, failure, warning or info; `checkpoint_name` is that of a saved checkpoint.
    An orchestrator of a newer version may write types that this version does not know.
    """

    job_id: str
    event_status: str
    checkpoint_name: str | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCountsView(Record):
    """How many events of which type there were in a range of time."""

    since: Timestamp | None
    until: Timestamp | None
    counts: Mapping[str, int]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView(Record):
    """A chunk of what an attempt wrote. It may end within a line. `cursor`: begins after it."""

    job_id: str
    node_id: str
    attempt: int
    at: Timestamp
    text: str
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLineView(LogView, order={"level": "at", "line": "level", "chunk": "text"}):
    """A line of a log that matches a search.

    `line`: its number in its chunk, from 1; `chunk`: the cursor after that.

    A line that goes on in further chunks is here as a whole, in the chunk where it begins.

    `level` is that of the log record it belongs to, with the lines of its traceback; null for what was
    printed.
    """

    level: str | None
    line: int
    chunk: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandView(Record):
    """A command that no orchestrator has processed yet. One of a newer version may have another kind."""

    command_id: str
    kind: CommandKind | str
    sent_by: str
    age_seconds: float
