"""Graphs of Python code: contexts that store them, jobs, management.

Tasks and groups are in `authoring/python`.

Its public names are those of `dagmaster`, and are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagmaster

if TYPE_CHECKING:
    from dagmaster.authoring.python.graph_items import Dependency, Group, Task, create_task
    from dagmaster.authoring.python.running_task import create_result_collector
    from dagmaster.engine.status import JobStatus
    from dagmaster.orchestration.context import Context, OrchContext
    from dagmaster.orchestration.current_context import create_job, get_current_context
    from dagmaster.orchestration.job import Job
    from dagmaster.orchestration.local_runs import run_job_test, run_job_test_async
    from dagmaster.orchestration.management import (
        TaskInfo,
        TaskStatus,
        add_task_to_job,
        cancel_job,
        get_job,
        get_task,
        list_jobs,
        retry_failed_tasks,
    )
    from dagmaster.orchestration.workers import (
        Health,
        WorkerInfo,
        WorkerStatus,
        deregister_worker,
        health_check,
        list_workers,
        register_worker,
        worker_heartbeat,
    )

__all__ = [
    "Context",
    "Dependency",
    "Group",
    "Health",
    "Job",
    "JobStatus",
    "OrchContext",
    "Task",
    "TaskInfo",
    "TaskStatus",
    "WorkerInfo",
    "WorkerStatus",
    "add_task_to_job",
    "cancel_job",
    "create_job",
    "create_result_collector",
    "create_task",
    "deregister_worker",
    "get_current_context",
    "get_job",
    "get_task",
    "health_check",
    "list_jobs",
    "list_workers",
    "register_worker",
    "retry_failed_tasks",
    "run_job_test",
    "run_job_test_async",
    "worker_heartbeat",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(dagmaster, name)
    raise AttributeError(f"module 'dagmaster.orchestration' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
