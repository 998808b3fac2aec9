"""The list of jobs, and changes of several of them."""

from __future__ import annotations

import time
from typing import Annotated, Final, Literal

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.commands.job_selection import JobAction, change_jobs
from dagmaster.application.job_filters import parse_job_filter
from dagmaster.application.queries.jobs import find_successors, list_jobs, show_jobs
from dagmaster.application.queries.workflows import list_workflows
from dagmaster.application.views import Page
from dagmaster.errors import CursorInvalid, QueryInvalid
from dagmaster.http.parameters import Cursor
from dagmaster.http.services import App, Caller
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_filter import JOB_FILTER, JobFilter, Match
from dagmaster.text_format import format_count
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.jobs import MAX_BULK, JobsQuery, bulk_page, jobs_page
from dagmaster.ui.rendering import render

routes = PageRoutes()
ROWS: Final = 50
WORKFLOWS: Final = 200
"""How many workflows the filter suggests."""
TEXTS: Final = tuple(
    one.parameter for one in JOB_FILTER.values() if one.match not in (Match.STATUS, Match.IDS)
)
"""The parameters of a filter that have one text."""
Action = Annotated[Literal["cancel", "resume"], Query()]
JobIds = Annotated[list[str], Query(alias="job_id", max_length=MAX_BULK)]


@routes.get("/ui/jobs", Scope.READ, reach=Reach.JOBS)
async def jobs(
    request: Request,
    app: App,
    status: Annotated[list[str] | None, Query(max_length=20)] = None,
    cursor: Cursor = None,
) -> Response:
    """List jobs, newest first."""
    query = JobsQuery(
        statuses=tuple(word.lower() for word in status or ()),
        texts={name: request.query_params.get(name, "").strip() for name in TEXTS},
    )
    published = await list_workflows(app, limit=WORKFLOWS)
    workflows = [workflow.workflow_id for workflow in published.items]
    try:
        page = await list_jobs(app, _job_filter(query), cursor=cursor, limit=ROWS)
    except (QueryInvalid, CursorInvalid) as error:
        content = jobs_page(
            query, Page(items=()), workflows=workflows, successors={}, cursor=cursor, problem=str(error)
        )
        return render(request, "jobs.html", content, status=400)
    successors = await find_successors(app, [view.job_id for view in page.items])
    content = jobs_page(query, page, workflows=workflows, successors=successors, cursor=cursor)
    return render(request, "jobs.html", content)


@routes.get("/ui/jobs/bulk", Scope.OPERATE, reach=Reach.JOBS)
async def confirm_bulk(request: Request, app: App, action: Action, job_ids: JobIds) -> Response:
    """Show what a change of several jobs would do."""
    return render(request, "bulk.html", bulk_page(action, await show_jobs(app, job_ids)))


@routes.post("/ui/jobs/bulk", Scope.OPERATE, reach=Reach.JOBS)
async def change_bulk(app: App, caller: Caller, form: FormFields) -> Response:
    """Cancel or resume several jobs.

    Each is a separate command: one that is rejected does not stop the others.
    """
    action, job_ids = form.text("action"), form.texts("job_id")
    if action not in ("cancel", "resume"):
        raise QueryInvalid("action: cancel or resume")
    if not 1 <= len(job_ids) <= MAX_BULK:
        raise QueryInvalid(f"job_id: choose 1 to {MAX_BULK} jobs")
    result = await change_jobs(app, JobAction(action), job_ids, sent_by=caller.actor)
    problems = [f"{one.job_id}: {one.sentence}" for one in result.outcomes if not one.accepted]
    return see_other("/ui/jobs", _bulk_notice(action, result.accepted_count, problems))


def _bulk_notice(action: str, count: int, problems: list[str]) -> Notice:
    verb = "cancelling" if action == "cancel" else "resuming"
    text = f"{verb} {format_count(count, 'job')}".capitalize()
    if not problems:
        return Notice(f"{text}.")
    return Notice(f"{text}. {format_count(len(problems), 'job')} not: {'; '.join(problems[:3])}", "warning")


def _job_filter(query: JobsQuery) -> JobFilter:
    for one in JOB_FILTER.values():
        text = query.texts.get(one.parameter, "")
        if len(text) > one.max_length:
            raise QueryInvalid(f"at most {one.max_length} characters", field=one.parameter)
        if one.match is Match.ID and text:
            _check_digits(one.parameter, text)
    texts = {name: text for name, text in query.texts.items() if text}
    return parse_job_filter(now=time.time(), status=query.statuses, **texts)


def _check_digits(name: str, text: str) -> None:
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004 - the digits of 64 bits
        raise QueryInvalid(f"{name}: the id of a job has only digits")
