"""The composition root: the only place where components are wired."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import tempfile
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from dagmaster.authoring.handler_registry import Registry, discover
from dagmaster.handlers import SHIPPED_HANDLERS
from dagmaster.ports.storage import ZONES
from dagmaster.scratch_dirs import ensure_private_dir
from dagmaster.settings import Settings, load_settings
from dagmaster.worker.lazy_services import LazyServices, ServicesConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    from dagmaster.application.context import Application
    from dagmaster.application.views import AuditView
    from dagmaster.local.runner import LocalServices
    from dagmaster.orchestrator.service import Orchestrator, TurnObserver
    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.handler_services import Services
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.worker.process_pool import HandlerProcesses
    from dagmaster.worker.service import Worker

T = TypeVar("T")


def find_handlers(modules: tuple[str, ...] = (), settings: Settings | None = None) -> Registry:
    """Return the built-in handlers, those of the settings, of installed packages and of the given modules."""
    return discover(handler_modules(modules, settings or load_settings()))


def handler_modules(modules: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Return the modules to search for handlers."""
    return (*SHIPPED_HANDLERS, *settings.handlers, *modules)


@contextlib.contextmanager
def database(settings: Settings | None = None, data_dir: pathlib.Path | None = None) -> Iterator[str]:
    """Yield the URL of the database: the operator's server, or the embedded one while in use."""
    with open_database(settings or load_settings(), data_dir) as address:
        yield address.dsn


@contextlib.contextmanager
def open_database(settings: Settings, data_dir: pathlib.Path | None = None) -> Iterator[DatabaseConfig]:
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
    from dagmaster.store.embedded.server import EmbeddedPostgres

    embedded = EmbeddedPostgres(data_dir or settings.data_dir)
    one_at_a_time = threading.Lock()

    def restart() -> None:
        with one_at_a_time:
            embedded.start()

    with embedded as server:
        yield DatabaseConfig(dsn=server.dsn, restart_embedded=restart)


async def ensure_schema(address: DatabaseConfig, *, migrate: bool) -> None:
    """Ensure that the schema is current: migrate, or raise with the remedy."""
    from dagmaster.store.postgres import schema_version as schema

    if migrate and await schema.current(address.dsn) in (None, *schema.OLDER):
        await asyncio.to_thread(schema.upgrade, address.dsn)
    else:
        await schema.require_current(address.dsn)


def blob_directory(settings: Settings, data_dir: pathlib.Path | None = None) -> pathlib.Path:
    """Return the directory of large outputs."""
    if settings.blob_dir is not None:
        return settings.blob_dir
    from dagmaster.store.embedded.server import default_data_dir

    beside = data_dir or settings.data_dir or default_data_dir()
    return beside.with_name(f"{beside.name}-blobs")


def large_outputs(settings: Settings, folder: pathlib.Path) -> OutputBlobs:
    """Return the store of large outputs: an object store if configured, else this folder."""
    if settings.outputs_url is None:
        from dagmaster.adapters.output_blobs_local import LocalBlobs

        return LocalBlobs(folder)
    from dagmaster.adapters.output_blobs_remote import StoredBlobs
    from dagmaster.adapters.storage.router import ObjectStorage

    storage = ObjectStorage({"outputs": settings.outputs_url})
    return StoredBlobs(storage, storage.in_zone("outputs"))


@contextlib.asynccontextmanager
async def open_application(
    config: DatabaseConfig, settings: Settings, data_dir: pathlib.Path | None = None, *, migrate: bool = False
) -> AsyncIterator[Application]:
    """Open the application layer on a database whose schema fits; with `migrate`, bring the schema up to date first.

    Its stores connect when they are first used.
    """
    from dagmaster.store.postgres.client_store import PostgresClientStore

    await ensure_schema(config, migrate=migrate)
    async with contextlib.AsyncExitStack() as stack:
        client = PostgresClientStore(config)
        stack.push_async_callback(client.close)
        home = blob_directory(settings, data_dir)
        yield await stack.enter_async_context(wire_application(config, settings, home, client=client))


