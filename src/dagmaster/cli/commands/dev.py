"""`dagmaster dev`: run the whole system on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import click

from dagmaster.application.commands.publication import publish_workflows
from dagmaster.cli.commands.keys import login_address
from dagmaster.cli.dev_publication import compile_files
from dagmaster.cli.dev_reload import WorkflowReloader, use_fresh_code, worker_arguments
from dagmaster.cli.http_address import GATEWAY_PORT, PORT, find_port, name_program
from dagmaster.cli.log_options import LogOptions, log_options
from dagmaster.cli.options import handlers_option, load_registry
from dagmaster.cli.service_supervisor import Service, ServiceSupervisor, print_status
from dagmaster.cli.system import database_session
from dagmaster.errors import DagmasterError
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.sdk.command_line import data_dir_option
from dagmaster.sdk.terminal import echo
from dagmaster.settings import load_settings
from dagmaster.settings.groups import NO_LOG_FILES
from dagmaster.settings.log_directory import VARIABLE as LOG_DIR_VARIABLE
from dagmaster.settings.log_directory import script_logs_dir
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.commands.publication import WorkflowSource
    from dagmaster.cli.system import DatabaseSession
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.telemetry.logs import LogFormat, LogLevel

STOP_SECONDS: Final = 10.0
"""How much longer than the shutdown timeout of a worker the services may take to stop."""
MAX_NAMES: Final = 10
"""Invalid files of a folder that are named; the problems above name all of them."""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=pathlib.Path, exists=True))
@click.option(
    "--reload",
    "is_reloading",
    is_flag=True,
    help="Publish a workflow file again when it changes, and restart the workers when Python code does.",
)
@click.option(
    "--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="The number of workers."
)
@click.option(
    "--orchestrators",
    type=click.IntRange(0, 16),
    default=1,
    show_default=True,
    help="The number of orchestrators.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), help="How many tasks a worker runs concurrently."
)
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
@click.option(
    "--gateway",
    "has_gateway",
    is_flag=True,
    help="Also run a gateway, which partners call, on port 8430 or another one.",
)
@handlers_option
@data_dir_option
@log_options
def dev(
    files: tuple[pathlib.Path, ...],
    *,
    is_reloading: bool,
    workers: int,
    orchestrators: int,
    concurrency: int | None,
    folder: pathlib.Path | None,
    port: int,
    has_gateway: bool,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
) -> int:
    """Run the whole system on this machine: database, orchestrator, a worker for all queues, web page.

    The embedded PostgreSQL needs no installation; set DAGMASTER_DATABASE_URL to use another server. The
    workflow files of a folder are published, so that jobs can be submitted by workflow id. A process that
    dies is restarted. The API and the web page listen on 127.0.0.1; without --port, on another port if
    8420 is taken.
    Their key is next to the data directory.

    FILES are more workflow files, in YAML or Python, and folders of them; workers get the tasks of Python
    files. With --reload all of them, the folder and the files of --handlers are watched. A changed file
    replaces the content of its workflow version; jobs keep the content that they were submitted with. What is
    not valid is not published, and is printed with its lines. Workers that are replaced finish the tasks that
    they run.

    \b
    Examples:
      dagmaster dev
      dagmaster dev --reload flows/ nightly.py
      dagmaster dev --gateway

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
    if is_reloading:
        use_fresh_code()
    free_port = find_port(port)
    if port not in {0, free_port} and _is_given("port"):
        raise click.ClickException(
            f"port {port} is taken by {name_program(port)}: stop it, or choose another one. Any free port:"
            " dagmaster dev --port 0"
        )
    common = [
        *([] if data_dir is None else [f"--data-dir={data_dir}"]),
        *LogOptions(log_format, log_level).arguments(),
    ]
    with database_session(data_dir) as session:
        settings = load_settings()
        echo(f"dagmaster {version('dagmaster')}")
        print_status("database", _describe_database(session.config))
        if port not in {0, free_port}:
            print_status("API", f"port {port} is taken by {name_program(port)}: the API gets {free_port}")
        gateway_port = find_port(GATEWAY_PORT if port else 0) if has_gateway else None
        supervisor = ServiceSupervisor(
            partial(_expire_process, session),
            log_format=log_format or settings.log_format,
            stop_seconds=settings.drain_seconds + STOP_SECONDS,
            environment={
                LOG_DIR_VARIABLE: str(script_logs_dir() or NO_LOG_FILES),
                **gateway_environment(settings.gateway_url, gateway_port),
            },
        )
        plan = _Plan(
            folder=folder,
            sources=compile_folder(folder, registry),
            reloader=WorkflowReloader(
                files,
                modules=modules,
                folder=folder,
                watched_modules=(*settings.handlers, *modules),
                data_dir=data_dir,
            ),
            is_reloading=is_reloading,
            orchestrators=[["orchestrator", *common]] * orchestrators,
            workers=workers,
            worker=[
                "worker",
                "--queue=*",
                *([f"--concurrency={concurrency}"] if concurrency else []),
                *common,
            ],
            server=["server", f"--port={free_port}", *common],
            port=free_port,
            gateway_port=gateway_port,
            common=common,
            started=started,
        )
        return asyncio.run(_run(supervisor, session, plan))


def gateway_environment(gateway_url: str | None, port: int | None) -> dict[str, str]:
    """Return what makes callbacks lead to the gateway of `dev`, unless a setting names another."""
    if port is None or gateway_url is not None:
        return {}
    return {"DAGMASTER_GATEWAY_URL": f"http://127.0.0.1:{port}"}


