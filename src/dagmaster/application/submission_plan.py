"""What a submit would do: nothing is stored, and no task runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dagmaster.application.access import check_workflow
from dagmaster.application.callback_addresses import check_callback_url
from dagmaster.application.checks import accept_inputs_apart
from dagmaster.application.node_lookup import dependencies_of, describe_action
from dagmaster.application.secret_inputs import JobRedactor
from dagmaster.application.submission import check_options
from dagmaster.application.views.results import PlannedQueueView, PlannedStepView, SubmissionPlanView
from dagmaster.application.workflow_lookup import find_published_graph
from dagmaster.engine.graph import FanOutSpec, TaskSpec
from dagmaster.engine.model import FanOut
from dagmaster.errors import BlobNotFound, DagmasterError
from dagmaster.orchestrator.dry_run import dry_run_job
from dagmaster.ports.blob_uris import SCHEMES
from dagmaster.ports.run_queues import is_served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.application.context import Application
    from dagmaster.application.submission import JobRequest
    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.model import Job
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.storage import Storage

MAX_BLOBS: Final = 100
"""How many blobs of the inputs are looked up."""


async def plan_submission(app: Application, request: JobRequest) -> SubmissionPlanView:
    """Return what a job would do before its first task ends; raise what `submit_job` would raise."""
    check_workflow(app.caller, request.workflow_id if request.graph is None else "")
    graph = request.graph or await find_published_graph(app, request.workflow_id, request.version)
    check_options(request)
    check_callback_url(app, request.callback_url)
    inputs = await accept_inputs_apart(app.checks, graph, request.values_for(graph))
    job = await dry_run_job(
        app.results,
        graph,
        inputs=inputs,
        env=app.env,
        workflows=request.child_workflows(),
        now=time.time(),
        vault=app.vault,
    )
    shown = JobRedactor(graph.inputs, inputs).inputs(inputs)
    return SubmissionPlanView(
        workflow_id=graph.workflow_id,
        version=graph.version,
        content_hash=graph.content_hash,
        inputs=shown,
        nodes=tuple(_steps(job, graph)),
        queues=await _queues(app, graph),
        missing_blobs=None
        if app.storage is None
        else await asyncio.to_thread(_missing_blobs, app.storage, shown),
    )


def _steps(job: Job, graph: Graph) -> Iterator[PlannedStepView]:
    for node_id, dependencies in dependencies_of(graph).items():
        node, spec = job.nodes[node_id], graph.specs[node_id]
        task = _task_of(spec)
        yield PlannedStepView(
            node_id=node_id,
            kind=spec.kind,
            action=describe_action(spec),
            depends_on=tuple(dependencies),
            status=node.status,
            branch=node.branch,
            children=node.total if isinstance(node, FanOut) else None,
            handler=None if task is None else task.handler,
            queue=None if task is None else task.queue,
        )


async def _queues(app: Application, graph: Graph) -> tuple[PlannedQueueView, ...]:
    names = sorted({task.queue for spec in graph.specs.values() if (task := _task_of(spec)) is not None})
    workers = [
        worker for worker in (await app.read.fleet()).workers if worker.is_alive and not worker.is_draining
    ]
    return tuple(
        PlannedQueueView(
            queue=name, workers=sum(is_served(name, worker.queues, is_orphaned=False) for worker in workers)
        )
        for name in names
    )


def _missing_blobs(storage: Storage, inputs: JsonValue) -> tuple[str, ...]:
    """Return the blobs that the inputs name and that do not exist.

    Those that are not ours to read are left out.
    """
    uris = sorted(set(_blob_uris(inputs)))
    return tuple(uri for uri in uris[:MAX_BLOBS] if not _exists(storage, uri))


def _exists(storage: Storage, uri: str) -> bool:
    try:
        return storage.find(storage.resolve(uri)) is not None
    except BlobNotFound:
        return False
    except DagmasterError:
        # Not known: another storage has it, or this one does not respond.
        return True


def _blob_uris(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        if value.partition("://")[0] in SCHEMES and "://" in value:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _blob_uris(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _blob_uris(item)


def _task_of(spec: Spec) -> TaskSpec | None:
    """Return the task of a node, or of the children of a fan-out."""
    while isinstance(spec, FanOutSpec):
        spec = spec.child
    return spec if isinstance(spec, TaskSpec) else None
