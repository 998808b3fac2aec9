"""The composition root: the only place where components are wired.

A component is imported where it is wired: a command that lists jobs imports no handler and no service.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dagmaster.bootstrap.secret_keys import make_vault
from dagmaster.host.private_files import tighten

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    from dagmaster.application.context import Application
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.engine.graph import DefaultLimits
    from dagmaster.local.runner import LocalServices
    from dagmaster.orchestrator.service import Orchestrator
    from dagmaster.orchestrator.turn import TurnObserver
    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.settings import Settings
    from dagmaster.worker.lazy_services import ServicesConfig
    from dagmaster.worker.process_pool import HandlerProcesses
    from dagmaster.worker.service import Worker

T = TypeVar("T")


def find_handlers(modules: tuple[str, ...] = (), settings: Settings | None = None) -> Registry:
    """Return the handlers that are built in, in the settings, in installed packages or in these modules."""
    from dagmaster.sdk.handler_registry import discover
    from dagmaster.settings import load_settings

    settings = settings or load_settings()
    names = handler_modules(modules, settings)
    return discover(names, default_queue=settings.default_queue, python_queue=settings.python_queue)


def handler_modules(modules: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    from dagmaster.handlers import SHIPPED_HANDLERS

    return (*SHIPPED_HANDLERS, *settings.handlers, *modules)


@contextlib.contextmanager
def database(
    settings: ClientSettings | Settings | None = None, data_dir: pathlib.Path | None = None
) -> Iterator[str]:
    """Yield the URL of the database: the operator's server, or the embedded one while in use."""
    from dagmaster.bootstrap.client_settings import load_client_settings

    with open_database(settings or load_client_settings(), data_dir) as config:
        yield config.dsn


@contextlib.contextmanager
def open_database(
    settings: ClientSettings | Settings, data_dir: pathlib.Path | None = None
) -> Iterator[DatabaseConfig]:
    """Yield the database configuration; an embedded server that dies is restarted."""
    from dagmaster.ports.database_config import DatabaseConfig

    if settings.database_url is not None and data_dir is None:
        direct = settings.database_direct_url
        yield DatabaseConfig(
            dsn=settings.database_url.get_secret_value(),
            is_pooled=settings.database_pooled,
            direct=None if direct is None else direct.get_secret_value(),
        )
        return
    from dagmaster.store.embedded.server import EmbeddedPostgres, default_data_dir

    embedded = EmbeddedPostgres(data_dir or settings.data_dir)
    folder = pathlib.Path(os.path.realpath(data_dir or settings.data_dir or default_data_dir()))
    lock = threading.Lock()

    def restart() -> None:
        with lock:
            embedded.start()

    with embedded as server:
        yield DatabaseConfig(dsn=server.dsn, restart_embedded=restart, data_dir=folder)


async def ensure_schema(config: DatabaseConfig, *, migrate: bool) -> None:
    """Ensure that the schema is current: migrate, or raise with the remedy."""
    from dagmaster.store.postgres import schema_version as schema

    if migrate and schema.needs_upgrade(await schema.current(config.dsn)):
        await asyncio.to_thread(schema.upgrade, config.dsn)
    else:
        await schema.require_current(config.dsn)


def blob_directory(settings: ClientSettings | Settings, data_dir: pathlib.Path | None = None) -> pathlib.Path:
    if settings.blob_dir is not None:
        return settings.blob_dir
    from dagmaster.store.embedded.server import default_data_dir

    data_dir = data_dir or settings.data_dir or default_data_dir()
    return data_dir.with_name(f"{data_dir.name}-blobs")


def large_outputs(settings: ClientSettings | Settings, folder: pathlib.Path) -> OutputBlobs:
    """Return the store of large outputs: an object store if configured, else this folder."""
    if settings.outputs_url is None:
        from dagmaster.adapters.output_blobs_local import LocalBlobs

        tighten(folder, is_named=settings.blob_dir is not None)
        return LocalBlobs(folder)
    from dagmaster.adapters.output_blobs_remote import StoredBlobs
    from dagmaster.adapters.storage.router import ObjectStorage

    storage = ObjectStorage({"outputs": settings.outputs_url})
    return StoredBlobs(storage, storage.in_zone("outputs"))


