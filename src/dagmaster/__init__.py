"""dagmaster runs durable workflows. This module has the public names.

They are imported when they are first used, so that `import dagmaster` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagmaster import blocking
    from dagmaster.application.submission import JobRequest
    from dagmaster.authoring.compiler.compile import Compiled, compile_definition, compile_file, compile_text
    from dagmaster.authoring.python.futures import Future
    from dagmaster.authoring.python.graph_drawing import Drawing, draw
    from dagmaster.authoring.python.graph_items import Dependency, Group, ResultCollector, Task, create_task
    from dagmaster.authoring.python.node_functions import (
        all_of,
        any_of,
        approval,
        child_workflow,
        conditional,
        end,
        expression,
        fan_in,
        fan_out,
        group,
        join,
        start,
        wait,
    )
    from dagmaster.authoring.python.running_task import RunningTask, create_result_collector, map_values
    from dagmaster.authoring.python.tasks import handler_task, task
    from dagmaster.authoring.python.workflow_files import load_workflow
    from dagmaster.authoring.python.workflows import Workflow, workflow
    from dagmaster.bootstrap.workflow_run import run, run_async
    from dagmaster.client.async_client import AsyncClient
    from dagmaster.client.blocking_client import Client
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.retry import RetryPolicy
    from dagmaster.engine.status import JobStatus
    from dagmaster.errors import (
        DagmasterError,
        InputsInvalid,
        JobFailed,
        PermanentError,
        Problem,
        WorkflowInvalid,
    )
    from dagmaster.orchestration import (
        Context,
        Health,
        Job,
        OrchContext,
        TaskInfo,
        TaskStatus,
        WorkerInfo,
        WorkerStatus,
        add_task_to_job,
        cancel_job,
        create_job,
        deregister_worker,
        get_current_context,
        get_job,
        get_task,
        health_check,
        list_jobs,
        list_workers,
        register_worker,
        retry_failed_tasks,
        run_job_test,
        run_job_test_async,
        worker_heartbeat,
    )
    from dagmaster.ports.handler_reports import Checkpoint, HandlerResult, Progress
    from dagmaster.ports.read_records import JobFilter
    from dagmaster.sdk.code_fingerprints import code_fingerprint
    from dagmaster.sdk.entrypoints import entrypoint_of
    from dagmaster.sdk.handler_context import HandlerContext
    from dagmaster.sdk.handler_mocks import mock_handler
    from dagmaster.sdk.handler_registry import (
        CheckpointableHandler,
        Registry,
        discover,
        handler,
        register_handler,
        registry_for,
    )
    from dagmaster.settings.log_directory import get_logs_dir

__all__ = [
    "AsyncClient",
    "Checkpoint",
    "CheckpointableHandler",
    "Client",
    "Compiled",
    "Context",
    "DagmasterError",
    "Dependency",
    "Drawing",
    "Future",
    "Graph",
    "Group",
    "HandlerContext",
    "HandlerResult",
    "Health",
    "InputsInvalid",
    "Job",
    "JobFailed",
    "JobFilter",
    "JobRequest",
    "JobStatus",
    "OrchContext",
    "PermanentError",
    "Problem",
    "Progress",
    "Registry",
    "ResultCollector",
    "RetryPolicy",
    "RunningTask",
    "Task",
    "TaskInfo",
    "TaskStatus",
    "WorkerInfo",
    "WorkerStatus",
    "Workflow",
    "WorkflowInvalid",
    "add_task_to_job",
    "all_of",
    "any_of",
    "approval",
    "blocking",
    "cancel_job",
    "child_workflow",
    "code_fingerprint",
    "compile_definition",
    "compile_file",
    "compile_text",
    "conditional",
    "create_job",
    "create_result_collector",
    "create_task",
    "deregister_worker",
    "discover",
    "draw",
    "end",
    "entrypoint_of",
    "expression",
    "fan_in",
    "fan_out",
    "get_current_context",
    "get_job",
    "get_logs_dir",
    "get_task",
    "group",
    "handler",
    "handler_task",
    "health_check",
    "join",
    "list_jobs",
    "list_workers",
    "load_workflow",
    "map_values",
    "mock_handler",
    "register_handler",
    "register_worker",
    "registry_for",
    "retry_failed_tasks",
    "run",
    "run_async",
    "run_job_test",
    "run_job_test_async",
    "start",
    "task",
    "wait",
    "worker_heartbeat",
    "workflow",
]

_MODULES = {
    "dagmaster.authoring.python.graph_drawing": ("Drawing", "draw"),
    "dagmaster.authoring.python.graph_items": (
        "Dependency",
        "Group",
        "ResultCollector",
        "Task",
        "create_task",
    ),
    "dagmaster.engine.status": ("JobStatus",),
    "dagmaster.blocking": ("blocking",),
    "dagmaster.orchestration.context": ("Context", "OrchContext"),
    "dagmaster.orchestration.current_context": ("create_job", "get_current_context"),
    "dagmaster.orchestration.job": ("Job",),
    "dagmaster.orchestration.local_runs": ("run_job_test", "run_job_test_async"),
    "dagmaster.orchestration.management": (
        "TaskInfo",
        "TaskStatus",
        "add_task_to_job",
        "cancel_job",
        "get_job",
        "get_task",
        "list_jobs",
        "retry_failed_tasks",
    ),
    "dagmaster.orchestration.workers": (
        "Health",
        "WorkerInfo",
        "WorkerStatus",
        "deregister_worker",
        "health_check",
        "list_workers",
        "register_worker",
        "worker_heartbeat",
    ),
    "dagmaster.application.submission": ("JobRequest",),
    "dagmaster.sdk.code_fingerprints": ("code_fingerprint",),
    "dagmaster.authoring.compiler.compile": (
        "Compiled",
        "compile_definition",
        "compile_file",
        "compile_text",
    ),
    "dagmaster.sdk.entrypoints": ("entrypoint_of",),
    "dagmaster.sdk.handler_context": ("HandlerContext",),
    "dagmaster.sdk.handler_mocks": ("mock_handler",),
    "dagmaster.sdk.handler_registry": (
        "CheckpointableHandler",
        "Registry",
        "discover",
        "handler",
        "register_handler",
        "registry_for",
    ),
    "dagmaster.authoring.python.futures": ("Future",),
    "dagmaster.authoring.python.node_functions": (
        "all_of",
        "any_of",
        "approval",
        "child_workflow",
        "conditional",
        "end",
        "expression",
        "fan_in",
        "fan_out",
        "group",
        "join",
        "start",
        "wait",
    ),
    "dagmaster.authoring.python.running_task": (
        "RunningTask",
        "create_result_collector",
        "map",
        "map_values",
    ),
    "dagmaster.authoring.python.tasks": ("handler_task", "task"),
    "dagmaster.authoring.python.workflow_files": ("load_workflow",),
    "dagmaster.authoring.python.workflows": ("Workflow", "workflow"),
    "dagmaster.bootstrap.workflow_run": ("run", "run_async"),
    "dagmaster.client.async_client": ("AsyncClient",),
    "dagmaster.client.blocking_client": ("Client",),
    "dagmaster.engine.graph": ("Graph",),
    "dagmaster.engine.retry": ("RetryPolicy",),
    "dagmaster.errors": (
        "DagmasterError",
        "InputsInvalid",
        "JobFailed",
        "PermanentError",
        "Problem",
        "WorkflowInvalid",
    ),
    "dagmaster.ports.handler_reports": ("Checkpoint", "HandlerResult", "Progress"),
    "dagmaster.ports.read_records": ("JobFilter",),
    "dagmaster.settings.log_directory": ("get_logs_dir",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'dagmaster' has no attribute {name!r}")
    if name == "blocking":
        return importlib.import_module("dagmaster.blocking")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
