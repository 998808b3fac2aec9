"""`dagmaster orchestrator` and `dagmaster worker`: the services, one process each."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import click

from dagmaster.cli.errors import CommandError, command_errors
from dagmaster.cli.log_options import LogOptions, log_options
from dagmaster.cli.main import COMPLETED, INTERRUPTED
from dagmaster.cli.options import handlers_option
from dagmaster.cli.service_supervisor import READY_LINE
from dagmaster.errors import (
    OUTCOMES,
    DagmasterError,
    DatabaseUnavailable,
    EmbeddedPostgresUnavailable,
    StatementFailed,
)
from dagmaster.host.clocks import wait_at_most
from dagmaster.host.connection_backoff import ConnectionBackoff
from dagmaster.ports.queue_names import QUEUE_RULE, is_queue_name
from dagmaster.ports.recycle_reasons import EXIT_SENTENCES
from dagmaster.sdk.command_line import data_dir_option
from dagmaster.sdk.terminal import echo
from dagmaster.telemetry.logs import LogFormat
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable, Coroutine

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.settings import Settings
    from dagmaster.telemetry.logs import LogLevel

_LOGGER = logging.getLogger("dagmaster")
_LOCATIONS: Final = frozenset({"DAGMASTER_URL", "DAGMASTER_DATABASE_URL", "DAGMASTER_DATA_DIR"})


class Service(Protocol):
    """A process that runs until it is stopped."""

    ready: asyncio.Event

    async def run(self) -> None:
        """Run until `stop` is called."""

    def stop(self) -> None:
        """Start the shutdown."""


metrics_port_option = click.option(
    "--metrics-port",
    type=click.IntRange(1, 65_535),
    help="Serve metrics for Prometheus on this port.  [default: DAGMASTER_METRICS_PORT, else none]",
)
with_parent_option = click.option(
    "--with-parent", is_flag=True, hidden=True, help="Stop when standard input ends."
)


@click.command()
@click.option(
    "--serve", "address", metavar="HOST:PORT", help="Run the HTTP API next to it, in the same process."
)
@metrics_port_option
@data_dir_option
@log_options
@with_parent_option
def orchestrator(
    *,
    address: str | None,
    metrics_port: int | None,
    data_dir: pathlib.Path | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
    with_parent: bool,
) -> int:
    """Run an orchestrator: it owns jobs and decides which nodes run next.

    Any number of orchestrators may use one database. Each job is owned by one of them, and is reclaimed by
    another when its owner stops or dies. The database is DAGMASTER_DATABASE_URL, else the embedded one.
    SIGTERM and Ctrl-C release its jobs at once.

    \b
    Examples:
      DAGMASTER_DATABASE_URL=postgresql://… dagmaster migrate
      DAGMASTER_DATABASE_URL=postgresql://… dagmaster orchestrator
      DAGMASTER_DATABASE_URL=postgresql://… dagmaster orchestrator --serve 0.0.0.0:8420
    """
    from dagmaster.bootstrap import blob_directory, make_orchestrator
    from dagmaster.bootstrap.callbacks import relays_beside
    from dagmaster.bootstrap.monitoring import observe_turns, open_metrics_port
    from dagmaster.bootstrap.service_group import ServiceGroup

    logs = LogOptions(log_format, log_level)
    if address is None:

        def make_alone(config: DatabaseConfig, blobs: OutputBlobs, settings: Settings) -> Service:
            metrics = None if with_parent else open_metrics_port(settings, metrics_port)
            alone = observe_turns(make_orchestrator(config, blobs, settings), metrics)
            relays = relays_beside(config, settings, metrics, is_dev=with_parent)
            return ServiceGroup([alone, *relays]) if relays else alone

        return serve("orchestrator", make_alone, data_dir, logs, with_parent=with_parent)
    from dagmaster.bootstrap.http_server import ServerService
    from dagmaster.cli.http_address import bind, parse_address, url_of
    from dagmaster.telemetry.prometheus import ProcessMetrics

    listener = bind(*parse_address(address))

    def make(config: DatabaseConfig, blobs: OutputBlobs, settings: Settings) -> Service:
        # One process, one set of metrics: the server also shows the orchestrator's.
        metrics = open_metrics_port(settings, metrics_port) or ProcessMetrics()
        server = ServerService(
            config, settings, blob_directory(settings, data_dir), listener, metrics=metrics
        )
        deciding = observe_turns(make_orchestrator(config, blobs, settings), metrics)
        return ServiceGroup([deciding, server, *relays_beside(config, settings, metrics)])

    return serve(
        f"orchestrator with the HTTP API at {url_of(listener)}", make, data_dir, logs, with_parent=with_parent
    )


@click.command()
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="A queue to serve ('*': all queues). Repeatable."
)
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), help="How many tasks run concurrently.  [default: 32]"
)
@handlers_option
@metrics_port_option
@data_dir_option
@log_options
@with_parent_option
def worker(
    *,
    queues: tuple[str, ...],
    concurrency: int | None,
    modules: tuple[str, ...],
    metrics_port: int | None,
    data_dir: pathlib.Path | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
    with_parent: bool,
) -> int:
    """Run a worker: it executes the tasks of some queues.

    Async handlers run on an event loop, plain functions in child processes that can be killed. On SIGTERM or
    Ctrl-C the worker claims no more tasks. Running tasks may finish within 5 seconds; then they are asked to
    save a checkpoint and are released. DAGMASTER_DRAIN_SECONDS (30) limits the whole shutdown. A second
    signal exits at once.

    A worker that could not stop a handler shuts down in the same way and exits with code 80, at its memory
    limit (DAGMASTER_WORKER_MEMORY_MB) with code 81: a supervisor has to restart it.

    \b
    Examples:
      dagmaster worker --queue functionapp-tasks --queue container-tasks
      dagmaster worker --queue '*' --concurrency 8 --handlers ./my_handlers.py
    """
    from dagmaster.bootstrap import blob_directory, make_worker
    from dagmaster.bootstrap.monitoring import observe_tasks, open_metrics_port
    from dagmaster.bootstrap.worker_process import run_worker_process
    from dagmaster.settings import load_settings

    with command_errors():
        settings = load_settings(services=not with_parent)
    queues = queues or settings.queues
    if not queues:
        raise click.UsageError("name the queues to serve: --queue light, or --queue '*' for all queues")
    served = () if "*" in queues else queues
    for queue in served:
        if not is_queue_name(queue):
            raise click.UsageError(f"a queue is {QUEUE_RULE}, not {queue!r:.200}")
    _pass_to_tasks(settings, data_dir)

    def make(config: DatabaseConfig, blobs: OutputBlobs, settings: Settings) -> Service:
        if concurrency is not None:
            settings = settings.model_copy(update={"concurrency": concurrency})
        worker = make_worker(
            config,
            blobs,
            settings,
            modules=modules,
            queues=served,
            blob_dir=blob_directory(settings, data_dir),
        )
        return observe_tasks(worker, None if with_parent else open_metrics_port(settings, metrics_port))

    logs = LogOptions(log_format, log_level)
    return serve(
        f"worker of {', '.join(queues)}",
        make,
        data_dir,
        logs,
        with_parent=with_parent,
        run=lambda service: run_worker_process(service, settings),
    )


def serve(
    name: str,
    make: Callable[[DatabaseConfig, OutputBlobs, Settings], Service],
    data_dir: pathlib.Path | None,
    logs: LogOptions,
    *,
    with_parent: bool,
    needs_schema: bool = True,
    run: Callable[[Service], Coroutine[Any, Any, None]] = lambda service: service.run(),
    needs_secrets: bool = True,
) -> int:
    """Run a service until it is stopped. Without `needs_schema` it starts before the database is migrated.

    `needs_secrets`: whether it reads secret inputs.
    """
    from dagmaster.bootstrap import (
        blob_directory,
        large_outputs,
        open_database,
        run_service,
    )
    from dagmaster.bootstrap.monitoring import start_traces
    from dagmaster.bootstrap.secret_keys import check_secrets_key
    from dagmaster.settings import load_settings

    # Owned jobs are long-lived: frequent garbage collection would scan them for nothing.
    gc.set_threshold(50_000, 50, 50)
    # Aliases of settings are for services that run on their own.
    with command_errors():
        settings = load_settings(services=not with_parent)
        start_traces(settings, name.split(maxsplit=1)[0])
    log_format = logs.configure(settings)
    try:
        with open_database(settings, data_dir) as config:
            blobs = large_outputs(settings, blob_directory(settings, data_dir))
            code, must_exit = run_service(
                _run_until_stopped(
                    name,
                    lambda: make(config, blobs, settings),
                    config,
                    max_backoff_seconds=settings.reconnect_max_seconds,
                    start_retries=settings.start_retries,
                    compare_versions=partial(
                        warn_about_versions, config, settings, is_asked=needs_schema and not with_parent
                    ),
                    with_parent=with_parent,
                    needs_schema=needs_schema or config.is_embedded,
                    check_key=partial(check_secrets_key, config, settings) if needs_secrets else _no_check,
                    run=run,
                )
            )
    except DagmasterError as error:
        if log_format is LogFormat.JSON:
            _LOGGER.error("%s", error, extra={"code": error.code})  # noqa: TRY400 - its sentence says all
            return OUTCOMES[error.category].exit_code
        raise CommandError(error) from error
    if must_exit or code in EXIT_SENTENCES:
        _exit_at_once(code)
    return code


def _exit_at_once(code: int) -> NoReturn:
    """Exit without waiting for threads: there is one that may never end."""
    # Traces are exported here; threads are waited for after it.
    atexit._run_exitfuncs()  # noqa: SLF001 - the only way to these functions
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


async def _run_until_stopped(
    name: str,
    make: Callable[[], Service],
    config: DatabaseConfig,
    *,
    max_backoff_seconds: float,
    start_retries: int | None,
    compare_versions: Callable[[], Awaitable[None]],
    with_parent: bool,
    needs_schema: bool,
    check_key: Callable[[], Awaitable[None]],
    run: Callable[[Service], Coroutine[Any, Any, None]],
) -> tuple[int, bool]:
    """Return the exit code, and whether the process has a thread that cannot be stopped."""
    from dagmaster.bootstrap import ensure_schema

    stopped = asyncio.Event()
    service: Service | None = None

    def stop() -> None:
        if stopped.is_set():
            echo("exiting at once", err=True)
            os._exit(INTERRUPTED)
        stopped.set()
        if service is not None:
            announce("is stopping")
            service.stop()

    def announce(state: str) -> None:
        if not with_parent:
            _LOGGER.info("%s %s (pid %d)", name, state, os.getpid())

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if with_parent:
        loop.add_reader(sys.stdin, lambda: _on_stdin(loop, stop))
    backoff = ConnectionBackoff(_LOGGER, max_seconds=max_backoff_seconds)
    if needs_schema:
        await _retry_until_available(
            lambda: ensure_schema(config, migrate=config.is_embedded),
            backoff,
            stopped,
            retries=start_retries,
        )
        await _retry_until_available(check_key, backoff, stopped, retries=start_retries)
    else:
        # A server also starts without its database, or before it is migrated: then each submit checks the
        # key.
        with contextlib.suppress(DatabaseUnavailable, StatementFailed):
            await check_key()
    if stopped.is_set():
        return COMPLETED, False
    await compare_versions()
    service = make()
    running = asyncio.create_task(run(service))
    ready = asyncio.create_task(service.ready.wait())
    await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        announce("is ready")
        if with_parent:
            # Whatever the level of the log: the parent waits for this line.
            echo(READY_LINE)
    ready.cancel()
    await running
    announce("has stopped")
    # Only a worker may have to be replaced.
    recycling = getattr(service, "recycling", None)
    return (COMPLETED, False) if recycling is None else (recycling.exit_code, recycling.has_abandoned)


async def _no_check() -> None:
    """Check nothing."""


async def warn_about_versions(config: DatabaseConfig, settings: Settings, *, is_asked: bool = True) -> None:
    """Log which live services run another version: a rolling upgrade, or a service that was forgotten.

    That a schema cannot be used is an error before; between versions that can use it nothing else is refused.
    """
    from dagmaster.bootstrap.database_admin import live_services

    if not is_asked:
        return
    own = version("dagmaster")
    with contextlib.suppress(DatabaseUnavailable):
        # What speaks HTTP has another kind of version.
        live = [service for service in await live_services(config, settings) if service.version[:1].isdigit()]
        others = [str(service) for service in live if service.version != own]
        if others:
            _LOGGER.warning("this is dagmaster %s; other versions are alive: %s", own, format_list(others))


def _on_stdin(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    if not sys.stdin.read(1):
        loop.remove_reader(sys.stdin)
        stop()


async def _retry_until_available(
    work: Callable[[], Awaitable[None]],
    backoff: ConnectionBackoff,
    stopped: asyncio.Event,
    *,
    retries: int | None,
) -> None:
    """Run something that needs the database; while it is unavailable, try again, at most so often."""
    while not stopped.is_set():
        try:
            await work()
        except (DatabaseUnavailable, EmbeddedPostgresUnavailable) as error:
            if retries is not None and backoff.failures >= retries:
                raise
            await wait_at_most(stopped, backoff.on_failure(error))
        else:
            backoff.on_success()
            return


def _pass_to_tasks(settings: Settings, data_dir: pathlib.Path | None) -> None:
    """Make the database of this worker that of `get_job` and others in tasks, also in child processes."""
    if data_dir is not None:
        # Settings are read in any case of letters.
        for name in [name for name in os.environ if name.upper() in _LOCATIONS]:
            del os.environ[name]
        os.environ["DAGMASTER_DATA_DIR"] = str(data_dir.absolute())
    elif settings.database_url is not None:
        # It may come from an alias, which only services read. The alias itself stays: a task may use it.
        os.environ["DAGMASTER_DATABASE_URL"] = settings.database_url.get_secret_value()