@contextlib.asynccontextmanager
async def open_application(
    config: DatabaseConfig,
    settings: ClientSettings | Settings,
    data_dir: pathlib.Path | None = None,
    *,
    migrate: bool = False,
) -> AsyncIterator[Application]:
    """Open the application layer on a database whose schema is current; with `migrate`, migrate it first.

    Its stores connect when they are first used; the reader does to check the schema, and one connection
    serves both.
    """
    from dagmaster.store.postgres.client_store import PostgresClientStore

    if migrate:
        await ensure_schema(config, migrate=True)
    async with contextlib.AsyncExitStack() as stack:
        client = PostgresClientStore(config)
        stack.push_async_callback(client.close)
        blob_dir = blob_directory(settings, data_dir)
        app = await stack.enter_async_context(
            wire_application(config, settings, blob_dir, client=client, checks_schema=not migrate)
        )
        yield replace(app, own_turns=partial(own_turns, config, app.blobs))


@contextlib.asynccontextmanager
async def own_turns(config: DatabaseConfig, blobs: OutputBlobs, job_id: str) -> AsyncIterator[None]:
    """Decide about one job in this process."""
    from dagmaster.orchestrator.single_job import running
    from dagmaster.settings import load_settings

    async with running(make_orchestrator(config, blobs, load_settings(), job_id=job_id)):
        yield


@contextlib.asynccontextmanager
async def wire_application(
    config: DatabaseConfig,
    settings: ClientSettings | Settings,
    blob_dir: pathlib.Path,
    *,
    client: ClientStore,
    default_queue: str | None = None,
    checks_schema: bool = False,
    tenant: str | None = None,
) -> AsyncIterator[Application]:
    """Wire the application layer around a client store. `blob_dir`: the directory of large outputs.

    `tenant`: whose rows it sees before it is asked on behalf of a caller, if the role depends on that.
    """
    from dagmaster.application.context import Application
    from dagmaster.store.postgres import schema_version
    from dagmaster.store.postgres.connection import Connection
    from dagmaster.store.postgres.read_store import PostgresReadStore
    from dagmaster.store.postgres.reusable_results import PostgresReusableResults

    lease, worker_lease = settings.orchestrator_lease_seconds, settings.worker_lease_seconds
    blobs = large_outputs(settings, blob_dir)
    async with contextlib.AsyncExitStack() as stack:
        read = PostgresReadStore(
            config,
            lease_seconds=lease,
            worker_lease_seconds=worker_lease,
            statement_timeout_seconds=settings.read_timeout_seconds,
        )
        stack.push_async_callback(read.close)
        if checks_schema:
            await schema_version.require_current_of(read.pool)
        connection = Connection(config, "dagmaster dry run")
        stack.push_async_callback(connection.close)
        results = PostgresReusableResults(
            connection, blobs, lease_seconds=lease, worker_lease_seconds=worker_lease
        )
        yield Application(
            read=read if tenant is None else read.for_tenant(tenant),
            client=client if tenant is None else client.for_tenant(tenant),
            results=results if tenant is None else results.for_tenant(tenant),
            blobs=blobs,
            env=allowed_env(settings),
            callback_loopback=settings.callback_loopback or config.is_embedded,
            default_queue=default_queue,
            limits=default_limits(settings),
            vault=make_vault(config, settings),
        )


