"""Logs of services: one line a record on standard error, as text or as JSON.

A line about a job has its ids as fields of the record (`extra`): JSON has each as a key, text appends those
that the sentence does not name. The logs of tasks are not these: see `worker.task_log_capture`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.text_format import visible_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_IDS: Final = 10
"""Ids that one record lists. Their number is always a separate field."""

_STANDARD_FIELDS: Final = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}
)


class LogFormat(StrEnum):
    """How a record is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe records that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggedTask(Protocol):
    """A task that a record is about."""

    @property
    def task_id(self) -> str: ...

    @property
    def job_id(self) -> str: ...

    @property
    def node_id(self) -> str: ...

    @property
    def attempt(self) -> int: ...


def task_fields(task: LoggedTask) -> dict[str, Any]:
    """Return the fields of a record about a task, for `extra`."""
    return {"job_id": task.job_id, "node_id": task.node_id, "attempt": task.attempt, "task_id": task.task_id}


def job_fields(job_ids: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a record about jobs, for `extra`: the first ids, and how many there are."""
    ids = list(job_ids)
    return {"job_ids": ids[:MAX_IDS], "jobs": len(ids)}


def set_process_field(name: str, value: str) -> None:
    """Add a field to every later JSON record of this process, as the id of its orchestrator or worker."""
    _PROCESS_FIELDS[name] = value


_PROCESS_FIELDS: Final[dict[str, str]] = {}


def configure_logs(log_format: LogFormat, level: LogLevel, *, redact: Callable[[str], str]) -> None:
    """Write the records of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(redact) if log_format is LogFormat.JSON else TextFormatter(redact))
    # Also on the handler: while tasks are captured, the root logger lets more records pass, for their logs.
    handler.setLevel(level.upper())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Alembic logs every step of a migration.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    silence_numexpr()
    logging.captureWarnings(capture=True)


def silence_numexpr() -> None:
    """Drop the lines about threads that numexpr logs when a library imports it. Its warnings are logged."""
    logging.getLogger("numexpr").setLevel(logging.WARNING)


class _Formatter(logging.Formatter):
    """A formatter that redacts secrets in the sentence and the traceback of a record."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def traceback_of(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        parts += [self.formatStack(record.stack_info)] if record.stack_info else []
        return self._redact("\n".join(parts))


class TextFormatter(_Formatter):
    """Time, level, logger, sentence, and the fields that the sentence does not name."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on separate lines."""
        message = self._redact(record.getMessage())
        fields = [
            f"{name}={','.join(values)}"
            for name, value in fields_of(record).items()
            if not _names_all(
                message, values := [str(one) for one in (value if isinstance(value, list) else [value])]
            )
        ]
        line = " ".join([_time_of(record), record.levelname, f"{record.name}:", message, *fields])
        trace = self.traceback_of(record)
        return visible_text(f"{line}\n{trace}" if trace else line)


class JsonFormatter(_Formatter):
    """One JSON object a line: time, level, logger, message, pid, fields of the process and of the record."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": self._redact(record.getMessage()),
            "pid": record.process,
            **_PROCESS_FIELDS,
            **fields_of(record),
        }
        trace = self.traceback_of(record)
        if trace:
            entry["traceback"] = trace
        return json.dumps(entry, ensure_ascii=False, default=str)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _names_all(message: str, values: list[str]) -> bool:
    words = set(re.findall(r"\w+", message))
    return all(value in words for value in values)


def _time_of(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
