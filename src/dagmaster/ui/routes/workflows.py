"""Workflows: the list, and the views of one of them."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.commands.publication import activate_version
from dagmaster.application.queries.graphs import workflow_graph
from dagmaster.application.queries.jobs import list_jobs, newest_jobs
from dagmaster.application.queries.metrics import node_metrics, workflow_history, workflow_metrics
from dagmaster.application.queries.workflows import compare_versions, list_workflows, workflow_detail
from dagmaster.errors import QueryInvalid
from dagmaster.http.parameters import Cursor, Version, WorkflowId
from dagmaster.http.services import App, Compiler
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.workflow import (
    choose_versions,
    definition_page,
    format_definition,
    graph_page,
    summary_page,
    versions_page,
    workflow_head,
)
from dagmaster.ui.pages.workflow_rows import workflow_path
from dagmaster.ui.pages.workflows import WorkflowsQuery, workflows_page
from dagmaster.ui.rendering import render

routes = PageRoutes()
ROWS: Final = 50
RECENT: Final = 8
DAYS: Final = 7
MAX_VERSION_DIGITS: Final = 10
MAX_VERSION: Final = 2**31 - 1


@routes.get("/ui/workflows", Scope.READ)
async def workflows(
    request: Request, app: App, tag: Annotated[str, Query(max_length=200)] = "", cursor: Cursor = None
) -> Response:
    """List the published workflows."""
    page = await list_workflows(app, tag=tag or None, cursor=cursor, limit=ROWS)
    metrics, newest = await asyncio.gather(
        workflow_metrics(app, days=DAYS), newest_jobs(app, [view.workflow_id for view in page.items])
    )
    content = workflows_page(
        WorkflowsQuery(tag=tag), page, metrics=metrics, newest=newest, days=DAYS, cursor=cursor
    )
    return render(request, "workflows.html", content)


@routes.get("/ui/workflows/{workflow_id}", Scope.READ)
async def summary(request: Request, app: App, workflow_id: WorkflowId, version: Version = None) -> Response:
    """Show how the jobs of a workflow do."""
    detail = await workflow_detail(app, workflow_id, version)
    metrics, nodes, history, recent = await asyncio.gather(
        workflow_metrics(app, days=DAYS),
        node_metrics(app, workflow_id, days=DAYS),
        workflow_history(app, workflow_id, days=DAYS),
        list_jobs(app, JobFilter(workflow_id=workflow_id), limit=RECENT),
    )
    page = summary_page(
        workflow_head(detail, "", time.time()),
        days=DAYS,
        metrics=next((one for one in metrics.workflows if one.workflow_id == workflow_id), None),
        nodes=nodes,
        history=history,
        recent=recent.items,
    )
    return render(request, "workflow.html", page)


@routes.get("/ui/workflows/{workflow_id}/graph", Scope.READ, reach=Reach.OPEN)
async def graph(request: Request, app: App, workflow_id: WorkflowId, version: Version = None) -> Response:
    """Show the graph of a version."""
    detail = await workflow_detail(app, workflow_id, version)
    view = await workflow_graph(app, workflow_id, detail.version)
    return render(request, "workflow.html", graph_page(workflow_head(detail, "graph", time.time()), view))


@routes.get("/ui/workflows/{workflow_id}/definition", Scope.READ, reach=Reach.OPEN)
async def definition(
    request: Request, app: App, compiler: Compiler, workflow_id: WorkflowId, version: Version = None
) -> Response:
    """Show the text of a version."""
    detail = await workflow_detail(app, workflow_id, version)
    text = await compiler.run(format_definition, detail.definition)
    return render(
        request, "workflow.html", definition_page(workflow_head(detail, "definition", time.time()), text)
    )


@routes.get("/ui/workflows/{workflow_id}/versions", Scope.READ, reach=Reach.OPEN)
async def versions(
    request: Request,
    app: App,
    workflow_id: WorkflowId,
    version: Version = None,
    before: Version = None,
    after: Version = None,
) -> Response:
    """Show all versions, and what differs between two of them."""
    detail = await workflow_detail(app, workflow_id, version)
    older, newer = choose_versions(detail, before, after)
    diff = None if older is None or newer is None else await compare_versions(app, workflow_id, older, newer)
    now = time.time()
    return render(
        request, "workflow.html", versions_page(workflow_head(detail, "versions", now), detail, diff, now)
    )


@routes.post("/ui/workflows/{workflow_id}/activate", Scope.ADMIN)
async def activate(app: App, workflow_id: WorkflowId, form: FormFields) -> Response:
    """Choose the version that new jobs get."""
    text = form.text("version", max_length=MAX_VERSION_DIGITS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_VERSION):
        raise QueryInvalid("version: the number of a version, such as 3")
    result = await activate_version(app, workflow_id, int(text))
    return see_other(
        workflow_path(workflow_id, "versions"),
        Notice(f"New jobs of {workflow_id} get version {result.version}."),
    )
