"""The calls of `dagmaster.blocking`.

They run on an event loop in a separate thread, so they also work where a loop is running.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Self, TypeVar

from dagmaster.authoring.python.running_task import check_may_block, get_running_task
from dagmaster.host.event_loops import LoopThread
from dagmaster.session import claimed_tasks, current_context, management, workers
from dagmaster.session import context as contexts
from dagmaster.session.local_runs import run_job_test

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dagmaster.session.job import Job

__all__ = [
    "OrchContext",
    "add_task_to_job",
    "cancel_job",
    "claim_next_task",
    "create_job",
    "deregister_worker",
    "get_job",
    "get_task",
    "health_check",
    "list_dependencies",
    "list_jobs",
    "list_tasks",
    "list_workers",
    "register_worker",
    "retry_failed_tasks",
    "run_job_test",
    "update_task_status",
    "worker_heartbeat",
]

P = ParamSpec("P")
T = TypeVar("T")


@functools.cache
def _loop() -> LoopThread:
    """Return the loop of all calls: connections of a context belong to the loop that they were opened on."""
    return LoopThread("dagmaster-blocking")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a call on the loop, with the context variables of the caller."""
    return _loop().run(work)


def _blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return wait_for(function(*args, **kwargs))

    return call


def _checked(add: Callable[P, T]) -> Callable[P, T]:
    """Return a call that raises in an async task that adds to its own job: it would block its loop."""

    @functools.wraps(add)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        running = get_running_task()
        job_id: Any = args[0] if args else kwargs.get("job_id")
        if running is not None and str(running.job_id) == str(job_id):
            check_may_block("blocking.add_task_to_job", "await dagmaster.add_task_to_job(…)")
        return add(*args, **kwargs)

    return call


class OrchContext:
    """`dagmaster.OrchContext` as an ordinary context manager, with the same arguments."""

    def __init__(self, **options: Any) -> None:
        self.asynchronous = contexts.OrchContext(**options)
        self.asynchronous.blocking = self

    def __enter__(self) -> Self:
        wait_for(self.asynchronous.open())
        self.asynchronous.enter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Let the jobs complete, or cancel those made here if the code raised an exception; then close."""
        self.asynchronous.leave()
        wait_for(self.asynchronous.close(error))

    if not TYPE_CHECKING:  # A type checker also says it.

        async def __aenter__(self) -> Never:
            """Raise: its calls block."""
            raise TypeError(
                "blocking.OrchContext needs `with`; with await: from dagmaster import OrchContext"
            )

        async def __aexit__(self, *_exception: object) -> None:
            """Do nothing: it was not entered."""

    @property
    def job_id(self) -> int | None:
        """Return the job that `apply` adds to."""
        return self.asynchronous.job_id

    def create_job(self, name: str, entry: Any, *, idempotency_key: str | None = None) -> Job:
        """Store a job with the graph of a task, a group, a list of them, or a function."""
        return wait_for(self.asynchronous.create_job(name, entry, idempotency_key=idempotency_key))

    def apply(self, items: T, job_id: int | str | None = None) -> T:
        """Add tasks and groups to a job, all or none, and return them with their job and node set."""
        return wait_for(self.asynchronous.apply(items, job_id))


create_job = _blocking(current_context.create_job)
get_job = _blocking(management.get_job)
list_jobs = _blocking(management.list_jobs)
cancel_job = _blocking(management.cancel_job)
retry_failed_tasks = _blocking(management.retry_failed_tasks)
get_task = _blocking(management.get_task)
list_tasks = _blocking(management.list_tasks)
list_dependencies = _blocking(management.list_dependencies)
claim_next_task = _blocking(claimed_tasks.claim_next_task)
update_task_status = _blocking(claimed_tasks.update_task_status)
add_task_to_job = _checked(_blocking(management.add_task_to_job))
register_worker = _blocking(workers.register_worker)
worker_heartbeat = _blocking(workers.worker_heartbeat)
deregister_worker = _blocking(workers.deregister_worker)
list_workers = _blocking(workers.list_workers)
health_check = _blocking(workers.health_check)
