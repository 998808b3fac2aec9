"""Tasks across jobs, in flight or finished: filters in the address, who ran them, how long they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import AttemptRecord, AttemptStatus
from dagmaster.ports.finished_tasks import MAX_SCANNED
from dagmaster.text_format import format_count, format_error
from dagmaster.ui.pages.charts import BarChart, histogram_chart
from dagmaster.ui.pages.fleet import MemberRow, fleet_page
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.list_pages import ListPage, ListQuery
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
class TasksQuery(ListQuery):
    """The filters of tasks."""

    address = PATH
    queue: str = ""
    worker_id: str = ""
    job_id: str = ""
    handler: str = ""
    state: str = ""

    @property
    def is_finished(self) -> bool:
        return self.state not in IN_FLIGHT

    @property
    def is_filtered(self) -> bool:
        return self.path(state="") != PATH or self.state not in ("", "finished")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task of the list.

    `waited`: how long it was in its queue; `runs`: how long its handler runs, or ran.
    """

    record: TaskRecord | AttemptRecord
    handler: str = ""
    worker: str
    queue_href: str
    worker_href: str
    waited: Duration | None
    runs: Duration | None
    finished: Moment | None = None
    percent: int | None = None
    priority: int = 0
    message: str = ""
    note: str = ""
    error: str = ""

    @property
    def href(self) -> str:
        return node_path(self.record.job_id, self.record.node_id)

    @property
    def job_href(self) -> str:
        return job_path(self.record.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksPage(ListPage[TasksQuery, TaskRow]):
    """The list of tasks. `workers`: the live ones, with what they run."""

    noun = "task"
    workers: tuple[MemberRow, ...]
    states: tuple[tuple[str, str], ...]
    histogram: BarChart
    days: int

    @property
    def summary(self) -> str:
        if self.query.is_finished and self.next_cursor is not None and not self.rows:
            return f"None of the {MAX_SCANNED:,} tasks that finished last: go on with older ones"
        return f"{format_count(len(self.rows), self.noun)} on this page"

    @property
    def in_flight_href(self) -> str:
        return self.query.path(state="")

    @property
    def finished_href(self) -> str:
        return self.query.path(state="finished", handler="")


def tasks_page(
    query: TasksQuery,
    page: Page[TaskRecord] | Page[AttemptRecord],
    *,
    fleet: FleetRecord,
    durations: DurationReport,
    days: int,
    now: float,
    cursor: str | None,
    problem: str = "",
) -> TasksPage:
    places = {one.worker_id: one.place for one in fleet.workers}
    return TasksPage(
        query=query,
        problem=problem,
        rows=tuple(
            _finished_row(task, query, now)
            if isinstance(task, AttemptRecord)
            else _row(task, query, places, now)
            for task in page.items
        ),
        cursor=cursor,
        next_cursor=page.next_cursor,
        workers=tuple(row for row in fleet_page(fleet).workers if row.tasks_href),
        states=STATES,
        histogram=histogram_chart(durations),
        days=days,
    )


def _row(task: TaskRecord, query: TasksQuery, places: dict[str, str], now: float) -> TaskRow:
    progress = task.progress
    percent = None
    if progress is not None and progress.total:
        percent = max(0, min(100, int(progress.current * 100 / progress.total)))
    worker_id = task.worker_id or ""
    return TaskRow(
        record=task,
        handler=task.handler,
        queue_href=query.path(queue=task.queue),
        priority=task.priority,
        worker=places.get(worker_id, worker_id),
        worker_href=query.path(worker_id=worker_id) if worker_id else "",
        waited=duration(task.dispatched_at, task.claimed_at, now),
        runs=duration(task.started_at, None, now),
        percent=percent,
        message="" if progress is None else progress.message,
        note=_note(task),
    )


def _finished_row(task: AttemptRecord, query: TasksQuery, now: float) -> TaskRow:
    worker_id = task.worker_id or ""
    return TaskRow(
        record=task,
        queue_href=query.path(queue=task.queue),
        worker=task.worker or worker_id,
        worker_href=query.path(worker_id=worker_id) if worker_id else "",
        waited=duration(task.dispatched_at, task.started_at or task.claimed_at or task.finished_at, now),
        runs=duration(task.started_at, task.finished_at, now),
        finished=moment(task.finished_at, now),
        error="" if task.error is None else format_error(task.error),
    )


def _note(task: TaskRecord) -> str:
    if task.stop_requested_at is not None:
        return "asked to stop"
    return "runs alone" if task.isolation.name == "EXCLUSIVE" else ""