def make_orchestrator(
    config: DatabaseConfig,
    blobs: OutputBlobs,
    settings: Settings,
    *,
    queue: str | None = None,
    job_id: str | None = None,
    observer: TurnObserver | None = None,
) -> Orchestrator:
    from dagmaster.orchestrator.poll_schedule import ClaimScope, Timing
    from dagmaster.orchestrator.service import Orchestrator
    from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore

    lease, worker_lease = settings.orchestrator_lease_seconds, settings.worker_lease_seconds
    store = PostgresOrchestratorStore(
        config, blobs=blobs, lease_seconds=lease, worker_lease_seconds=worker_lease
    )
    timing = Timing(
        poll_seconds=settings.poll_seconds,
        heartbeat_seconds=settings.orchestrator_heartbeat_seconds or lease / 3,
        scan_seconds=settings.orchestrator_scan_seconds or lease / 3,
        worker_scan_seconds=worker_lease / 6,
        max_backoff_seconds=settings.reconnect_max_seconds,
        metric_retention_seconds=settings.metric_retention_days * 86_400 or None,
    )
    return Orchestrator(
        store,
        blobs=blobs,
        timing=timing,
        claims=ClaimScope(queue, job_id),
        limits=default_limits(settings),
        observer=observer,
        vault=make_vault(config, settings),
    )


def default_limits(settings: Settings | ClientSettings) -> DefaultLimits:
    """Return the operator's limits for tasks and jobs whose workflow states none."""
    from dagmaster.engine.graph import DefaultLimits

    limits = DefaultLimits(
        task_timeout_seconds=settings.task_timeout_seconds, job_timeout_seconds=settings.job_timeout_seconds
    )
    retries = settings.task_max_retries
    return limits if retries is None else replace(limits, task_max_attempts=retries + 1)


def make_worker(
    config: DatabaseConfig,
    blobs: OutputBlobs,
    settings: Settings,
    *,
    modules: tuple[str, ...] = (),
    registry: Registry | None = None,
    queues: Sequence[str] = (),
    blob_dir: pathlib.Path | None = None,
    in_process: bool = False,
) -> Worker:
    """Wire a worker. No queues: it serves every queue.

    `in_process`: plain functions run on threads of this process.
    """
    from dagmaster.ports.run_queues import is_run_queue
    from dagmaster.settings.log_directory import is_default_logs_dir, named_logs_dir
    from dagmaster.store.postgres.worker_store import PostgresWorkerStore
    from dagmaster.worker.lazy_services import LazyServices
    from dagmaster.worker.memory_limit import check_memory_limit
    from dagmaster.worker.options import WorkerOptions, WorkerPorts
    from dagmaster.worker.service import Worker

    processes, services = handler_processes(settings, modules, blob_dir=blob_dir, is_alone=config.is_embedded)
    store = PostgresWorkerStore(config)
    # Empty is not missing: functions may be found when tasks name them.
    handlers = find_handlers(modules, settings) if registry is None else registry
    memory_limit_mb = worker_memory_mb(settings)
    if not in_process:
        check_memory_limit(memory_limit_mb)
    options = WorkerOptions(
        queues=queues,
        concurrency=settings.concurrency,
        poll_seconds=settings.poll_seconds,
        # Three heartbeats in a lease: one may be lost, and the next one late.
        heartbeat_seconds=settings.worker_heartbeat_seconds or settings.worker_lease_seconds / 3,
        drain_seconds=settings.drain_seconds,
        blocked_seconds=settings.blocked_seconds,
        task_timeout_seconds=settings.task_timeout_seconds,
        shares_loop=in_process,
        recycles=not in_process,
        memory_limit_mb=memory_limit_mb,
        # The worker of `run` serves its own job only.
        publishes_handlers=not any(map(is_run_queue, queues)),
        log_dir=named_logs_dir(settings),
        logs_silent_tasks=not is_default_logs_dir(settings.log_dir),
        echoes=in_process and is_default_logs_dir(settings.log_dir),
    )
    return Worker(
        WorkerPorts(
            source=store,
            ledger=store,
            journal=store,
            blobs=blobs,
            secrets=secret,
            vault=make_vault(config, settings),
        ),
        handlers,
        options=options,
        processes=None if in_process else processes,
        services=LazyServices(services),
    )


