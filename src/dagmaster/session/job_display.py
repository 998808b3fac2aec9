"""A job as a table: in a notebook, where it is updated in place, or as lines of text.

It reads the job again and again; neither a server nor a widget is needed, and IPython only where it is
running.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final, Self

from dagmaster.engine.graph import Kind, is_hold
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import DagmasterError
from dagmaster.session.backends import open_backend
from dagmaster.text_format import format_count, format_error, visible_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from dagmaster.application.views import JobDetailView
    from dagmaster.records.nodes import NodeRecord
    from dagmaster.session.job import Job

MAX_ROWS: Final = 50
"""How many nodes a table has. Of more, those that failed or run."""
_RANKS: Final = {
    status: rank
    for rank, status in enumerate(
        (NodeStatus.FAILED, NodeStatus.RUNNING, NodeStatus.CLAIMED, NodeStatus.DISPATCHED, NodeStatus.WAITING)
    )
}
_COLOURS: Final = {
    "COMPLETED": "#0f9d6c",
    "FAILED": "#cf3a3a",
    "CANCELLED": "#8a5a00",
    "RUNNING": "#2f6fe4",
    "WAITING": "#a8632c",
}
_GREY: Final = "#66717f"
_COLUMNS: Final = ("node", "runs", "status", "attempts", "seconds", "error")
_LOGGER = logging.getLogger("dagmaster.session")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobTable:
    """A job and its nodes as they were when they were read.

    `counts`: nodes by status; `hidden`: without a row.
    """

    job_id: int
    name: str
    status: str
    is_finished: bool
    error: str | None
    counts: Mapping[str, int] = field(default_factory=dict)
    rows: tuple[tuple[str, ...], ...] = ()
    hidden: int = 0

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {status}" for status, count in self.counts.items())
        error = f": {self.error}" if self.error else ""
        return f"job {self.job_id} {self.name}: {self.status}{f' ({counts})' if counts else ''}{error}"

    def __repr__(self) -> str:
        """Return the same line: a notebook shows it where it cannot show the table."""
        return str(self)

    def _repr_html_(self) -> str:
        status = _coloured(self.status)
        counts = " · ".join(f"{count:,} {escape(status)}" for status, count in self.counts.items())
        lines = [f"<b>{escape(self.name)}</b> (job {self.job_id}) {status}{f' · {counts}' if counts else ''}"]
        if self.error:
            lines.append(f"<div>{escape(self.error)}</div>")
        if self.rows:
            head = "".join(f"<th style='text-align:left'>{column}</th>" for column in _COLUMNS)
            body = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in self.rows)
            lines.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if self.hidden:
            lines.append(f"<div>and {format_count(self.hidden, 'more node')}</div>")
        return f"<div>{''.join(lines)}</div>"


class JobWatch:
    """Shows a job until it has ended. See `Job.watch`."""

    def __init__(self, job: Job, seconds: float) -> None:
        if seconds <= 0:
            raise ValueError(f"seconds is more than 0, not {seconds}")
        self.job = job
        self._seconds = seconds
        self._stopping = threading.Event()
        self._shown = ""
        # Here, and not on the thread: so it belongs to the cell that called.
        self.table = read_table(job)
        self._handle = _display(self.table)
        self._show(self.table)
        self._thread = threading.Thread(target=self._run, name="dagmaster-watch", daemon=True)
        self._thread.start()

    def wait(self, timeout_seconds: float | None = None) -> Job:
        self._thread.join(timeout_seconds)
        return self.job

    def stop(self) -> None:
        """Show the job as it is now, and stop."""
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self.table.is_finished:
            is_last = self._stopping.wait(self._seconds)
            self._refresh()
            if is_last:
                return

    def _refresh(self) -> None:
        try:
            self.table = read_table(self.job)
        except (DagmasterError, OSError, RuntimeError) as error:
            # It may be there again next time: a database that restarts, rows that change while they are read.
            _LOGGER.debug("could not read job %s: %s", self.job.id, error)
        else:
            self._show(self.table)

    def _show(self, table: JobTable) -> None:
        text = str(table) if self._handle is None else table._repr_html_()
        if text == self._shown:
            return
        self._shown = text
        if self._handle is None:
            sys.stdout.write(f"{visible_text(text)}\n")
        else:
            self._handle.update(table)

    def _ipython_display_(self) -> None:
        """Show nothing more: the table is there."""


def read_table(job: Job) -> JobTable:
    """Read a job again, set what is in it, and return its table."""
    from dagmaster.session.blocking import wait_for

    return wait_for(_read(job))


def snapshot(job: Job) -> JobTable:
    """Return the table of a job: read again if its context is open, else as it was read last."""
    if job.context is not None and job.context.is_open:
        try:
            return read_table(job)
        except (DagmasterError, OSError, RuntimeError) as error:
            _LOGGER.debug("could not read job %s: %s", job.id, error)
    if job.table is not None and job.table.status == job.status.value:
        return job.table
    return JobTable(
        job_id=job.id, name=job.name, status=job.status.value, is_finished=job.is_finished, error=job.error
    )


async def _read(job: Job) -> JobTable:
    from dagmaster.application.queries.job_detail import job_detail

    async with open_backend() if job.context is None else job.context.connect() as backend:
        view = await backend.call(job_detail, str(job.id))
        job.update(view, view.result)
        job.table = _to_table(job, view)
        return job.table


def _to_table(job: Job, view: JobDetailView) -> JobTable:
    hidden = _holds(view)
    node_ids = [node_id for node_id in view.dependencies if node_id not in hidden]
    statuses = {node_id: view.statuses.get(node_id, NodeStatus.PENDING) for node_id in node_ids}
    counts: dict[str, int] = {}
    for status in statuses.values():
        counts[status.value] = counts.get(status.value, 0) + 1
    if len(node_ids) > MAX_ROWS:
        node_ids.sort(key=lambda node_id: _RANKS.get(statuses[node_id], len(_RANKS)))
    return JobTable(
        job_id=job.id,
        name=job.name,
        status=job.status.value,
        is_finished=job.is_finished,
        error=job.error,
        counts=counts,
        rows=tuple(_row(view.nodes[node_id]) for node_id in node_ids[:MAX_ROWS]),
        hidden=max(len(node_ids) - MAX_ROWS, 0),
    )


def _holds(view: JobDetailView) -> set[str]:
    """Return the nodes with which a context keeps the job and its groups open: no author wrote them."""
    holds = {node_id for node_id in view.dependencies if is_hold(node_id)}
    return holds | {
        node_id for node_id, previous in view.dependencies.items() if not holds.isdisjoint(previous)
    }


def _row(node: NodeRecord) -> tuple[str, ...]:
    is_timed = node.started_at is not None and node.finished_at is not None and node.kind is not Kind.GROUP
    seconds = f"{(node.finished_at or 0) - (node.started_at or 0):.1f}" if is_timed else ""
    error = "" if node.error is None else format_error(node.error)
    return (node.node_id, node.action or "", node.status.value, str(node.attempt or ""), seconds, error)


def _cells(row: tuple[str, ...]) -> list[str]:
    columns = zip(_COLUMNS, row, strict=True)
    styled = [_coloured(text) if column == "status" else escape(text) for column, text in columns]
    return [f"<td style='text-align:left'>{cell}</td>" for cell in styled]


def _coloured(status: str) -> str:
    return f"<span style='color:{_COLOURS.get(status, _GREY)}'>{escape(status)}</span>"


def _display(table: JobTable) -> Any:
    """Show a table in the notebook that runs this, and return the handle that updates it; None elsewhere."""
    shell: ModuleType | None = sys.modules.get("IPython")
    if shell is None or shell.get_ipython() is None:
        return None
    return importlib.import_module("IPython.display").display(table, display_id=True)
