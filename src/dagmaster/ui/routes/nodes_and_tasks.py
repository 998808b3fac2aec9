"""Nodes and tasks across jobs."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.context import Application
from dagmaster.application.queries.fleet import fleet
from dagmaster.application.queries.metrics import node_durations
from dagmaster.application.queries.nodes import list_finished_tasks, list_nodes, list_tasks
from dagmaster.application.queries.workflows import list_workflows
from dagmaster.application.views import AttemptRecord, AttemptStatus, NodeRecord, Page, TaskRecord
from dagmaster.errors import CursorInvalid, QueryInvalid
from dagmaster.http.parameters import MAX_ID, Cursor, parse_node_statuses
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.finished_tasks import FinishedTaskFilter
from dagmaster.ports.read_store import NodeFilter, TaskFilter
from dagmaster.ui.page_routes import PageRoutes
from dagmaster.ui.pages.nodes import NodesQuery, nodes_page
from dagmaster.ui.pages.tasks import STATES, TasksQuery, tasks_page
from dagmaster.ui.rendering import render

routes = PageRoutes()
ROWS: Final = 50
WORKFLOWS: Final = 200
"""How many workflows the filter suggests."""
DAYS: Final = 7
MAX_DIGITS: Final = 19
Word = Annotated[str, Query(max_length=MAX_ID)]


@routes.get("/ui/nodes", Scope.READ)
async def nodes(
    request: Request,
    app: App,
    status: Annotated[list[str] | None, Query(max_length=20)] = None,
    workflow_id: Annotated[str, Query(max_length=64)] = "",
    top_level: bool = False,
    cursor: Cursor = None,
) -> Response:
    """List nodes across jobs, newest job first."""
    query = NodesQuery(
        statuses=tuple(word.lower() for word in status or ()),
        workflow_id=workflow_id.strip(),
        top_level=top_level,
    )
    published, durations = await asyncio.gather(
        list_workflows(app, limit=WORKFLOWS),
        node_durations(app, workflow_id=query.workflow_id or None, days=DAYS),
    )
    problem = ""
    page: Page[NodeRecord] = Page(items=())
    try:
        node_filter = NodeFilter(
            statuses=parse_node_statuses(status), workflow_id=query.workflow_id or None, top_level=top_level
        )
        page = await list_nodes(app, node_filter, cursor=cursor, limit=ROWS)
    except (QueryInvalid, CursorInvalid) as error:
        problem = str(error)
    content = nodes_page(
        query,
        page,
        workflows=[workflow.workflow_id for workflow in published.items],
        durations=durations,
        days=DAYS,
        now=time.time(),
        cursor=cursor,
        problem=problem,
    )
    return render(request, "nodes.html", content, status=400 if problem else 200)


@routes.get("/ui/tasks", Scope.READ)
async def tasks(
    request: Request,
    app: App,
    queue: Word = "",
    worker_id: Word = "",
    job_id: Word = "",
    handler: Word = "",
    state: Word = "",
    cursor: Cursor = None,
) -> Response:
    """List tasks in flight across jobs, or finished ones, newest first."""
    query = TasksQuery(
        queue=queue.strip(),
        worker_id=worker_id.strip(),
        job_id=job_id.strip(),
        handler=handler.strip(),
        state=state,
    )
    members, durations = await asyncio.gather(fleet(app), node_durations(app, days=DAYS))
    problem = ""
    page: Page[TaskRecord] | Page[AttemptRecord] = Page(items=())
    try:
        page = await _list_tasks(app, query, cursor)
    except (QueryInvalid, CursorInvalid) as error:
        problem = str(error)
    content = tasks_page(
        query,
        page,
        fleet=members,
        durations=durations,
        days=DAYS,
        now=time.time(),
        cursor=cursor,
        problem=problem,
    )
    return render(request, "tasks.html", content, status=400 if problem else 200)


async def _list_tasks(
    app: Application, query: TasksQuery, cursor: str | None
) -> Page[TaskRecord] | Page[AttemptRecord]:
    states = [value for value, _ in STATES]
    if query.state not in states:
        raise QueryInvalid(f"state: one of {', '.join(filter(None, states))}")
    if not query.is_finished:
        return await list_tasks(app, _task_filter(query), cursor=cursor, limit=ROWS)
    if query.handler:
        raise QueryInvalid(
            "handler: finished tasks are not stored with their handler: clear it, or list by queue"
        )
    return await list_finished_tasks(app, _finished_filter(query), cursor=cursor, limit=ROWS)


def _finished_filter(query: TasksQuery) -> FinishedTaskFilter:
    return FinishedTaskFilter(
        queue=query.queue or None,
        worker_id=_digits("worker_id", query.worker_id),
        job_id=_digits("job_id", query.job_id),
        statuses=frozenset(status for status in AttemptStatus if status.lower() == query.state),
    )


def _task_filter(query: TasksQuery) -> TaskFilter:
    return TaskFilter(
        queue=query.queue or None,
        worker_id=_digits("worker_id", query.worker_id),
        job_id=_digits("job_id", query.job_id),
        handler=query.handler or None,
        is_claimed=None if not query.state else query.state == "claimed",
    )


def _digits(name: str, text: str) -> str | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise QueryInvalid(f"{name}: an id has only digits, at most {MAX_DIGITS}")
    return text