def worker_memory_mb(settings: Settings) -> int:
    """Return the memory limit of a worker: that of the settings, else of its control group; 0: none."""
    from dagmaster.worker.memory_limit import default_limit_mb

    return default_limit_mb() if settings.worker_memory_mb is None else settings.worker_memory_mb


def handler_processes(
    settings: Settings,
    modules: tuple[str, ...],
    *,
    blob_dir: pathlib.Path | None,
    is_alone: bool,
) -> tuple[HandlerProcesses, ServicesConfig]:
    """Wire the child processes of a worker, and the services that handlers get in them."""
    from dagmaster.worker.process_pool import HandlerProcesses

    limit = min(settings.processes or (os.cpu_count() or 1) + 4, settings.concurrency)
    from dagmaster.bootstrap.services_config import handler_services_config

    services = handler_services_config(settings, blob_dir, processes=limit, is_alone=is_alone)
    pool = HandlerProcesses(
        handler_modules(modules, settings),
        limit=limit,
        memory_limit_mb=settings.task_memory_mb,
        services=services,
    )
    return pool, services


@contextlib.asynccontextmanager
async def stored_services(
    config: DatabaseConfig,
    settings: Settings,
    *,
    modules: tuple[str, ...],
    registry: Registry,
    blob_dir: pathlib.Path,
    in_process: bool = False,
) -> AsyncIterator[LocalServices]:
    """Wire the services of a local run whose job is stored in PostgreSQL. `in_process`: see `make_worker`."""
    from dagmaster.local.runner import LocalServices
    from dagmaster.settings.log_directory import local_logs_dir
    from dagmaster.store.postgres.client_store import PostgresClientStore

    await ensure_schema(config, migrate=config.is_embedded)
    settings = settings.model_copy(update={"log_dir": local_logs_dir(settings)})
    async with contextlib.AsyncExitStack() as stack:
        client = PostgresClientStore(config, "dagmaster run")
        await client.open()
        stack.push_async_callback(client.close)
        application = await stack.enter_async_context(
            wire_application(config, settings, blob_dir, client=client)
        )
        yield LocalServices(
            application=application,
            ids=client.identity.ids,
            make_orchestrator=lambda queue: make_orchestrator(
                config, application.blobs, settings, queue=queue
            ),
            make_worker=lambda queue: make_worker(
                config,
                application.blobs,
                settings,
                modules=modules,
                registry=registry,
                queues=[queue],
                blob_dir=blob_dir,
                in_process=in_process,
            ),
        )


def ephemeral_services(
    settings: Settings,
    *,
    modules: tuple[str, ...],
    registry: Registry,
    blob_dir: pathlib.Path,
) -> LocalServices:
    """Wire the services of a local run with its job in memory. Plain functions run in child processes."""
    from dagmaster.local.memory_services import memory_services
    from dagmaster.settings.log_directory import is_default_logs_dir, local_logs_dir
    from dagmaster.worker.lazy_services import LazyServices
    from dagmaster.worker.options import WorkerOptions

    processes, services = handler_processes(settings, modules, blob_dir=blob_dir, is_alone=True)
    return memory_services(
        registry,
        secrets=secret,
        services=LazyServices(services),
        processes=processes,
        limits=default_limits(settings),
        options=WorkerOptions(
            concurrency=settings.concurrency,
            drain_seconds=settings.drain_seconds,
            blocked_seconds=settings.blocked_seconds,
            log_dir=local_logs_dir(settings),
            logs_silent_tasks=not is_default_logs_dir(settings.log_dir),
        ),
    )


def run_service(work: Coroutine[Any, Any, T]) -> T:
    """Run a service on uvloop if available. Handlers run on their own asyncio loop."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        # It does not exist for Windows and for some interpreters.
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def secret(name: str) -> str | None:
    """Return a secret from the environment of the process that runs the task."""
    return os.environ.get(f"DAGMASTER_SECRET_{name}")


def allowed_env(settings: ClientSettings | Settings) -> dict[str, str]:
    """Return the variables that expressions may read as env.NAME."""
    return {name: os.environ[name] for name in settings.allowed_env if name in os.environ}
