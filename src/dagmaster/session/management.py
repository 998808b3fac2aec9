"""Read and control jobs and tasks: of the context around the code, the database of the settings, or a server.

Every function takes `url` and `key` of a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dagmaster.application.commands import control
from dagmaster.application.commands.resume import ResumeRequest, resume_job
from dagmaster.application.job_filters import parse_status
from dagmaster.application.job_lookup import LAST
from dagmaster.application.queries import graph_tasks
from dagmaster.application.queries import jobs as job_queries
from dagmaster.application.queries.graph_tasks import find_task, list_graph_tasks
from dagmaster.authoring.python.graph_items import APPLIED, Dependency, Task, create_task
from dagmaster.authoring.python.running_task import get_running_task
from dagmaster.client.system import current_user
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import NodeNotFound
from dagmaster.ports.job_filter import JobFilter
from dagmaster.records.record import Record
from dagmaster.sdk.json_forms import short_repr
from dagmaster.session.current_context import a_context, lasting
from dagmaster.session.job import Job, id_digits, job_number, to_datetime
from dagmaster.text_format import format_error, traceback_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from dagmaster.application.views import JobRecord
    from dagmaster.application.views.graph_tasks import GraphTaskView
    from dagmaster.engine.status import JobStatus
    from dagmaster.records.page import Page
    from dagmaster.session.context import OrchContext

V = TypeVar("V", bound=Record)
TaskStatus = NodeStatus
"""The status of a task: PENDING, READY, DISPATCHED (in a queue), CLAIMED, RUNNING, WAITING, COMPLETED,
FAILED, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task as it was when it was read. `result` is what its function returned; `attempts`: so far.

    The result of another task is named in `kwargs`: `{{ nodes.extract.output }}`. `group` is the name of its
    group, `group_id` the id of the `Group`. `traceback`: that of its last attempt, if that raised an
    exception. `log_path`: the file of what its attempts printed and of their errors (`get_logs_dir`); None if
    `DAGMASTER_LOG_DIR` is not set here and the default directory has none.
    """

    id: int
    job_id: int
    node_id: str
    group: str | None
    group_id: int | None
    entrypoint: str | None
    kwargs: Mapping[str, Any]
    queue: str | None
    status: TaskStatus
    result: Any
    error: str | None
    traceback: str | None
    attempts: int
    worker_id: int | None
    log_path: str | None
    created_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None


async def get_job(job_id: int | str, *, url: str | None = None, key: str | None = None) -> Job:
    """Return a job, or the newest one, which is `last`; raise `JobNotFound`."""
    number = LAST if job_id == LAST else str(job_number(job_id))
    async with a_context(url, key) as context:
        return await _read(context, number)


async def list_jobs(
    status: JobStatus | str | None = None,
    *,
    name: str | None = None,
    limit: int = 100,
    url: str | None = None,
    key: str | None = None,
) -> list[Job]:
    """Return the newest jobs with this status ("failed", or a `JobStatus`) first, without their results."""
    jobs = JobFilter(statuses=frozenset() if status is None else frozenset({parse_status(status)}), name=name)
    async with a_context(url, key) as context:
        page = await context.backend.call(job_queries.list_jobs, jobs, limit=limit)
        return [_job_of(context, view) for view in page.items]


async def cancel_job(
    job_id: int | str, *, comment: str = "", url: str | None = None, key: str | None = None
) -> Job:
    """Ask a job to stop: nothing new starts, and running tasks are asked to stop. `comment`: why.

    Return the job as it is when that is decided: its running tasks may still have to end. One that nobody
    owns, in a database or in memory, ends at once, also without an orchestrator. The second time it raises
    `JobAlreadyCancelled`.
    """
    number = str(job_number(job_id))
    async with a_context(url, key) as context:
        await context.backend.call(control.cancel_job, number, sent_by=current_user(), comment=comment)
        return await _read(context, number)


async def retry_failed_tasks(job_id: int | str, *, url: str | None = None, key: str | None = None) -> Job:
    """Run again what failed in a finished job, was cancelled, or was skipped because of it."""
    number = str(job_number(job_id))
    async with a_context(url, key) as context:
        await context.backend.call(resume_job, number, ResumeRequest(sent_by=current_user()))
        return await _read(context, number)


async def get_task(task_id: int | str, *, url: str | None = None, key: str | None = None) -> TaskInfo:
    """Return a task by the id of its `Task`; raise `NodeNotFound`."""
    digits = _task_digits(task_id)
    async with a_context(url, key) as context:
        return _task_info(await context.backend.call(find_task, digits))


async def list_tasks(job_id: int | str, *, url: str | None = None, key: str | None = None) -> list[TaskInfo]:
    """Return the tasks of a job that were made in Python, in the order in which they were added.

    Without their results, tracebacks and log files: `get_task` returns these.
    """
    number = str(job_number(job_id))
    async with a_context(url, key) as context:
        return [_task_info(view) for view in await _all_pages(context, list_graph_tasks, number)]


async def list_dependencies(
    job_id: int | str, *, url: str | None = None, key: str | None = None
) -> list[Dependency]:
    """Return the dependencies of a job between tasks and groups that were made in Python."""
    number = str(job_number(job_id))
    async with a_context(url, key) as context:
        views = await _all_pages(context, graph_tasks.list_dependencies, number)
    return [
        Dependency(int(view.previous_id), view.previous_type.value, int(view.next_id), view.next_type.value)
        for view in views
    ]


async def _all_pages(context: OrchContext, query: Callable[..., Awaitable[Page[V]]], job_id: str) -> list[V]:
    views: list[V] = []
    cursor: str | None = None
    while True:
        page = await context.backend.call(query, job_id, cursor=cursor)
        views += page.items
        cursor = page.next_cursor
        if cursor is None:
            return views


async def add_task_to_job(
    job_id: int | str,
    entrypoint: str | Callable[..., Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    url: str | None = None,
    key: str | None = None,
    **options: Any,
) -> Task:
    """Add a task to a job that has not finished, and return it. `options`: as of `Task`."""
    number, task = job_number(job_id), create_task(entrypoint, kwargs, **options)
    running = get_running_task()
    if running is not None and running.job_id == number:
        return await running.apply(task, at_once=True)
    async with a_context(url, key) as context:
        return await context.add(task, number)


async def _read(context: OrchContext, job_id: str) -> Job:
    view, result = await context.backend.read_job(job_id)
    return _job_of(context, view, result)


def _job_of(context: OrchContext, view: JobRecord, result: Any = None) -> Job:
    server = context.backend.server
    return Job(int(view.job_id), view.name, lasting(context), server=server).update(view, result)


def _task_digits(task_id: object) -> str:
    digits = id_digits(task_id)
    if not digits:
        hint = "give its id: task.id" if isinstance(task_id, Task) else "the id of a task is a whole number"
        raise NodeNotFound(f"there is no task {short_repr(task_id)}: {hint}")
    return digits


def _task_info(view: GraphTaskView) -> TaskInfo:
    from dagmaster.settings.log_directory import log_path_of

    if (task := APPLIED.get(int(view.task_id))) is not None:
        task.status = view.status
    return TaskInfo(
        id=int(view.task_id),
        job_id=int(view.job_id),
        node_id=view.node_id,
        group=view.group,
        group_id=None if view.group_id is None else int(view.group_id),
        entrypoint=view.entrypoint,
        kwargs=view.kwargs,
        queue=view.queue,
        status=view.status,
        result=view.result,
        error=None if view.error is None else format_error(view.error),
        traceback=traceback_of(view.error),
        attempts=view.attempts,
        worker_id=None if view.worker_id is None else int(view.worker_id),
        log_path=None if view.attempt_id is None else log_path_of(view.task_id),
        created_at=to_datetime(view.created_at),
        claimed_at=to_datetime(view.claimed_at),
        started_at=to_datetime(view.started_at),
        completed_at=to_datetime(view.completed_at),
    )
