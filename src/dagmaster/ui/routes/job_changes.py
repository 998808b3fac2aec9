"""Cancel and resume a job, cancel and retry nodes of it, with what it would do shown first."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.commands.control import (
    MAX_COMMENT,
    MAX_NAMED,
    cancel_job,
    cancel_nodes,
    choose_nodes,
    retry_nodes,
)
from dagmaster.application.commands.resume import ResumeRequest, plan_resume, resume_job
from dagmaster.application.context import Application
from dagmaster.application.queries.jobs import show_jobs
from dagmaster.application.views import CommandResult, SubmitResult
from dagmaster.http.parameters import MAX_ID, JobId
from dagmaster.http.services import App, Caller
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.forms import Form
from dagmaster.ui.notices import Notice, command_notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.changes import (
    NodesChange,
    cancel_page,
    nodes_change_origin,
    nodes_change_page,
    plan_page,
)
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.rendering import render

routes = PageRoutes()
Names = Annotated[list[Annotated[str, Query(max_length=MAX_ID)]] | None, Query(max_length=MAX_NAMED)]
SelectedNodes = Annotated[
    list[Annotated[str, Query(max_length=MAX_ID)]], Query(min_length=1, max_length=MAX_NAMED)
]


@routes.get("/ui/jobs/{job_id}/cancel", Scope.OPERATE)
async def confirm_cancel(request: Request, app: App, job_id: JobId) -> Response:
    """Ask whether a job is to be cancelled."""
    (job,) = await show_jobs(app, [job_id])
    return render(request, "cancel.html", cancel_page(job))


@routes.post("/ui/jobs/{job_id}/cancel", Scope.OPERATE)
async def cancel(app: App, caller: Caller, job_id: JobId, form: FormFields) -> Response:
    """Cancel a job."""
    comment = form.text("comment", max_length=MAX_COMMENT)
    result = await cancel_job(app, job_id, sent_by=caller.actor, comment=comment)
    return see_other(job_path(job_id), command_notice(result))


@routes.get("/ui/jobs/{job_id}/cancel-nodes", Scope.OPERATE)
async def confirm_cancel_nodes(request: Request, app: App, job_id: JobId, node_id: SelectedNodes) -> Response:
    """Ask whether nodes are to be cancelled: the selected ones that have not finished."""
    return await _confirm_change(request, app, job_id, node_id, NodesChange.CANCEL)


@routes.get("/ui/jobs/{job_id}/retry-nodes", Scope.OPERATE)
async def confirm_retry_nodes(request: Request, app: App, job_id: JobId, node_id: SelectedNodes) -> Response:
    """Ask whether nodes are to run again: the selected ones that failed or were cancelled."""
    return await _confirm_change(request, app, job_id, node_id, NodesChange.RETRY)


@routes.post("/ui/jobs/{job_id}/cancel-nodes", Scope.OPERATE)
async def cancel_some_nodes(app: App, caller: Caller, job_id: JobId, form: FormFields) -> Response:
    """Cancel nodes."""
    result = await cancel_nodes(app, job_id, form.texts("node_id"), sent_by=caller.actor)
    return _return_to_origin(job_id, form, result)


@routes.post("/ui/jobs/{job_id}/retry-nodes", Scope.OPERATE)
async def retry_some_nodes(app: App, caller: Caller, job_id: JobId, form: FormFields) -> Response:
    """Run nodes again."""
    result = await retry_nodes(app, job_id, form.texts("node_id"), sent_by=caller.actor)
    return _return_to_origin(job_id, form, result)


async def _confirm_change(
    request: Request, app: Application, job_id: str, selected: list[str], verb: NodesChange
) -> Response:
    (job,) = await show_jobs(app, [job_id])
    choices = await choose_nodes(app, job_id, selected)
    nodes = choices.cancellable if verb is NodesChange.CANCEL else choices.retriable
    return render(request, "change_nodes.html", nodes_change_page(job, verb, selected, nodes))


def _return_to_origin(job_id: str, form: Form, result: CommandResult) -> Response:
    origin = nodes_change_origin(job_id, form.text("of_node", max_length=MAX_ID))
    return see_other(origin, command_notice(result))


@routes.get("/ui/jobs/{job_id}/resume", Scope.OPERATE)
async def plan(
    request: Request, app: App, caller: Caller, job_id: JobId, from_node: Names = None
) -> Response:
    """Show what a resume would reuse, run again, and what is not possible."""
    nodes = tuple(from_node or ())
    (job,) = await show_jobs(app, [job_id])
    planned = await plan_resume(app, job_id, ResumeRequest(sent_by=caller.actor, from_nodes=nodes))
    return render(request, "plan.html", plan_page(planned, job, nodes=nodes))


@routes.post("/ui/jobs/{job_id}/resume", Scope.OPERATE)
async def resume(app: App, caller: Caller, job_id: JobId, form: FormFields) -> Response:
    """Resume a job."""
    request = ResumeRequest(sent_by=caller.actor, from_nodes=tuple(form.texts("from_node")))
    result = await resume_job(app, job_id, request)
    if isinstance(result, SubmitResult):
        return see_other(job_path(result.job_id or job_id), Notice(f"Resumed as job {result.job_id}."))
    return see_other(job_path(job_id), command_notice(result))
