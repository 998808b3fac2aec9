"""Results that are pushed: the words in which a wake-up brings what was reported, so that nobody has to read it.

A wake-up proves nothing: anybody who reaches the database can send one. What it brings is looked at here like
everything that enters, and the turn that applies it is written only if the very same is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.json_text import JsonText
from dagmaster.ports.turn_records import TaskResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.ports.task_ledger import TaskReport

FEW: Final = 8
"""So many reports are pushed; more are read, which costs less a piece."""

MAX_CHARACTERS: Final = 4_000
"""Of outputs and errors. PostgreSQL takes a notification of 8,000 bytes, and quotes and accents take several."""

MAX_PUSHED: Final = 1_000
"""So many may wait to be taken. Who is behind reads."""

_STATUSES: Final = frozenset({"COMPLETED", "FAILED", "LOST", "RELEASED"})


def fits_notification(reports: Sequence[TaskReport]) -> bool:
    """Return whether reports are small enough to be pushed."""
    return len(reports) <= FEW and sum(map(_size, reports)) <= MAX_CHARACTERS


def _size(report: TaskReport) -> int:
    output = None if report.output is None else report.output.text
    return len(output or "") + len(report.error or "")


def encode_results(results: Iterable[TaskResult]) -> str:
    """Results as they are pushed; the statement `worker.report` spells them likewise."""
    return json.dumps([result.content for result in results])


def read_results(text: str) -> list[TaskResult]:
    """Return what was pushed. `ValueError` if nobody of us says such a thing."""
    try:
        rows = json.loads(text)
        if not isinstance(rows, list) or not rows:
            raise ValueError("no results")
        return [_result(row) for row in rows]
    except (TypeError, RecursionError) as error:
        raise ValueError(f"no results: {error}") from error


def _result(row: Any) -> TaskResult:
    number, job_id, node_id, attempt, status, permanent, output, ref, error, claimed_at, reported_at, version = row
    if (
        not all(isinstance(each, int) and 0 <= each < 1 << 63 for each in (number, job_id))
        or not (isinstance(attempt, int) and 0 <= attempt < 1 << 31)
        or any(isinstance(each, str) and "\0" in each for each in row)
        or not all(each is None or isinstance(each, str) for each in (output, ref, error, version))
        or not isinstance(node_id, str)
        or not isinstance(permanent, bool)
        or status not in _STATUSES
        or (error is not None and not isinstance(json.loads(error), dict))
    ):
        raise ValueError("no result of a task")
    if output is not None:
        json.loads(output)
    found = JsonText(output, ref) if output is not None or ref is not None else None
    claimed = None if claimed_at is None else float(claimed_at)
    return TaskResult(
        number, str(job_id), node_id, attempt, status, permanent, found, error, claimed, float(reported_at),
        version,
    )  # fmt: skip


class NotificationInbox:
    """What an orchestrator hears of: the part of its door that is the same for every store."""

    def __init__(self) -> None:
        self.wakeup = asyncio.Event()
        self.pending_kinds: set[str] = set()
        self.notified_results: list[TaskResult] = []
        self.on_disconnect: Callable[[], None] = lambda: None

    def hear_of_jobs(self, said: str) -> None:
        """There are jobs to claim; or something was asked of one, which this owner may have claimed a moment ago."""
        self._wake("jobs")
        if said:
            self._wake(said)

    def hear(self, said: str) -> None:
        """Somebody was told to wake this owner: with what there is, or with the word for it."""
        what, _, brought = said.partition(" ")
        if brought and len(self.notified_results) < MAX_PUSHED:
            with contextlib.suppress(ValueError, OverflowError):
                self.notified_results += read_results(brought)
                self.wakeup.set()
                return
        self._wake(what)

    def _wake(self, what: str) -> None:
        self.pending_kinds.add(what)
        self.wakeup.set()
