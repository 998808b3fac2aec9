"""The services of a run in memory: the orchestrator and the worker of the real stack, over `store/memory`."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from dagmaster.adapters.secret_vault import memory_vault
from dagmaster.application.context import Application
from dagmaster.local.idle_clock import IdleClock
from dagmaster.local.runner import LocalServices
from dagmaster.orchestrator.poll_schedule import ClaimScope, Timing
from dagmaster.orchestrator.service import Orchestrator
from dagmaster.orchestrator.single_job import running
from dagmaster.sdk.handler_mocks import with_mocks
from dagmaster.store.memory.client_store import MemoryClientStore
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.store.memory.orchestrator_store import MemoryOrchestratorStore
from dagmaster.store.memory.read_store import MemoryReadStore
from dagmaster.store.memory.reusable_results import MemoryReusableResults
from dagmaster.store.memory.worker_store import MemoryWorkerStore
from dagmaster.worker.options import WorkerOptions, WorkerPorts
from dagmaster.worker.service import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.engine.graph import DefaultLimits
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.handler_services import WorkerServices
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.worker.process_pool import HandlerProcesses

DRAIN_SECONDS: Final = 3.0
"""How long handlers have to end when a run is aborted. A run that finished has none left."""

SHARED_LOOP: Final = WorkerOptions(drain_seconds=DRAIN_SECONDS, shares_loop=True)
"""The worker of a run whose functions are called in this process."""


def memory_services(
    registry: Registry,
    *,
    database: MemoryDatabase | None = None,
    clock: Clock | None = None,
    secrets: Callable[[str], str | None] = lambda _name: None,
    services: WorkerServices | None = None,
    processes: HandlerProcesses | None = None,
    limits: DefaultLimits | None = None,
    options: WorkerOptions = SHARED_LOOP,
) -> LocalServices:
    """Wire services whose jobs live in memory and end with this process.

    Leases never expire and nothing is polled: every writer is in this process, and the clock may jump.
    `processes` serve one run: its worker closes them. Handlers that a test replaced are replaced here.
    """
    registry = with_mocks(registry)
    idle_clock = IdleClock(clock)
    database = database or MemoryDatabase(idle_clock)
    database.clock = idle_clock
    tables = database
    idle_clock.has_work = lambda: bool(tables.queue or tables.results or tables.inbox)
    client = MemoryClientStore(database)

    vault = memory_vault()

    def make_orchestrator(queue: str | None, job_id: str | None = None) -> Orchestrator:
        store = MemoryOrchestratorStore(tables, lease_seconds=inf, worker_lease_seconds=inf)
        timing = Timing(poll_seconds=inf)
        return Orchestrator(
            store,
            blobs=tables.blobs,
            timing=timing,
            claims=ClaimScope(queue, job_id),
            limits=limits,
            vault=vault,
        )

    def make_worker(queue: str) -> Worker:
        store = MemoryWorkerStore(tables)
        ports = WorkerPorts(
            source=store, ledger=store, journal=store, blobs=tables.blobs, secrets=secrets, vault=vault
        )
        return Worker(
            ports,
            registry,
            options=replace(options, queues=[queue]),
            processes=processes,
            services=services,
        )

    application = Application(
        read=MemoryReadStore(database, lease_seconds=inf, worker_lease_seconds=inf),
        client=client,
        results=MemoryReusableResults(database),
        blobs=database.blobs,
        limits=limits,
        own_turns=lambda job_id: running(make_orchestrator(None, job_id)),
        vault=vault,
    )
    return LocalServices(
        application=application,
        ids=client.ids,
        make_orchestrator=make_orchestrator,
        make_worker=make_worker,
        clock=idle_clock,
    )
