"""Results in notifications: an owner that is notified of small results need not read them from the table.

A notification is not trusted: every client of the database can send one. Its results are validated here, and
a turn that applies them is committed only if the same results are stored. The payload is `results FORMAT
JSON`. To a service of another version, whose format differs, it is a notification without results: it reads
the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.turn_records import TaskResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.ports.task_ledger import TaskReport

FORMAT: Final = "2"
"""The version of the JSON. Format 1, of versions before 0003 of the schema, had no number: JSON followed
`results`."""

MAX_REPORTS: Final = 8
"""How many reports a notification may have. More are read from the table, which costs less for each."""

MAX_CHARACTERS: Final = 4_000
"""The size of outputs and errors in a notification. PostgreSQL allows 8,000 bytes; quotes and accents need
several."""

MAX_NOTIFIED_RESULTS: Final = 1_000
"""How many notified results are kept for the next turn. Beyond that, results are read from the table."""

ATTEMPT_STATUSES: Final = {status.value: status for status in AttemptStatus}
"""Statuses by their stored text. A look-up takes a quarter of the time of a call of the enum."""


def fits_notification(reports: Sequence[TaskReport]) -> bool:
    """Return whether reports are small enough for a notification, and have nothing that needs the table."""
    is_small = len(reports) <= MAX_REPORTS and sum(map(_size, reports)) <= MAX_CHARACTERS
    return is_small and not any(
        report.has_checkpoints or report.added_at_once or report.added_rows is not None for report in reports
    )


def _size(report: TaskReport) -> int:
    output = None if report.output is None else report.output.text
    return len(output or "") + len(report.error or "")


def encode_results(results: Iterable[TaskResult]) -> str:
    """Return the payload for results; the statement `worker.report` builds the same."""
    return f"results {FORMAT} {json.dumps([result.content for result in results])}"


def decode_results(text: str) -> list[TaskResult]:
    """Return the results of a payload after its kind; raise `ValueError` if it or its format is invalid."""
    version, _, rows_text = text.partition(" ")
    if version != FORMAT:
        raise ValueError(f"the payload has another format than {FORMAT}")
    try:
        rows = json.loads(rows_text)
        if not isinstance(rows, list) or not rows:
            raise ValueError("the payload has no results")
        return [_result(row) for row in rows]
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the payload has no results: {error}") from error


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 63


def _is_attempt(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 31


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_text_or_null(value: Any) -> bool:
    return value is None or _is_text(value)


def _is_object_or_null(value: Any) -> bool:
    return value is None or (_is_text(value) and isinstance(json.loads(value), dict))


_CHECKS: Final[tuple[Callable[[Any], bool], ...]] = (
    _is_id,  # number
    _is_id,  # job_id
    _is_text,  # node_id
    _is_attempt,
    ATTEMPT_STATUSES.__contains__,
    _is_bool,  # permanent
    _is_text_or_null,  # output
    _is_text_or_null,  # ref
    _is_object_or_null,  # error
)
"""In the order of the values of a row. Those after them are checked as they are read."""


def _result(row: Any) -> TaskResult:
    *checked, started_at, reported_at, version = row
    if not (
        _is_text_or_null(version) and all(check(value) for check, value in zip(_CHECKS, checked, strict=True))
    ):
        raise ValueError("the payload has an invalid result")
    number, job_id, node_id, attempt, status, permanent, output, ref, error = checked
    if output is not None:
        json.loads(output)
    value = None if output is None and ref is None else JsonText(output, ref)
    started = None if started_at is None else float(started_at)
    return TaskResult(
        number, str(job_id), node_id, attempt, ATTEMPT_STATUSES[status], permanent, value, error, started,
        float(reported_at), version,
    )  # fmt: skip


class NotificationInbox:
    """Receives the notifications of an orchestrator. It is the same for every store."""

    def __init__(self) -> None:
        self.wakeup = asyncio.Event()
        self.pending_kinds: set[str] = set()
        self.notified_results: list[TaskResult] = []
        self.on_disconnect: Callable[[], None] = lambda: None

    def on_jobs(self, payload: str) -> None:
        """Wake up for unowned jobs.

        A payload names a kind: this owner may have claimed the job a moment ago.
        """
        self._wake("jobs")
        if payload:
            self._wake(payload)

    def on_notification(self, payload: str) -> None:
        """Wake up for a kind, results or commands; results may follow it."""
        kind, _, results = payload.partition(" ")
        if results and len(self.notified_results) < MAX_NOTIFIED_RESULTS:
            with contextlib.suppress(ValueError, OverflowError):
                self.notified_results += decode_results(results)
                self.wakeup.set()
                return
        self._wake(kind)

    def _wake(self, kind: str) -> None:
        self.pending_kinds.add(kind)
        self.wakeup.set()
