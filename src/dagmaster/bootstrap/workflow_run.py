"""Run a workflow of Python code in this process: for scripts, notebooks and tests.

No server, nothing is stored.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dagmaster.authoring.python.workflow_inputs import to_inputs
from dagmaster.authoring.python.workflows import DEFAULT_QUEUE
from dagmaster.errors import JobFailed
from dagmaster.host.event_loops import run_blocking
from dagmaster.sdk.entrypoint_sources import loaded_function
from dagmaster.sdk.handler_decorator import mark_of
from dagmaster.sdk.handler_mocks import with_mocks
from dagmaster.text_format import traceback_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.application.views import JobDetailView
    from dagmaster.authoring.python.workflows import Workflow
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.settings import Settings

R = TypeVar("R")
_MISSING_HINT: Final = (
    "import the module that has it as a @task before the run, or name the module in DAGMASTER_HANDLERS"
)


def run(workflow: Workflow[..., R], /, **inputs: Any) -> R:
    """Run a workflow in this process until its job has finished, and return the result of its function.

    Raise `InputsInvalid` before anything starts if the inputs do not fit, and `JobFailed` if the job did not
    complete; its note is the traceback of the task that failed. Coroutines run on an event loop, plain
    functions on threads of this process, so functions of a script or a notebook also work. It may be called
    where a loop is running.
    """
    return run_blocking(run_async(workflow, **inputs))


async def run_async(workflow: Workflow[..., R], /, **inputs: Any) -> R:
    """Run a workflow as `run` does, on the running loop."""
    from dagmaster.application.queries.job_detail import job_detail
    from dagmaster.application.views import JobStatus
    from dagmaster.authoring.python.process_functions import ProcessRegistry
    from dagmaster.bootstrap import allowed_env, blob_directory, default_limits, find_handlers, secret
    from dagmaster.bootstrap.services_config import handler_services_config
    from dagmaster.local.memory_services import SHARED_LOOP, memory_services
    from dagmaster.local.runner import LocalRunner
    from dagmaster.settings import load_settings
    from dagmaster.worker.lazy_services import LazyServices

    settings = load_settings()
    registry = _registry(workflow, settings)
    graph, *children = [member.compile(registry).graph for member in workflow.family()]
    # A running task may add tasks of any function of this process; the nodes of the workflow are checked
    # above.
    added = ProcessRegistry(functools.partial(find_handlers, settings=settings))
    services = memory_services(
        registry.overlay(added),
        secrets=secret,
        services=LazyServices(handler_services_config(settings, blob_directory(settings))),
        limits=default_limits(settings),
        options=replace(SHARED_LOOP, concurrency=settings.concurrency),
    )
    runner = LocalRunner(services, is_alone=True)
    job_id = await runner.run(graph, to_inputs(inputs), children=children, env=allowed_env(settings))
    view = await job_detail(services.application, job_id)
    if view.status is not JobStatus.COMPLETED:
        raise _failure(view, runner.note)
    result: Any = view.result
    if workflow.returns_mapping is None:
        result = None
    elif not workflow.returns_mapping:
        # By position: the value of a secret input is also redacted in keys.
        (result,) = result.values()
    return result  # type: ignore[no-any-return]


def _registry(workflow: Workflow[..., Any], settings: Settings) -> Registry:
    """Return the workflow's tasks; if it names others, also imported tasks and known handlers."""
    from dagmaster.bootstrap import find_handlers

    tasks = workflow.handlers(settings.python_queue or settings.default_queue or DEFAULT_QUEUE)
    names = {name for member in workflow.family() for name in _handlers_in(member.document.data.get("nodes"))}
    for name in names:
        function = None if name in tasks else loaded_function(name)
        mark = mark_of(function)
        # Only what its author made a task: a file may not name any function that this process imported.
        if function is not None and mark is not None and mark.name == name:
            tasks.register(function)
    is_whole = all(name in tasks for name in names)
    registry = with_mocks(tasks if is_whole else tasks.overlay(find_handlers(settings=settings)))
    registry.missing_hint = _MISSING_HINT
    return registry


def _handlers_in(data: Any) -> Iterator[str]:
    nodes = list(data.values()) if isinstance(data, dict) else []
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            nodes.append(node.get("task"))
            if isinstance(node.get("handler"), str):
                yield node["handler"]


def _failure(view: JobDetailView, note: str) -> JobFailed:
    reason = note or (str(view.error["message"]) if view.error else "no reason is recorded")
    error = JobFailed(f"the job of {view.workflow_id} is {view.status}: {reason}")
    traceback = traceback_of(view.error)
    if traceback is not None:
        error.add_note(f"in the task: {traceback}")
    return error
