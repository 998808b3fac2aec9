"""The editor of workflows: check a text, edit its nodes from the graph, publish it as a version."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.application.api_keys import allows
from dagmaster.application.commands.publication import publish_workflows
from dagmaster.application.commands.validation import documents_for, to_sources, validate_apart
from dagmaster.application.context import Application
from dagmaster.application.queries.handlers import list_handlers
from dagmaster.application.queries.workflows import list_workflows, workflow_detail
from dagmaster.application.views import ValidationResult
from dagmaster.errors import (
    QueryInvalid,
    WorkflowChanged,
    WorkflowEditRejected,
    WorkflowNotFound,
    WorkflowVersionConflict,
)
from dagmaster.http.parameters import Version
from dagmaster.http.services import App, Caller
from dagmaster.json_types import JsonObject
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ui.forms import Form
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.editor import (
    EDIT_FIELDS,
    NEW,
    check_draft,
    completions,
    definition_text,
    edit_draft,
    editor_page,
    new_node,
    version_draft,
)
from dagmaster.ui.rendering import render

routes = PageRoutes()
MAX_TEXT: Final = 1_000_000
WORKFLOWS: Final = 1_000
HANDLERS: Final = 1_000
WorkflowName = Annotated[str, Query(max_length=64)]


@routes.get("/ui/editor", Scope.READ, reach=Reach.OPEN)
async def show(
    request: Request, app: App, caller: Caller, workflow_id: WorkflowName = "", version: Version = None
) -> Response:
    """Show a published version as a text, or a new workflow."""
    if not workflow_id:
        return await _render(request, app, caller, NEW)
    detail = await workflow_detail(app, workflow_id, version)
    text = definition_text(detail.definition)
    shown: dict[str, Any] = {"workflow_id": workflow_id, "version": detail.version, "state": detail.state}
    return await _render(request, app, caller, text, **shown)


@routes.get("/ui/editor/completions", Scope.READ, reach=Reach.OPEN)
async def show_completions(app: App) -> Response:
    """Return keys, handlers and expressions to complete."""
    return JSONResponse(completions((await list_handlers(app, limit=HANDLERS)).items))


@routes.post("/ui/editor/check", Scope.READ, reach=Reach.OPEN)
async def check(app: App, form: FormFields) -> Response:
    """Return the problems and the graph of a text."""
    return JSONResponse(await _draft(app, _text(form)))


@routes.post("/ui/editor/edit", Scope.READ, reach=Reach.OPEN)
async def edit(app: App, form: FormFields) -> Response:
    """Change a node of a text; return the text, or why that is not possible."""
    text = _text(form)
    try:
        fields: JsonObject = {name: form.text(name) for name in EDIT_FIELDS}
    except QueryInvalid as error:
        return JSONResponse({"error": str(error)}, 422)
    handlers = (await list_handlers(app, limit=HANDLERS)).items
    node = new_node(form.text("kind"), form.text("handler"), handlers)
    answer = await app.checks.check(edit_draft, text=text, fields=fields, node=node)
    if "error" in answer:
        return JSONResponse(answer, 422)
    return JSONResponse({**answer, **await _draft(app, answer["text"])})


@routes.post("/ui/editor", Scope.ADMIN)
async def publish(request: Request, app: App, caller: Caller, form: FormFields) -> Response:
    """Check or publish a text. What stands in the way is shown with the text as it is."""
    text, is_next = _text(form), form.text("next_version") == "yes"
    result = await _validate(app, text)
    workflow_id, state = form.text("workflow_id"), form.text("state")
    options: dict[str, Any] = {"workflow_id": workflow_id, "result": result, "state": state}
    if form.text("action") != "publish" or not result.is_valid:
        return await _render(request, app, caller, text, **options, status=200 if result.is_valid else 422)
    try:
        if is_next:
            text = await _raise_version(app, text, result)
            result = await _validate(app, text)
        (published,) = await publish_workflows(
            app,
            to_sources([result]),
            activate=form.text("activate") == "yes",
            expected={workflow_id: [state]} if state else None,
        )
    except WorkflowChanged as error:
        # What is there now is known then: publishing again puts this text on top of it.
        options["state"] = error.current.get("state", state)
        message = f"{error}, or publish this text in spite of it."
        return await _render(request, app, caller, text, **options, message=message, status=412)
    except (WorkflowVersionConflict, WorkflowEditRejected) as error:
        return await _render(request, app, caller, text, **options, message=str(error), status=409)
    notice = Notice(f"{published.workflow_id} v{published.version}: {published.outcome.value}.")
    return see_other(f"/ui/editor?workflow_id={published.workflow_id}&version={published.version}", notice)


def _text(form: Form) -> str:
    return form.text("text", max_length=MAX_TEXT).replace("\r\n", "\n")


async def _draft(app: Application, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = await app.checks.check(
        check_draft, text=text, documents=await documents_for(app, text), default_queue=app.default_queue
    )
    return answer


async def _validate(app: Application, text: str) -> ValidationResult:
    return await validate_apart(app, text, allow_missing_handlers=True, has_graph=True)


async def _raise_version(app: Application, text: str, result: ValidationResult) -> str:
    """Return the text with the version after the newest one, unless it is new or published as it is."""
    graph = result.graph
    if graph is None:
        return text
    try:
        versions = (await workflow_detail(app, graph.workflow_id)).versions
    except WorkflowNotFound:
        return text
    if any(view.content_hash == graph.content_hash for view in versions):
        return text
    newest = max(view.version for view in versions)
    if graph.version > newest:
        return text
    answer = await app.checks.check(version_draft, text=text, version=newest + 1)
    if "error" in answer:
        raise WorkflowEditRejected(answer["error"])
    raised: str = answer["text"]
    return raised


async def _render(
    request: Request, app: Application, caller: Any, text: str, *, status: int = 200, **options: Any
) -> Response:
    workflows = await list_workflows(app, limit=WORKFLOWS)
    handlers = await list_handlers(app, limit=HANDLERS)
    can_publish = allows(caller.scopes, Scope.ADMIN)
    page = editor_page(text, workflows.items, handlers.items, can_publish=can_publish, **options)
    return render(request, "editor.html", page, status=status)
