"""Execute one task without a job, to test a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.bootstrap import handler_processes

if TYPE_CHECKING:
    from dagmaster.ports.task_messages import Outcome, TaskMessage
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.worker.task_reports import TaskReports


async def execute_task(
    task: TaskMessage, registry: Registry, reports: TaskReports, *, modules: tuple[str, ...] = ()
) -> Outcome:
    """Execute one task without a job, as a worker does: a plain function runs in a child process."""
    from dagmaster.settings import load_settings
    from dagmaster.worker.executor import Executor
    from dagmaster.worker.lazy_services import LazyServices
    from dagmaster.worker.task_log_capture import capture

    settings = load_settings().model_copy(update={"concurrency": 1})
    processes, services = handler_processes(settings, modules, blob_dir=None, is_alone=True)
    executor = Executor(registry, processes=processes, services=LazyServices(services), reports=reports)
    with capture():
        try:
            return await executor.execute(task)
        finally:
            await executor.close()
