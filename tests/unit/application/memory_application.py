"""An application over the stores in memory, with an orchestrator and a worker next to it where a test needs them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from dagmaster.application.context import Application
from dagmaster.bootstrap.monitoring import observe_tasks, observe_turns
from dagmaster.orchestrator.service import Orchestrator
from dagmaster.store.memory.client_store import MemoryClientStore
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.store.memory.orchestrator_store import MemoryOrchestratorStore
from dagmaster.store.memory.read_store import MemoryReadStore
from dagmaster.store.memory.reusable_results import MemoryReusableResults
from dagmaster.store.memory.worker_store import MemoryWorkerStore
from dagmaster.worker.options import WorkerOptions, WorkerPorts
from dagmaster.worker.service import Worker
from tests.patience import PATIENCE_SECONDS
from tests.secret_vaults import VAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from dagmaster.application.views.jobs import JobDetailView
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.telemetry.prometheus import ProcessMetrics


def memory_application(database: MemoryDatabase | None = None) -> Application:
    """Return an application on a database in memory."""
    database = database or MemoryDatabase()
    return Application(
        read=MemoryReadStore(database),
        client=MemoryClientStore(database),
        results=MemoryReusableResults(database),
        blobs=database.blobs,
        vault=VAULT,
    )


@contextlib.asynccontextmanager
async def served_application(
    registry: Registry, metrics: ProcessMetrics | None = None, queues: Sequence[str] = ()
) -> AsyncIterator[Application]:
    """Provide an application whose jobs are run by an orchestrator and a worker of this process."""
    database = MemoryDatabase()
    orchestrator = Orchestrator(MemoryOrchestratorStore(database), blobs=database.blobs, vault=VAULT)
    store = MemoryWorkerStore(database)
    ports = WorkerPorts(
        source=store,
        ledger=store,
        journal=store,
        blobs=database.blobs,
        secrets=lambda _name: None,
        vault=VAULT,
    )
    options = WorkerOptions(queues=queues, shares_loop=True, publishes_handlers=True)
    worker = Worker(ports, registry, options=options)
    observe_turns(orchestrator, metrics)
    observe_tasks(worker, metrics)
    services = [asyncio.create_task(service.run()) for service in (orchestrator, worker)]
    try:
        await asyncio.gather(orchestrator.ready.wait(), worker.ready.wait())
        yield memory_application(database)
    finally:
        for service in (worker, orchestrator):
            service.stop()
        await asyncio.gather(*services)


async def finished(app: Application, job_id: str | None) -> JobDetailView:
    """Wait until a job has finished; return its last view."""
    from dagmaster.application.job_watch import watch_job

    async with asyncio.timeout(PATIENCE_SECONDS):
        return [view async for view in watch_job(app, job_id)][-1]


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition is not an event of the code under test
            await asyncio.sleep(0)
