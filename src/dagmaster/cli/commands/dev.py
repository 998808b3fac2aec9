"""`dagmaster dev`: everything on this machine, looked after until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import sys
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.errors import CommandError
from dagmaster.cli.main import COMPLETED, INTERRUPTED
from dagmaster.cli.options import data_dir_option, handlers_option, load_registry, print_problems
from dagmaster.errors import DagmasterError, WorkflowInvalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dagmaster.authoring.handler_registry import Registry
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.settings import Settings

STOP_SECONDS: Final = 10.0
"""How much longer than their grace the children may take to stop."""

RESTART_SECONDS: Final = 1.0
LONGEST_LINE: Final = 4 * 1024 * 1024


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="How many workers to run.")
@click.option(
    "--orchestrators", type=click.IntRange(0, 16), default=1, show_default=True, help="How many orchestrators."
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="How many tasks a worker runs at a time.")
@click.option(
    "--workflows",
    "folder",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    help="A folder of workflow files to publish.  [default: ./workflows, if there is one]",
)
@handlers_option
@data_dir_option
def dev(
    *,
    workers: int,
    orchestrators: int,
    concurrency: int | None,
    folder: pathlib.Path | None,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
) -> int:
    """Run everything on this machine: a database, an orchestrator, and a worker for every queue.

    The embedded PostgreSQL needs no installation; DAGMASTER_DATABASE_URL names another one. The workflow files of a
    folder are published, so that they can be submitted by name. A process that dies is started again.

    \b
    In another terminal:
      dagmaster submit fan_out -i count=10000 --wait
      dagmaster jobs watch
      dagmaster fleet
    """
    from dagmaster.bootstrap import open_database
    from dagmaster.settings import load_settings

    began = time.monotonic()
    registry = load_registry(modules)
    if folder is not None and not folder.is_dir():
        raise click.ClickException(f"there is no folder {folder}")
    folder = folder or pathlib.Path("workflows")
    options = [f"--handlers={each}" for each in modules]
    if concurrency is not None:
        options.append(f"--concurrency={concurrency}")
    commands = [("orchestrator", ["orchestrator"])] * orchestrators + [
        ("worker", ["worker", "--queue=*", *options])
    ] * workers
    place = [] if data_dir is None else [f"--data-dir={data_dir}"]
    try:
        settings = load_settings()
        with open_database(settings, data_dir) as address:
            click.echo(f"dagmaster {version('dagmaster')}")
            where = "embedded PostgreSQL" if address.is_embedded else "PostgreSQL of DAGMASTER_DATABASE_URL"
            _say("database", f"{where}{_directory(address)}")
            family = ServiceSupervisor(
                [(name, [*command, *place]) for name, command in commands],
                partial(_bury, address, settings),
                stop_seconds=settings.drain_seconds + STOP_SECONDS,
            )
            return asyncio.run(_live(family, address, folder, compiled_in(folder, registry), began))
    except DagmasterError as error:
        raise CommandError(error) from error


async def _live(
    family: ServiceSupervisor, address: DatabaseConfig, folder: pathlib.Path, graphs: list[Graph], began: float
) -> int:
    from dagmaster.bootstrap import ensure_schema

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, family.stop)
    await ensure_schema(address, migrate=True)
    family.start()
    published = await publish(address, graphs)
    await family.ready()
    if published:
        _say("workflows", f"{', '.join(published)} (from {folder})")
    else:
        _say("workflows", f"none found in {folder}: publish some with `dagmaster workflows push FILE`")
    if not family.is_stopping:
        example = "fan_out -i count=10000" if "fan_out" in published else (published or ["WORKFLOW"])[0]
        click.echo(f"\nready in {time.monotonic() - began:.1f} s. In another terminal:")
        click.echo(f"  dagmaster submit {example} --wait")
        click.echo("  dagmaster jobs watch")
        click.echo("Ctrl-C stops it all; jobs go on when it starts again.")
    await family.over()
    return COMPLETED


def compiled_in(folder: pathlib.Path, registry: Registry) -> list[Graph]:
    """Return the workflow files of a folder; a file that cannot run is told, and left out."""
    from dagmaster.authoring.compiler.compile import compile_file

    graphs = []
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            graphs.append(compile_file(file, handlers=registry, allow_missing_handlers=True).graph)
        except WorkflowInvalid as error:
            print_problems(error.problems)
            click.echo(f"{file} is not published", err=True)
    return graphs


async def publish(address: DatabaseConfig, graphs: list[Graph]) -> list[str]:
    """Publish graphs; one that is there in another form is replaced. Jobs keep theirs."""
    from dagmaster.ports.job_records import StoredWorkflow
    from dagmaster.store.postgres.client_store import PostgresClientStore

    store = PostgresClientStore(address)
    try:
        for graph in graphs:
            await store.put_graph(graph.content_hash, json.dumps(graph.definition))
            await store.publish(StoredWorkflow(graph.workflow_id, graph.version, graph.content_hash))
    finally:
        await store.session.close()
    return [graph.workflow_id for graph in graphs]


class ServiceSupervisor:
    """Child processes: started, watched, started again when they die, and stopped together."""

    def __init__(
        self, commands: Sequence[tuple[str, list[str]]], bury: Callable[[int], Awaitable[None]], *, stop_seconds: float
    ) -> None:
        self._bury = bury
        self._stop_seconds = stop_seconds
        self._commands = commands
        self._children: dict[asyncio.subprocess.Process, str] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._ready = [asyncio.Event() for _ in commands]
        self._stopping = asyncio.Event()
        self.is_stopping = False

    def start(self) -> None:
        """Start them all."""
        self._keepers = [
            asyncio.create_task(self._keep(name, command, ready))
            for (name, command), ready in zip(self._commands, self._ready, strict=True)
        ]

    async def ready(self) -> None:
        """Until all have said that they are ready, or it is over."""
        over = asyncio.create_task(self._stopping.wait())
        for each in self._ready:
            said = asyncio.create_task(each.wait())
            await asyncio.wait([said, over], return_when=asyncio.FIRST_COMPLETED)
            said.cancel()
        over.cancel()

    def stop(self) -> None:
        """Stop them; told again, kill them."""
        if self.is_stopping:
            click.echo("leaving at once; jobs go on when it starts again", err=True)
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
            os._exit(INTERRUPTED)
        self.is_stopping = True
        self._stopping.set()
        click.echo("\nstopping (Ctrl-C again to leave at once)")
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()

    async def over(self) -> None:
        """Until all have ended."""
        await self._stopping.wait()
        if self._keepers:
            _, late = await asyncio.wait(self._keepers, timeout=self._stop_seconds)
            for child in self._children if late else ():
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
            await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _keep(self, name: str, command: list[str], ready: asyncio.Event) -> None:
        while not self.is_stopping:
            # Its own session: a Ctrl-C at the terminal is ours to pass on. It ends when our end of its input does.
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "dagmaster",
                *command,
                "--with-parent",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=LONGEST_LINE,
                start_new_session=True,
            )
            self._children[child] = name
            first = not ready.is_set()
            await self._listen(child, name, ready)
            code = await child.wait()
            del self._children[child]
            if self._stopping.is_set():
                return
            if first and not ready.is_set() and code == 2:  # noqa: PLR2004 - it said why; starting it again is no use
                self.stop()
                return
            _say(name, f"pid {child.pid} ended with code {code}: starting it again")
            await self._bury(child.pid)
            await asyncio.sleep(RESTART_SECONDS)

    async def _listen(self, child: asyncio.subprocess.Process, name: str, ready: asyncio.Event) -> None:
        assert child.stdout is not None  # noqa: S101 - for mypy; it is a pipe
        async for line in child.stdout:
            said = line.decode(errors="replace").rstrip()
            if " is ready (pid " in said:
                _say(name, f"pid {child.pid}")
                ready.set()
            elif not said.endswith((" stops", " is stopped")):
                _say(name, said)


async def _bury(address: DatabaseConfig, settings: Settings, pid: int) -> None:
    from dagmaster.store.postgres.client_store import PostgresClientStore

    store = PostgresClientStore(address)
    # If this fails, the lease ends by itself.
    with contextlib.suppress(DagmasterError):
        await store.expire_process(
            pid,
            lease_seconds=settings.orchestrator_lease_seconds,
            worker_lease_seconds=settings.worker_lease_seconds,
        )
    await store.session.close()


def _directory(address: DatabaseConfig) -> str:
    from urllib.parse import parse_qs, urlsplit

    if not address.is_embedded:
        parts = urlsplit(address.dsn)
        return f" ({parts.hostname or 'local'}{parts.path})"
    host = parse_qs(urlsplit(address.dsn).query).get("host", [""])[0]
    return f" in {pathlib.Path(host).parent}"


def _say(who: str, what: str) -> None:
    click.echo(f"  {who:<13} {what}")
