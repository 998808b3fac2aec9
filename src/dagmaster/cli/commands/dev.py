"""`dagmaster dev`: run the whole system on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import click

from dagmaster.application.commands.publication import publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_files
from dagmaster.cli.http_address import PORT, find_port
from dagmaster.cli.log_options import LogOptions, log_options
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option, handlers_option, load_registry, print_problems
from dagmaster.cli.service_supervisor import Service, ServiceSupervisor, print_status
from dagmaster.cli.system import database_session
from dagmaster.errors import DagmasterError
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.settings import load_settings

if TYPE_CHECKING:
    from dagmaster.application.commands.publication import WorkflowSource
    from dagmaster.authoring.handler_registry import Registry
    from dagmaster.cli.system import DatabaseSession
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.telemetry.logs import LogFormat, LogLevel

STOP_SECONDS: Final = 10.0
"""How much longer than the shutdown timeout of a worker the services may take to stop."""


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="The number of workers.")
@click.option(
    "--orchestrators", type=click.IntRange(0, 16), default=1, show_default=True, help="The number of orchestrators."
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="How many tasks a worker runs concurrently.")
@click.option(
    "--workflows",
    "folder",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    help="A folder of workflow files to publish.  [default: ./workflows, if it exists]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="The port of the HTTP API; 0: any free port.",
)
@handlers_option
@data_dir_option
@log_options
def dev(
    *,
    workers: int,
    orchestrators: int,
    concurrency: int | None,
    folder: pathlib.Path | None,
    port: int,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
) -> int:
    """Run the whole system on this machine: a database, an orchestrator, a worker for all queues, the web page.

    The embedded PostgreSQL needs no installation; set DAGMASTER_DATABASE_URL to use another server. The workflow files
    of a folder are published, so that jobs can be submitted by workflow id. A process that dies is restarted. The API
    and the web page listen on 127.0.0.1; if the port is taken, on another one. Their key is beside the data directory.

    \b
    In another terminal:
      dagmaster submit fan_out -i count=10000 --wait
      dagmaster jobs watch
      dagmaster fleet
    """
    started = time.monotonic()
    registry = load_registry(modules)
    if folder is not None and not folder.is_dir():
        raise click.ClickException(f"there is no folder {folder}")
    folder = folder or pathlib.Path("workflows")
    worker = ["worker", "--queue=*", *(f"--handlers={module}" for module in modules)]
    if concurrency is not None:
        worker.append(f"--concurrency={concurrency}")
    free_port = find_port(port)
    commands = [["orchestrator"]] * orchestrators + [worker] * workers + [["server", f"--port={free_port}"]]
    common = [*([] if data_dir is None else [f"--data-dir={data_dir}"]), *LogOptions(log_format, log_level).arguments()]
    with database_session(data_dir) as session:
        settings = load_settings()
        click.echo(f"dagmaster {version('dagmaster')}")
        print_status("database", _describe_database(session.config))
        if port not in {0, free_port}:
            print_status("API", f"port {port} is taken by another program: the API gets {free_port}")
        supervisor = ServiceSupervisor(
            [Service(command[0], [*command, *common]) for command in commands],
            partial(_expire_process, session),
            log_format=log_format or settings.log_format,
            stop_seconds=settings.drain_seconds + STOP_SECONDS,
        )
        sources = compile_folder(folder, registry)
        return asyncio.run(_run(supervisor, session, folder, sources, started=started, port=free_port))


async def _run(
    supervisor: ServiceSupervisor,
    session: DatabaseSession,
    folder: pathlib.Path,
    sources: list[WorkflowSource],
    *,
    started: float,
    port: int,
) -> int:
    from dagmaster.bootstrap import open_application
    from dagmaster.bootstrap.http_server import ensure_local_key

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    async with open_application(session.config, session.settings, session.data_dir, migrate=True) as app:
        supervisor.start()
        key_file = await ensure_local_key(session.config, session.settings, session.data_dir)
        caller = app.on_behalf_of(ChangeOrigin(actor="dagmaster dev"))
        published = [result.workflow_id for result in await publish_workflows(caller, sources, replace=True)]
    await supervisor.wait_ready()
    if published:
        print_status("workflows", f"{', '.join(published)} (from {folder})")
    else:
        print_status("workflows", f"none in {folder}: publish some with `dagmaster workflows push FILE`")
    print_status("API", f"http://127.0.0.1:{port}/api/v1 (key in {key_file})")
    # After the #: a browser does not send it, and no server or proxy logs it.
    print_status("web page", f"http://127.0.0.1:{port}/ui/#key={key_file.read_text(encoding='utf-8').strip()}")
    if not supervisor.is_stopping:
        example = "fan_out -i count=10000" if "fan_out" in published else (published or ["WORKFLOW"])[0]
        click.echo(f"\nready in {time.monotonic() - started:.1f} s. In another terminal:")
        click.echo(f"  dagmaster submit {example} --wait")
        click.echo("  dagmaster jobs watch")
        click.echo("Ctrl-C stops everything; jobs continue when dagmaster runs again.")
    await supervisor.wait_stopped()
    return COMPLETED


def compile_folder(folder: pathlib.Path, registry: Registry) -> list[WorkflowSource]:
    """Compile the workflow files of a folder; print the problems of invalid ones, and leave them out."""
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    results = validate_files(files, registry, allow_missing_handlers=True)
    sources: dict[tuple[str, int], WorkflowSource] = {}
    for result in results:
        if not result.is_valid:
            print_problems(result.problems)
            click.echo(f"{result.file} is not published", err=True)
            continue
        (source,) = to_sources([result])
        first = sources.setdefault((source.graph.workflow_id, source.graph.version), source)
        if first is not source:
            click.echo(f"{source.file} is not published: {first.file} is the same version of it", err=True)
    return list(sources.values())


async def _expire_process(session: DatabaseSession, pid: int) -> None:
    from dagmaster.bootstrap.database_admin import expire_process

    # If this fails, the lease expires by itself.
    with contextlib.suppress(DagmasterError):
        await expire_process(session.config, session.settings, pid)


def _describe_database(config: DatabaseConfig) -> str:
    from urllib.parse import parse_qs, urlsplit

    url = urlsplit(config.dsn)
    if not config.is_embedded:
        return f"PostgreSQL of DAGMASTER_DATABASE_URL ({url.hostname or 'local'}{url.path})"
    socket_dir = parse_qs(url.query).get("host", [""])[0]
    return f"embedded PostgreSQL in {pathlib.Path(socket_dir).parent}"
