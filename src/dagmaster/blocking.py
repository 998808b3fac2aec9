"""The calls of `dagmaster` about graphs, jobs and workers, without `await`: for scripts and notebooks.

from dagmaster.blocking import OrchContext, create_job

with OrchContext() as context:
    job = create_job("nightly", [extract, load])
"""

from __future__ import annotations

from dagmaster.orchestration.blocking import (
    OrchContext,
    add_task_to_job,
    cancel_job,
    create_job,
    deregister_worker,
    get_job,
    get_task,
    health_check,
    list_jobs,
    list_workers,
    register_worker,
    retry_failed_tasks,
    run_job_test,
    worker_heartbeat,
)

__all__ = [
    "OrchContext",
    "add_task_to_job",
    "cancel_job",
    "create_job",
    "deregister_worker",
    "get_job",
    "get_task",
    "health_check",
    "list_jobs",
    "list_workers",
    "register_worker",
    "retry_failed_tasks",
    "run_job_test",
    "worker_heartbeat",
]
