"""Test a handler on a worker: run it once, with these params, as a job that lists leave out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.job_watch import watch_job
from dagmaster.application.queries.handlers import find_handler
from dagmaster.application.queries.nodes import node_detail
from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.application.views.handlers import HandlerTestView
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.engine.graph import DEFAULT_TIMEOUT_SECONDS
from dagmaster.engine.status import JobStatus
from dagmaster.errors import CommandInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonValue

MAX_WAIT_SECONDS: Final = 30.0
WORKFLOW_ID: Final = "handler_test"
NODE_ID: Final = "test"


async def run_handler(
    app: Application,
    name: str,
    params: Mapping[str, JsonValue],
    *,
    submitted_by: str,
    queue: str | None = None,
    timeout_seconds: float | None = None,
    wait_seconds: float = 10.0,
) -> HandlerTestView:
    """Run a published handler once on a worker; wait for its outcome for a while."""
    handler = await find_handler(app, name)
    queue = queue or handler.default_queue or app.default_queue
    if queue is None:
        raise CommandInvalid(f"handler {name!r} names no queue: say to which queue its task goes")
    timeout_seconds = timeout_seconds or handler.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
    request = JobRequest(
        graph=await app.graphs.run(_graph, name, list(params), queue, timeout_seconds),
        # Values of inputs are never parsed as templates.
        inputs={"values": list(params.values())},
        name=f"test of {name}"[:128],
        submitted_by=submitted_by,
        is_hidden=True,
    )
    job_id = (await submit_job(app, request)).job_id or ""
    return await _outcome(app, job_id, name, wait_seconds)


async def _outcome(app: Application, job_id: str, name: str, wait_seconds: float) -> HandlerTestView:
    status = JobStatus.PENDING
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_seconds):
            async for job in watch_job(app, job_id):
                status = job.status
    output = error = None
    is_finished = status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)
    if is_finished:
        node = (await node_detail(app, job_id, NODE_ID)).to_dict()
        output, error = node["output"], node["error"]
    return HandlerTestView(
        job_id=job_id, handler=name, status=status, is_finished=is_finished, output=output, error=error
    )


def _graph(handler: str, names: list[str], queue: str, timeout_seconds: float) -> Graph:
    node: dict[str, Any] = {
        "type": "task",
        "handler": handler,
        "queue": queue,
        "timeout_seconds": timeout_seconds,
        "retry": "none",
        "params": {name: f"{{{{ inputs.values[{number}] }}}}" for number, name in enumerate(names)},
    }
    inputs: dict[str, Any] = {"values": {"type": "array", "required": True}}
    return compile_definition(
        {"workflow_id": WORKFLOW_ID, "version": 1, "inputs": inputs, "nodes": {NODE_ID: node}}
    )