def _is_given(option: str) -> bool:
    """Return whether an option is on the command line."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def describe_missing_workflows(folder: pathlib.Path) -> str:
    """Return why nothing was published of a folder, and what to type: the files that it has are invalid."""
    if not folder.is_dir():
        return (
            f"none: there is no folder {folder} here. To publish a file: dagmaster workflows push FILE.yaml"
        )
    invalid = [file.name for file in _workflow_files(folder)]
    if invalid:
        files = "1 file is" if len(invalid) == 1 else f"all {format_count(len(invalid), 'file')} are"
        more = f" and {len(invalid) - MAX_NAMES} more" if len(invalid) > MAX_NAMES else ""
        return (
            f"none: {files} invalid in {folder}: {', '.join(invalid[:MAX_NAMES])}{more}. Correct the problems"
            f" above, then: dagmaster workflows push {folder / invalid[0]}"
        )
    python = [str(file) for file in sorted(folder.glob("*.py"))[:3]]
    hint = "To publish a file: dagmaster workflows push FILE.yaml"
    if python:
        hint = f"Python files are arguments: dagmaster dev {' '.join(python)}"
    return f"none: there is no workflow file (*.yaml, *.yml) in {folder}. {hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What `dev` publishes and starts. `worker`: the command of a worker, without its handlers."""

    folder: pathlib.Path
    sources: list[WorkflowSource]
    reloader: WorkflowReloader
    is_reloading: bool
    orchestrators: list[list[str]]
    workers: int
    worker: list[str]
    server: list[str]
    port: int
    gateway_port: int | None
    common: list[str]
    started: float

    def services(self) -> list[Service]:
        worker = worker_arguments(self.worker, self.reloader.modules)
        commands = [*self.orchestrators, *[worker] * self.workers, self.server]
        if self.gateway_port is not None:
            address = f"--orchestrator-url=http://127.0.0.1:{self.port}"
            commands.append(["gateway", f"--port={self.gateway_port}", address, *self.common])
        return [Service(command[0], command) for command in commands]


async def _run(supervisor: ServiceSupervisor, session: DatabaseSession, plan: _Plan) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    key_file, published = await _start(supervisor, session, plan)
    await supervisor.wait_ready()
    reloading = None
    if not supervisor.is_stopping:
        await _print_ready(session, plan, key_file, published)
        if plan.is_reloading:
            reloading = asyncio.create_task(plan.reloader.run(supervisor, plan.worker))
    await supervisor.wait_stopped()
    if reloading is not None:
        reloading.cancel()
        await asyncio.gather(reloading, return_exceptions=True)
    return supervisor.exit_code


async def _print_ready(
    session: DatabaseSession, plan: _Plan, key_file: pathlib.Path, published: Sequence[str]
) -> None:
    """Print what was published, the addresses, and what to type."""
    from dagmaster.bootstrap.http_server import make_login_link

    if published:
        print_status("workflows", f"{', '.join(published)} (from {plan.folder})")
    elif not plan.reloader.workflow_ids:
        print_status("workflows", describe_missing_workflows(plan.folder))
    address = f"http://127.0.0.1:{plan.port}"
    print_status("API", f"{address}/api/v1 (key in {key_file})")
    # Not before the server is ready: the link is valid for some minutes, and once.
    print_status("web page", login_address(address, await make_login_link(session.config, key_file)))
    print_status("", "logs in once, within 15 minutes; another one: dagmaster keys login-link")
    if plan.gateway_port is not None:
        print_status("gateway", f"http://127.0.0.1:{plan.gateway_port} (description at /openapi.json)")
    first = next(iter((*published, *plan.reloader.workflow_ids)), None)
    example = "fan_out -i count=10000" if "fan_out" in published else first
    echo(f"\nready in {time.monotonic() - plan.started:.1f} s. In another terminal:")
    if example is None:
        echo("  dagmaster workflows push FILE.yaml     # or restart with: dagmaster dev FILE.yaml")
    echo(f"  dagmaster submit {example or 'WORKFLOW'} --wait")
    echo("  dagmaster jobs watch")
    echo("Ctrl-C stops everything; jobs continue when dagmaster runs again.")


async def _start(
    supervisor: ServiceSupervisor, session: DatabaseSession, plan: _Plan
) -> tuple[pathlib.Path, list[str]]:
    """Start the services and publish; return the file of the key, and the workflows of the folder."""
    from dagmaster.bootstrap import open_application
    from dagmaster.bootstrap.http_server import ensure_local_key

    async with open_application(session.config, session.settings, session.data_dir, migrate=True) as app:
        # Before workers start: they get the modules of its tasks.
        await plan.reloader.publish_all()
        supervisor.start(plan.services())
        key_file = await ensure_local_key(session.config, session.settings, session.data_dir)
        caller = app.on_behalf_of(ChangeOrigin(actor="dagmaster dev"))
        results = await publish_workflows(caller, plan.sources, replace=True)
    return key_file, [result.workflow_id for result in results]


def compile_folder(folder: pathlib.Path, registry: Registry) -> list[WorkflowSource]:
    """Compile the workflow files of a folder; print the problems of invalid ones, and leave them out."""
    return compile_files(_workflow_files(folder), registry)


def _workflow_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


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