@contextlib.asynccontextmanager
async def wire_application(
    config: DatabaseConfig, settings: Settings, home: pathlib.Path, *, client: ClientStore
) -> AsyncIterator[Application]:
    """Wire the application layer around a client store. `home`: the directory of large outputs."""
    from dagmaster.application.context import Application
    from dagmaster.store.postgres.connection import Connection
    from dagmaster.store.postgres.read_store import PostgresReadStore
    from dagmaster.store.postgres.reusable_results import PostgresReusableResults

    lease, worker_lease = settings.orchestrator_lease_seconds, settings.worker_lease_seconds
    blobs = large_outputs(settings, home)
    async with contextlib.AsyncExitStack() as stack:
        read = PostgresReadStore(config, lease_seconds=lease, worker_lease_seconds=worker_lease)
        stack.push_async_callback(read.close)
        connection = Connection(config, "dagmaster dry run")
        stack.push_async_callback(connection.close)
        yield Application(
            read=read,
            client=client,
            results=PostgresReusableResults(connection, blobs, lease_seconds=lease, worker_lease_seconds=worker_lease),
            blobs=blobs,
            env=allowed_env(settings),
        )


async def audit_database(config: DatabaseConfig, settings: Settings, job_ids: Sequence[str] | None = None) -> AuditView:
    """Check the invariants of all jobs of a database, or of some."""
    from dagmaster.application.views import AuditView, ViolationView
    from dagmaster.store.postgres.audit import audit_at

    audit = await audit_at(
        config,
        job_ids=job_ids,
        lease_seconds=settings.orchestrator_lease_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
    )
    return AuditView(
        is_valid=not audit.violations,
        jobs_total=audit.jobs,
        nodes_total=audit.nodes,
        events_total=audit.events,
        invariants_total=audit.promises,
        violations=tuple(
            ViolationView(
                invariant=violation.promise,
                rule=violation.sentence,
                job_id=violation.job_id,
                node_id=violation.node_id,
                message=violation.says,
            )
            for violation in audit.violations
        ),
    )


def make_orchestrator(
    address: DatabaseConfig,
    blobs: OutputBlobs,
    settings: Settings,
    *,
    queue: str | None = None,
    observer: TurnObserver | None = None,
) -> Orchestrator:
    """Wire an orchestrator."""
    from dagmaster.orchestrator.poll_schedule import Timing
    from dagmaster.orchestrator.service import Orchestrator
    from dagmaster.redaction import redact_value
    from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore

    lease, worker_lease = settings.orchestrator_lease_seconds, settings.worker_lease_seconds
    store = PostgresOrchestratorStore(address, blobs=blobs, lease_seconds=lease, worker_lease_seconds=worker_lease)
    timing = Timing(
        poll_seconds=settings.poll_seconds,
        heartbeat_seconds=lease / 3,
        scan_seconds=lease / 3,
        worker_scan_seconds=worker_lease / 6,
    )
    return Orchestrator(store, blobs=blobs, redact=redact_value, timing=timing, queue=queue, observer=observer)


def make_worker(
    address: DatabaseConfig,
    blobs: OutputBlobs,
    settings: Settings,
    *,
    modules: tuple[str, ...] = (),
    registry: Registry | None = None,
    queues: Sequence[str] = (),
    concurrency: int | None = None,
    home: pathlib.Path | None = None,
) -> Worker:
    """Wire a worker. No queues: it serves every queue."""
    from dagmaster.store.postgres.worker_store import PostgresWorkerStore
    from dagmaster.worker.service import Worker

    concurrency = concurrency or settings.concurrency
    processes, lent = _handler_processes(
        settings, modules, concurrency=concurrency, home=home, is_alone=address.is_embedded
    )
    store = PostgresWorkerStore(address)
    return Worker(
        store,
        store,
        store,
        registry or find_handlers(modules, settings),
        blobs=blobs,
        secrets=secret,
        queues=queues,
        concurrency=concurrency,
        processes=processes,
        services=LazyServices(lent),
        poll_seconds=settings.poll_seconds,
        heartbeat_seconds=settings.worker_lease_seconds / 3,
        drain_seconds=settings.drain_seconds,
        blocked_seconds=settings.blocked_seconds,
    )


def _handler_processes(
    settings: Settings, modules: tuple[str, ...], *, concurrency: int, home: pathlib.Path | None, is_alone: bool
) -> tuple[HandlerProcesses, ServicesConfig]:
    """Wire the child processes of a worker, and the services that handlers get in them."""
    from dagmaster.worker.process_pool import HandlerProcesses

    limit = min(settings.processes or (os.cpu_count() or 1) + 4, concurrency)
    lent = lending(settings, home, processes=limit, is_alone=is_alone)
    pool = HandlerProcesses(
        handler_modules(modules, settings), limit=limit, memory_limit_mb=settings.task_memory_mb, services=lent
    )
    return pool, lent


