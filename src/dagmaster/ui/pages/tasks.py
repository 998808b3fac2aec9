"""Tasks across jobs, in flight or finished: filters in the address, who ran them, how long executions took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import AttemptRecord, AttemptStatus
from dagmaster.ports.finished_tasks import MAX_SCANNED
from dagmaster.text_format import format_count, format_error
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.charts import BarChart, histogram_chart
from dagmaster.ui.pages.fleet import MemberRow, fleet_page
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.node_rows import node_path
from dagmaster.ui.pages.times import Duration, Moment, duration, moment

if TYPE_CHECKING:
    from dagmaster.application.views import DurationReport, FleetRecord, Page, TaskRecord

PATH: Final = "/ui/tasks"
STATES: Final = (
    ("", "in flight"),
    ("waiting", "waits in its queue"),
    ("claimed", "claimed by a worker"),
    ("finished", "finished"),
    *((status.lower(), status.lower()) for status in AttemptStatus),
)
IN_FLIGHT: Final = ("", "waiting", "claimed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksQuery:
    """What the address asks for, as text: it is shown again as it was typed."""

    queue: str = ""
    worker_id: str = ""
    job_id: str = ""
    handler: str = ""
    state: str = ""

    def path(self, **changes: str) -> str:
        """Return the address of this list, or of another one."""
        names = ("queue", "worker_id", "job_id", "handler", "state")
        return with_query(PATH, **{name: getattr(self, name) for name in names} | changes)

    @property
    def is_finished(self) -> bool:
        return self.state not in IN_FLIGHT

    @property
    def is_filtered(self) -> bool:
        """Return whether anything is left out."""
        return self.path(state="") != PATH or self.state not in ("", "finished")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task of the list.

    `waited`: how long it was in its queue; `runs`: how long its handler runs, or ran.
    """

    task_id: str
    href: str
    node_id: str
    job_id: str
    job_href: str
    status: str
    handler: str
    queue: str
    queue_href: str
    attempt: int
    worker: str
    worker_href: str
    dispatched: Moment | None
    waited: Duration | None
    runs: Duration | None
    finished: Moment | None = None
    percent: int | None = None
    priority: int = 0
    message: str = ""
    note: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksPage:
    """A page of the list. `workers`: the live ones, with what they run.

    `problem`: why the filters cannot be used.
    """

    query: TasksQuery
    problem: str
    rows: tuple[TaskRow, ...]
    workers: tuple[MemberRow, ...]
    states: tuple[tuple[str, str], ...]
    histogram: BarChart
    days: int
    summary: str
    first: str
    next: str
    in_flight_href: str
    finished_href: str
    title: str = "Tasks"


def tasks_page(
    query: TasksQuery,
    page: Page[TaskRecord] | Page[AttemptRecord] | None,
    *,
    fleet: FleetRecord,
    durations: DurationReport,
    days: int,
    now: float,
    cursor: str | None,
    problem: str = "",
) -> TasksPage:
    """Return the list of tasks in flight, or of finished ones."""
    views = () if page is None else page.items
    following = None if page is None else page.next_cursor
    places = {one.worker_id: f"{one.host}:{one.pid}" for one in fleet.workers}
    return TasksPage(
        query=query,
        problem=problem,
        rows=tuple(
            _finished_row(view, query, now)
            if isinstance(view, AttemptRecord)
            else _row(view, query, places, now)
            for view in views
        ),
        workers=tuple(row for row in fleet_page(fleet).workers if row.tasks_href),
        states=STATES,
        histogram=histogram_chart(durations),
        days=days,
        summary=_summary(len(views), has_more=following is not None, is_finished=query.is_finished),
        first="" if cursor is None else query.path(),
        next="" if following is None else query.path(cursor=following),
        in_flight_href=query.path(state=""),
        finished_href=query.path(state="finished", handler=""),
    )


def _summary(count: int, *, has_more: bool, is_finished: bool) -> str:
    if is_finished and has_more and not count:
        return f"None of the {MAX_SCANNED:,} tasks that finished last: go on with older ones"
    return f"{format_count(count, 'task')} on this page"


def _row(view: TaskRecord, query: TasksQuery, places: dict[str, str], now: float) -> TaskRow:
    progress = view.progress
    percent = None
    if progress is not None and progress.total:
        percent = max(0, min(100, int(progress.current * 100 / progress.total)))
    worker_id = view.worker_id or ""
    return TaskRow(
        task_id=view.task_id,
        href=node_path(view.job_id, view.node_id),
        node_id=view.node_id,
        job_id=view.job_id,
        job_href=job_path(view.job_id),
        status=view.status.value,
        handler=view.handler,
        queue=view.queue,
        queue_href=query.path(queue=view.queue),
        attempt=view.attempt,
        priority=view.priority,
        worker=places.get(worker_id, worker_id),
        worker_href=query.path(worker_id=worker_id) if worker_id else "",
        dispatched=moment(view.dispatched_at, now),
        waited=duration(view.dispatched_at, view.claimed_at, now),
        runs=duration(view.started_at, None, now),
        percent=percent,
        message="" if progress is None else progress.message,
        note=_note(view),
    )


def _finished_row(view: AttemptRecord, query: TasksQuery, now: float) -> TaskRow:
    worker_id = view.worker_id or ""
    return TaskRow(
        task_id=view.task_id,
        href=node_path(view.job_id, view.node_id),
        node_id=view.node_id,
        job_id=view.job_id,
        job_href=job_path(view.job_id),
        status=view.status.value,
        handler="",
        queue=view.queue,
        queue_href=query.path(queue=view.queue),
        attempt=view.attempt,
        worker=view.worker or worker_id,
        worker_href=query.path(worker_id=worker_id) if worker_id else "",
        dispatched=moment(view.dispatched_at, now),
        waited=duration(view.dispatched_at, view.started_at or view.claimed_at or view.finished_at, now),
        runs=duration(view.started_at, view.finished_at, now),
        finished=moment(view.finished_at, now),
        error="" if view.error is None else format_error(view.error),
    )


def _note(view: TaskRecord) -> str:
    if view.stop_requested_at is not None:
        return "asked to stop"
    return "runs alone" if view.isolation.name == "EXCLUSIVE" else ""
