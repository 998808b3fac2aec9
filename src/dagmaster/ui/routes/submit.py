"""Submit a job: choose a workflow, fill in its inputs, check them, send them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.application.context import Application
from dagmaster.application.queries.workflows import list_workflows, workflow_detail, workflow_inputs_schema
from dagmaster.application.submission import JobRequest
from dagmaster.application.submission_plan import plan_submission
from dagmaster.application.views import SubmissionPlanView
from dagmaster.errors import (
    CallbackUrlInvalid,
    DagmasterError,
    IdempotencyConflict,
    InputsInvalid,
    Problem,
    QueryInvalid,
    SubmissionRejected,
)
from dagmaster.http.parameters import Version
from dagmaster.http.services import App, Origin, Services
from dagmaster.json_types import JsonObject
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_options import SUBMITTER_OPTIONS
from dagmaster.ui.forms import Form
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.submit import (
    SubmitEntry,
    choose_page,
    input_fields,
    locate_problems,
    read_inputs,
    submit_page,
    to_form,
    to_text,
)
from dagmaster.ui.rendering import render

routes = PageRoutes()
WORKFLOWS: Final = 1_000
MAX_TEXT: Final = 1_000_000
PREFIX: Final = "input."
# What a person can correct here; the page shows it, and keeps what was typed.
_CORRECTABLE: Final = (
    InputsInvalid,
    SubmissionRejected,
    IdempotencyConflict,
    QueryInvalid,
    CallbackUrlInvalid,
)
WorkflowName = Annotated[str, Query(max_length=64)]


@routes.get("/ui/submit", Scope.SUBMIT, reach=Reach.OPEN)
async def show(
    request: Request, app: App, workflow_id: WorkflowName = "", version: Version = None
) -> Response:
    """Ask for a workflow, or for its inputs."""
    workflow_id = workflow_id.strip()
    if not workflow_id:
        return render(request, "submit.html", choose_page((await list_workflows(app, limit=WORKFLOWS)).items))
    return await _show(
        request, app, SubmitEntry(workflow_id=workflow_id, version="" if version is None else str(version))
    )


@routes.get("/ui/submit/completions", Scope.SUBMIT, reach=Reach.OPEN)
async def completions(app: App, workflow_id: WorkflowName, version: Version = None) -> Response:
    """Return what the editor of inputs offers: names, and the values that a list allows."""
    fields = input_fields(await workflow_inputs_schema(app, workflow_id, version), {})
    keys = [
        {"label": field.name, "kind": "key", "detail": field.description or field.type} for field in fields
    ]
    values = [
        {"label": option, "kind": "value", "after": field.name, "detail": field.name}
        for field in fields
        for option in field.options
    ]
    return JSONResponse({"items": [*keys, *values]})


@routes.post("/ui/submit", Scope.SUBMIT, reach=Reach.OPEN)
async def submit(
    request: Request, app: App, services: Services, origin: Origin, form: FormFields
) -> Response:
    """Check a job, change between form and text, or submit it. What was typed is never lost."""
    entry = _read_entry(form)
    action = form.text("action")
    try:
        if action == "text":
            return await _show(request, app, to_text(entry, await _schema(app, entry)))
        if action == "form":
            return await _show(request, app, to_form(entry))
        job = _to_request(entry, origin.actor)
        if action == "check":
            return await _show(request, app, entry, plan=await plan_submission(app, job))
        result = await services.submissions.submit(job, origin, app.caller)
    except _CORRECTABLE as error:
        problems = error.problems if isinstance(error, InputsInvalid) else [Problem(message=str(error))]
        return await _show(
            request, app, entry, problems=locate_problems(entry, problems), status=_status(error)
        )
    outcome = "Submitted" if result.is_new else "This key was used before: it is"
    return see_other(f"/ui/jobs/{result.job_id}", Notice(f"{outcome} job {result.job_id}."))


def _status(error: DagmasterError) -> int:
    return 409 if isinstance(error, IdempotencyConflict) else 422


def _read_entry(form: Form) -> SubmitEntry:
    return SubmitEntry(
        workflow_id=form.text("workflow_id"),
        version=form.text("version"),
        is_text=form.text("mode") == "text",
        values={
            name.removeprefix(PREFIX): _lines(form.text(name, max_length=MAX_TEXT))
            for name in form.names(PREFIX)
        },
        text=_lines(form.text("text", max_length=MAX_TEXT)),
        options={name: form.text(name) for name in SUBMITTER_OPTIONS},
    )


def _lines(text: str) -> str:
    """Return a text with the line ends that were typed: a form sends CRLF."""
    return text.replace("\r\n", "\n")


def _to_request(entry: SubmitEntry, submitted_by: str) -> JobRequest:
    inputs, texts = read_inputs(entry)
    options: dict[str, Any] = {name: text for name, text in entry.options.items() if text}
    for name, option in SUBMITTER_OPTIONS.items():
        if option.maximum is not None and name in options:
            options[name] = _number(name, options[name])
    return JobRequest(
        workflow_id=entry.workflow_id,
        version=_number("version", entry.version) if entry.version else None,
        inputs=inputs,
        input_texts=texts,
        submitted_by=submitted_by,
        **options,
    )


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):  # noqa: PLR2004 - within 32 bits
        raise SubmissionRejected(f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


async def _schema(app: Application, entry: SubmitEntry) -> JsonObject:
    version = int(entry.version) if entry.version.isascii() and entry.version.isdigit() else None
    return await workflow_inputs_schema(app, entry.workflow_id, version)


async def _show(
    request: Request,
    app: Application,
    entry: SubmitEntry,
    *,
    problems: list[Problem] | None = None,
    plan: SubmissionPlanView | None = None,
    status: int = 200,
) -> Response:
    workflows = await list_workflows(app, limit=WORKFLOWS)
    detail = await workflow_detail(app, entry.workflow_id)
    page = submit_page(
        entry, await _schema(app, entry), workflows.items, detail.versions, problems=problems or (), plan=plan
    )
    return render(request, "submit.html", page, status=status)