@contextlib.asynccontextmanager
async def stored_services(
    address: DatabaseConfig,
    settings: Settings,
    *,
    modules: tuple[str, ...],
    registry: Registry,
    concurrency: int | None,
    home: pathlib.Path,
) -> AsyncIterator[LocalServices]:
    """Wire the services of a local run whose job is stored in PostgreSQL."""
    from dagmaster.local.runner import LocalServices
    from dagmaster.store.postgres.client_store import PostgresClientStore

    await ensure_schema(address, migrate=address.is_embedded)
    async with contextlib.AsyncExitStack() as stack:
        client = PostgresClientStore(address, "dagmaster run")
        await client.open()
        stack.push_async_callback(client.close)
        application = await stack.enter_async_context(wire_application(address, settings, home, client=client))
        yield LocalServices(
            application=application,
            ids=client.identity.ids,
            make_orchestrator=lambda queue: make_orchestrator(address, application.blobs, settings, queue=queue),
            make_worker=lambda queue: make_worker(
                address,
                application.blobs,
                settings,
                modules=modules,
                registry=registry,
                queues=[queue],
                concurrency=concurrency,
                home=home,
            ),
        )


def ephemeral_services(
    settings: Settings,
    *,
    modules: tuple[str, ...],
    registry: Registry,
    concurrency: int | None,
    home: pathlib.Path,
) -> LocalServices:
    """Wire the services of a local run whose job is kept in memory. Plain functions run in child processes here too."""
    from dagmaster.local.memory_services import memory_services

    concurrency = concurrency or settings.concurrency
    processes, lent = _handler_processes(settings, modules, concurrency=concurrency, home=home, is_alone=True)
    return memory_services(
        registry,
        secrets=secret,
        services=LazyServices(lent),
        concurrency=concurrency,
        processes=processes,
        drain_seconds=settings.drain_seconds,
        blocked_seconds=settings.blocked_seconds,
    )


def lending(
    settings: Settings, home: pathlib.Path | None = None, *, processes: int = 1, is_alone: bool = True
) -> ServicesConfig:
    """Return the configuration of handler services as JSON: it is sent to child processes.

    `home` is the directory of large outputs. Not `is_alone`: the database has many users, and a file of this machine
    is none of theirs.
    """
    home = home or blob_directory(settings)
    roots = settings.file_roots or ((pathlib.Path.cwd(),) if is_alone else ())
    scratch = settings.scratch_dir
    if scratch is None:
        # All users of the machine may write there, and know the name.
        scratch = pathlib.Path(tempfile.gettempdir()) / f"dagmaster-scratch-{os.getuid()}"
        ensure_private_dir(scratch)
    tables, catalog = settings.tables_url, settings.catalog_url
    return ServicesConfig(
        "dagmaster.bootstrap:open_services",
        {
            # abspath: a zone is named without '..', which a data directory may be given with.
            "zones": {
                zone: getattr(settings, f"{zone}_url") or f"file://{os.path.abspath(home / zone)}"  # noqa: PTH100 - see above
                for zone in ZONES
            },
            # What raster.blob_to_mount copied is read as a file, by later tasks.
            "roots": [str(root.absolute()) for root in (*roots, scratch / "mount")],
            "containers": list(settings.storage_containers),
            "closed": [settings.outputs_url] if settings.outputs_url else [],
            "catalog": str(home.absolute() / "catalog") if catalog is None else catalog.get_secret_value(),
            "tables": str(home.absolute() / "tables") if tables is None else tables.get_secret_value(),
            "scratch": str(scratch.absolute()),
            "threads": max(1, (os.cpu_count() or 1) // processes),
            "cache_mb": settings.raster_cache_mb,
            "max_pixels": settings.raster_max_pixels,
            "max_file_mb": settings.raster_max_file_mb,
        },
    )


def open_services(config: dict[str, Any]) -> Services:
    """Open handler services in the process that uses them, each on first use."""
    from dagmaster.adapters.handler_services import OpenServices

    return OpenServices(config)


def run_service(work: Coroutine[Any, Any, T]) -> T:
    """Run a service on uvloop if available. Handlers run on their own asyncio loop."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        # There is none for Windows, nor for some interpreters.
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def secret(name: str) -> str | None:
    """Return a secret from the environment of the process that runs the task."""
    return os.environ.get(f"DAGMASTER_SECRET_{name}")


def allowed_env(settings: Settings) -> dict[str, str]:
    """Return the variables that expressions may read as env.NAME."""
    return {name: os.environ[name] for name in settings.allowed_env if name in os.environ}
