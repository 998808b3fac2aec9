"""The page of a node, and what can be done with it: retry, approve, reject, signal."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.commands.control import (
    MAX_COMMENT,
    approve_node,
    reject_node,
    retry_node,
    send_signal,
)
from dagmaster.application.commands.resume import plan_retry
from dagmaster.application.diagnosis import why_node
from dagmaster.application.job_lookup import SHOWN_BYTES
from dagmaster.application.queries.jobs import show_jobs
from dagmaster.application.queries.nodes import node_detail
from dagmaster.errors import QueryInvalid
from dagmaster.http.parameters import MAX_ID, JobId, NodeId
from dagmaster.http.services import App, Caller
from dagmaster.json_types import JsonValue, read_json
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.notices import command_notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.changes import plan_page
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.node import MAX_LOG, node_page
from dagmaster.ui.pages.node_rows import node_path
from dagmaster.ui.rendering import render
from dagmaster.ui.routes.log_text import list_log_text

routes = PageRoutes()
MAX_PAYLOAD: Final = 100_000


@routes.get("/ui/jobs/{job_id}/nodes/{node_id}", Scope.READ)
async def node(request: Request, app: App, job_id: JobId, node_id: NodeId) -> Response:
    """Show a node with its attempts and values."""
    view, why, log = await asyncio.gather(
        node_detail(app, job_id, node_id, max_bytes=SHOWN_BYTES),
        why_node(app, job_id, node_id),
        list_log_text(app, job_id, max_characters=MAX_LOG, node_id=node_id, newest_first=True),
    )
    return render(request, "node.html", node_page(view, why, log.items))


@routes.get("/ui/jobs/{job_id}/nodes/{node_id}/retry", Scope.OPERATE)
async def plan(request: Request, app: App, job_id: JobId, node_id: NodeId) -> Response:
    """Show what a retry of a node would do."""
    (job,) = await show_jobs(app, [job_id])
    return render(
        request, "plan.html", plan_page(await plan_retry(app, job_id, node_id), job, node_id=node_id)
    )


@routes.post("/ui/jobs/{job_id}/nodes/{node_id}/retry", Scope.OPERATE)
async def retry(app: App, caller: Caller, job_id: JobId, node_id: NodeId) -> Response:
    """Run a node again."""
    result = await retry_node(app, job_id, node_id, sent_by=caller.actor)
    return see_other(node_path(job_id, node_id), command_notice(result))


@routes.post("/ui/jobs/{job_id}/nodes/{node_id}/approve", Scope.OPERATE)
async def approve(app: App, caller: Caller, job_id: JobId, node_id: NodeId, form: FormFields) -> Response:
    """Approve an approval that waits."""
    comment = form.text("comment", max_length=MAX_COMMENT)
    result = await approve_node(app, job_id, node_id, sent_by=caller.actor, comment=comment)
    return see_other(job_path(job_id), command_notice(result))


@routes.post("/ui/jobs/{job_id}/nodes/{node_id}/reject", Scope.OPERATE)
async def reject(app: App, caller: Caller, job_id: JobId, node_id: NodeId, form: FormFields) -> Response:
    """Reject an approval that waits."""
    comment = form.text("comment", max_length=MAX_COMMENT)
    result = await reject_node(app, job_id, node_id, sent_by=caller.actor, comment=comment)
    return see_other(job_path(job_id), command_notice(result))


@routes.post("/ui/jobs/{job_id}/signals/{name}", Scope.OPERATE)
async def signal(
    app: App, caller: Caller, job_id: JobId, name: Annotated[str, Path(max_length=MAX_ID)], form: FormFields
) -> Response:
    """Send a signal to the nodes that wait for it."""
    payload = _parse_payload(form.text("payload", max_length=MAX_PAYLOAD))
    result = await send_signal(app, job_id, name, payload, sent_by=caller.actor)
    return see_other(job_path(job_id), command_notice(result))


def _parse_payload(text: str) -> JsonValue:
    if not text.strip():
        return None
    try:
        value: JsonValue = read_json(text)
    except (ValueError, RecursionError) as error:
        raise QueryInvalid(f"payload: this is not valid JSON: {error}"[:300]) from None
    return value
