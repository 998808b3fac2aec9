"""Where graphs of Python code go: to a database, to a server over HTTP, or to this process alone."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from dagmaster.client.system import LocalSystem, RemoteSystem, System, current_user
from dagmaster.ports.audit_trail import ChangeOrigin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dagmaster.application.context import Application
    from dagmaster.application.remote_tasks import RemoteTasks
    from dagmaster.application.views import JobRecord
    from dagmaster.application.views.health import HealthView
    from dagmaster.application.views.remote_tasks import (
        ClaimedTasksView,
        HeartbeatView,
        RegistrationView,
        TaskResultView,
    )
    from dagmaster.authoring.python.process_functions import ProcessRegistry
    from dagmaster.local.runner import LocalServices
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.remote_workers import NewWorker
    from dagmaster.ports.task_messages import Outcome

T = TypeVar("T")
DEFAULT_QUEUE: Final = "default"
"""The queue of tasks that name none, on a database that belongs to this machine."""


class Backend(System, Protocol):
    """What answers the calls of a context."""

    default_queue: str | None
    """The queue of tasks that name none; None: they are rejected."""

    @property
    def server(self) -> str | None:
        """Return the address of the server; None without a server."""

    @property
    def is_shared(self) -> bool:
        """Return whether calls work on any event loop."""

    async def read_job(self, job_id: str) -> tuple[JobRecord, Any]:
        """Return a job and its result."""

    async def register_worker(
        self, host: str, pid: int, queues: Sequence[str] = (), handlers: Sequence[str] = ()
    ) -> RegistrationView:
        """Register a worker of this code; without handlers it gets no tasks."""

    async def renew_worker(self, worker_id: str, task_ids: Sequence[str] = ()) -> HeartbeatView:
        """Renew the lease of such a worker, and of the tasks that it holds."""

    async def claim_task(
        self, worker_id: str, task_ids: Sequence[str], wait_seconds: float
    ) -> ClaimedTasksView:
        """Claim a task for such a worker."""

    async def report_task(
        self, worker_id: str, task_id: str, lease_token: int, outcome: Outcome
    ) -> TaskResultView:
        """Report the outcome of a task that such a worker holds."""

    async def deregister_worker(self, worker_id: str) -> None:
        """Deregister such a worker, and release its tasks."""

    async def check_health(self) -> HealthView:
        """Return the state of each part of the system."""


@dataclass(slots=True)
class ApplicationBackend(LocalSystem):
    """A database. `config` is None for one in memory; then `services` run its jobs."""

    app: Application
    default_queue: str | None
    config: DatabaseConfig | None = None
    services: LocalServices | None = None
    functions: ProcessRegistry | None = None
    """The functions that these services know."""
    server: None = None

    @property
    def is_shared(self) -> bool:
        """Return whether calls work on any event loop: the store in memory has no connection."""
        return self.config is None

    async def read_job(self, job_id: str) -> tuple[JobRecord, Any]:
        """Return a job and its result, without its nodes."""
        from dagmaster.application.job_lookup import find_job, load_value
        from dagmaster.application.secret_inputs import RedactorCache
        from dagmaster.records.redacted import redacted

        record = await find_job(self.app, job_id)
        redact = await RedactorCache(self.app).get(record.job_id, record.content_hash)
        return redacted(record, redact), await load_value(self.app, record.result, record.result_ref)

    async def register_worker(
        self, host: str, pid: int, queues: Sequence[str] = (), handlers: Sequence[str] = ()
    ) -> RegistrationView:
        """Register a worker of this code; without handlers it gets no tasks."""
        async with self._remote_tasks() as tasks:
            return await tasks.register(_external_worker(host, pid, queues, handlers))

    async def renew_worker(self, worker_id: str, task_ids: Sequence[str] = ()) -> HeartbeatView:
        """Renew the lease of such a worker, and of the tasks that it holds."""
        async with self._remote_tasks() as tasks:
            return await tasks.heartbeat(worker_id, task_ids, _registrar())

    async def claim_task(
        self, worker_id: str, task_ids: Sequence[str], wait_seconds: float
    ) -> ClaimedTasksView:
        """Claim a task for such a worker."""
        from dagmaster.application.remote_tasks import ClaimRequest

        async def is_connected() -> bool:
            return True

        request = ClaimRequest(worker_id=worker_id, task_ids=task_ids, wait_seconds=wait_seconds)
        async with self._remote_tasks() as tasks:
            return await tasks.claim(request, _registrar(), is_connected)

    async def report_task(
        self, worker_id: str, task_id: str, lease_token: int, outcome: Outcome
    ) -> TaskResultView:
        """Report the outcome of a task that such a worker holds."""
        async with self._remote_tasks() as tasks:
            return await tasks.report(worker_id, task_id, lease_token, outcome, _registrar())

    async def deregister_worker(self, worker_id: str) -> None:
        async with self._remote_tasks() as tasks:
            await tasks.deregister(worker_id, _registrar())

    async def check_health(self) -> HealthView:
        from dagmaster.application.health import HealthMonitor
        from dagmaster.bootstrap.python_graphs import schema_admin

        return await HealthMonitor(self.app, schema_admin(self.config)).check()

    def _remote_tasks(self) -> contextlib.AbstractAsyncContextManager[RemoteTasks]:
        from dagmaster.bootstrap.python_graphs import open_remote_tasks

        return open_remote_tasks(self.config, self.app)


@dataclass(slots=True)
class ServerBackend(RemoteSystem):
    """A server."""

    default_queue: str | None = None
    is_shared: bool = False

    @property
    def server(self) -> str:
        return self.client.connection.url

    async def read_job(self, job_id: str) -> tuple[JobRecord, Any]:
        view = await self.client.job_detail(job_id)
        return view, view.result

    async def register_worker(
        self, host: str, pid: int, queues: Sequence[str] = (), handlers: Sequence[str] = ()
    ) -> RegistrationView:
        """Register a worker of this code; without handlers it gets no tasks."""
        return await self.client.register_worker(_external_worker(host, pid, queues, handlers))

    async def renew_worker(self, worker_id: str, task_ids: Sequence[str] = ()) -> HeartbeatView:
        """Renew the lease of such a worker, and of the tasks that it holds."""
        return await self.client.renew_worker(worker_id, task_ids)

    async def claim_task(
        self, worker_id: str, task_ids: Sequence[str], wait_seconds: float
    ) -> ClaimedTasksView:
        """Claim a task for such a worker."""
        return await self.client.claim_task(worker_id, task_ids, wait_seconds)

    async def report_task(
        self, worker_id: str, task_id: str, lease_token: int, outcome: Outcome
    ) -> TaskResultView:
        """Report the outcome of a task that such a worker holds."""
        return await self.client.report_task(worker_id, task_id, lease_token, outcome)

    async def deregister_worker(self, worker_id: str) -> None:
        await self.client.deregister_worker(worker_id)

    async def check_health(self) -> HealthView:
        return await self.client.check_health()


@contextlib.asynccontextmanager
async def open_backend(url: str | None = None, key: str | None = None) -> AsyncIterator[Backend]:
    """Open the server of this address or of DAGMASTER_URL, else the (embedded) database of the settings."""
    from dagmaster.bootstrap.client_settings import load_client_settings

    settings = load_client_settings()
    queue = getattr(settings, "python_queue", None) or getattr(settings, "default_queue", None)
    if url is None and settings.url is not None:
        url, key = settings.url, key or (None if settings.key is None else settings.key.get_secret_value())
    if url is not None:
        from dagmaster.client.async_client import AsyncClient

        async with AsyncClient(url, key) as client:
            yield ServerBackend(client, queue)
        return
    from dagmaster.bootstrap import open_application, open_database

    async with entered(open_database(settings)) as config:
        is_own = config.is_embedded
        async with open_application(config, settings, migrate=is_own) as app:
            own = app.on_behalf_of(ChangeOrigin(actor=current_user()))
            yield ApplicationBackend(own, queue or (DEFAULT_QUEUE if is_own else None), config)


def memory_backend(clock: Clock | None = None) -> ApplicationBackend:
    """Return a database in memory, whose jobs `run_job_test` runs."""
    from dagmaster.authoring.python.process_functions import ProcessRegistry
    from dagmaster.bootstrap import find_handlers
    from dagmaster.local.memory_services import SHARED_LOOP, memory_services
    from dagmaster.settings.log_directory import is_default_logs_dir, script_logs_dir

    log_dir = script_logs_dir()
    functions = ProcessRegistry(find_handlers)
    is_default = is_default_logs_dir(log_dir)
    options = replace(
        SHARED_LOOP,
        log_dir=log_dir,
        logs_silent_tasks=not is_default,
        echoes=log_dir is not None and is_default,
    )
    services = memory_services(functions, clock=clock, options=options)
    return ApplicationBackend(services.application, DEFAULT_QUEUE, services=services, functions=functions)


def _registrar() -> str:
    """Return who may act for the workers that are registered here: no key has such an id."""
    return f"user {current_user()}"


def _external_worker(
    host: str, pid: int, queues: Sequence[str] = (), handlers: Sequence[str] = ()
) -> NewWorker:
    from dagmaster.ports.remote_workers import NewWorker

    # A queue without tasks: a worker without queues counts as one that serves them all.
    chosen = tuple(queues) or (() if handlers else ("external",))
    versions = dict.fromkeys(handlers, "1")
    return NewWorker(
        registered_by=_registrar(), host=host, pid=pid, version="python", queues=chosen, handlers=versions
    )


@contextlib.asynccontextmanager
async def entered(manager: contextlib.AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter a context manager on a thread: it may start a server."""
    value = await asyncio.to_thread(manager.__enter__)
    try:
        yield value
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)
