"""`dagmaster handlers`: list, show and test handlers of this machine; with `--url` of a server's workers."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sys
from typing import TYPE_CHECKING, Final

import click

from dagmaster.application.views import NodeStatus
from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.errors import CommandError, command_errors
from dagmaster.cli.known_handlers import list_all_handlers
from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED
from dagmaster.cli.options import handlers_option, json_or_text, load_registry, read_json_file, read_pairs
from dagmaster.cli.render.handler_page import print_handler, print_handlers, print_replacement
from dagmaster.cli.system import RemoteSession, find_server, on_system, open_session
from dagmaster.errors import HandlerNotFound
from dagmaster.ports.task_messages import Outcome, Succeeded, TaskMessage
from dagmaster.sdk.command_line import data_dir_option, json_option, json_output_option
from dagmaster.sdk.handler_definitions import describe_handler
from dagmaster.sdk.terminal import confirm, echo, echo_json, style

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.application.views import HandlerTrustView, NodeDetailView
    from dagmaster.client.system import System
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.handler_reports import Checkpoint, Progress
    from dagmaster.sdk.handler_registry import HandlerSpec, Registry

TIMEOUT_SECONDS: Final = 3600.0
"""The timeout of a test on this machine. On a worker it is the handler's."""


_published_option = click.option(
    "--published",
    "is_published",
    is_flag=True,
    help="Those that workers have published in the database, with their owners.",
)


@click.group()
def handlers() -> None:
    """List, show and test handlers.

    They are the handlers of this machine: built-in ones, and the handlers of DAGMASTER_HANDLERS and
    --handlers. With --url or DAGMASTER_URL they are those that the workers of the server have published, and
    a test runs on a worker.
    """


@handlers.command(name="list")
@_published_option
@json_option
@handlers_option
@data_dir_option
def list_handlers(
    *, is_published: bool, as_json: bool, modules: tuple[str, ...], data_dir: pathlib.Path | None
) -> int:
    """List the handlers that workflows can use. Changes that wait for an administrator are marked."""
    server = find_session(modules)
    if is_published:
        documents = [view.to_dict() for view in on_system(data_dir, list_all_handlers)]
    elif server is None:
        specs = sorted(load_registry(modules), key=lambda spec: spec.name)
        documents = [describe_handler(spec) for spec in specs]
    else:
        documents = [view.to_dict() for view in server.run(list_all_handlers)]
    if as_json:
        echo_json(documents)
    else:
        print_handlers(documents)
    return COMPLETED


@handlers.command()
@click.argument("name")
@_published_option
@json_option
@handlers_option
@data_dir_option
def show(
    name: str,
    *,
    is_published: bool,
    as_json: bool,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
) -> int:
    """Show the params and the output of a handler, whose contract it is, and the changes that wait."""
    from dagmaster.application.queries.handlers import find_handler

    server = find_session(modules)
    if is_published:
        document = on_system(data_dir, lambda system: system.call(find_handler, name)).to_dict()
    elif server is None:
        document = describe_handler(_find(load_registry(modules), name))
    else:
        document = server.run(lambda system: system.call(find_handler, name)).to_dict()
    if as_json:
        echo_json(document, indent=2)
    else:
        print_handler(document)
    return COMPLETED


@handlers.command(epilog="Exit codes: 0 it succeeded, 1 it failed, 2 bad usage or bad input.")
@click.argument("name")
@click.option(
    "-p", "--param", "pairs", multiple=True, metavar="KEY=VALUE", help="One param, as text or JSON."
)
@click.option(
    "-P",
    "--params",
    "params_file",
    type=click.Path(path_type=pathlib.Path, allow_dash=True),
    metavar="FILE",
    help="Params from a JSON file (- for standard input). -p overrides it.",
)
@click.option(
    "--attempt",
    type=click.IntRange(1),
    help="The number of the attempt that the handler sees. Not with a server.  [default: 1]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="The timeout in seconds.  [default: 3600; on a worker the handler's]",
)
@json_output_option("Print one JSON document: status, output, error.")
@handlers_option
def test(
    name: str,
    *,
    pairs: tuple[str, ...],
    params_file: pathlib.Path | None,
    attempt: int | None,
    timeout: float | None,
    as_json: bool,
    modules: tuple[str, ...],
) -> int:
    """Run one handler with these params, without a job.

    It runs as on a worker: a plain function in a child process. What it prints, logs and reports goes to
    standard error; its output to standard output.

    With --url it runs on a worker of the server, as a job that lists leave out.

    \b
    Examples:
      dagmaster handlers test hello_world -p name=Ada
      dagmaster handlers test chunk_processor -p 'chunk=[1, 2, 3]'
    """
    server = find_session(modules)
    if server is not None:
        if attempt is not None:
            raise click.UsageError(
                "--attempt is for a test on this machine: on a worker it is the first attempt"
            )
        return _test_on_worker(server, name, pairs, params_file, timeout, as_json=as_json)
    from dagmaster.bootstrap.task_execution import execute_task

    registry = load_registry(modules)
    spec = _find(registry, name)
    attempt = attempt or 1
    message = TaskMessage(
        task_id="test",
        job_id="test",
        node_id="test",
        handler=spec.name,
        params=read_json_file(params_file)
        | read_pairs(pairs, _param_parser(spec.params_schema()), "a param"),
        timeout_seconds=timeout or TIMEOUT_SECONDS,
        attempt=attempt,
        fencing_token=attempt,
    )
    outcome = asyncio.run(execute_task(message, registry, _StderrReports(), modules=modules))
    if isinstance(outcome, Succeeded):
        return _print_output(outcome.output, as_json=as_json)
    return _print_failure(_error_of(outcome), as_json=as_json)


@handlers.command()
@click.argument("name")
@click.option("--caller", metavar="CALLER", help="Whose, as key:NAME.  [default: the only one that waits]")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@data_dir_option
def trust(name: str, *, caller: str | None, yes: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Accept what a key has published of a handler.

    The contract of a handler belongs to the installation, or to the key that published it first. What another
    key publishes waits, and its workers get no tasks of the handler: `dagmaster handlers list --published`
    shows it. This makes it the contract, and lets workers of that key have the handler. Of a key's own
    contract it accepts the default queue. What it replaces is printed, and comes back with `dagmaster
    handlers distrust`.

    \b
    Examples:
      dagmaster handlers trust thumbnail
      dagmaster handlers trust hello_world --caller key:gpu-workers --yes
    """
    from dagmaster.application.commands.handler_trust import choose_caller, trust_handler
    from dagmaster.application.queries.handlers import find_handler

    with open_session(data_dir) as session:
        # A name that nobody has published: the decision says what to do.
        with contextlib.suppress(HandlerNotFound):
            record = session.run(lambda system: system.call(find_handler, name))
            caller = choose_caller(record, caller)
            print_replacement(record.to_dict(), caller)
            if not yes and not _confirm(f"Trust {caller} with {record.name}?"):
                echo("nothing was changed", err=True)
                return FAILED
        return _print_decision(
            session.run(lambda system: system.call(trust_handler, name, caller=caller)), as_json=as_json
        )


def _confirm(question: str) -> bool:
    try:
        return confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.ClickException("the question was not answered: use --yes to skip it") from None


@handlers.command()
@click.argument("name")
@click.option("--caller", metavar="CALLER", help="Whose, as key:NAME.  [default: the only one that waits]")
@json_option
@data_dir_option
def distrust(name: str, *, caller: str | None, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Remove what a key has of a handler: trust, changes that wait, and the contract if it is the owner.

    The contract that it replaced when it was trusted comes back.

    \b
    Examples:
      dagmaster handlers distrust hello_world --caller key:unknown
    """
    from dagmaster.application.commands.handler_trust import distrust_handler

    view = on_system(data_dir, lambda system: system.call(distrust_handler, name, caller=caller))
    return _print_decision(view, as_json=as_json)


def _print_decision(view: HandlerTrustView, *, as_json: bool) -> int:
    if as_json:
        echo_json(view.to_dict())
    else:
        may = "may" if view.is_trusted else "may no longer"
        back = "" if view.is_trusted or view.owner is None else f"; its contract is that of {view.owner}"
        echo(f"workers of {view.caller} {may} have the handler {view.handler}{back}", err=True)
    return COMPLETED


def find_session(modules: tuple[str, ...]) -> RemoteSession | None:
    """Return the server whose handlers are asked for; None: this machine's handlers."""
    with command_errors():
        server = find_server(None, modules=modules)
    return None if server is None else RemoteSession(server)


# ── Handlers of a server's workers ──


def _test_on_worker(
    server: RemoteSession,
    name: str,
    pairs: tuple[str, ...],
    params_file: pathlib.Path | None,
    timeout: float | None,
    *,
    as_json: bool,
) -> int:
    from dagmaster.application.commands.handler_tests import NODE_ID, run_handler
    from dagmaster.application.queries.events_and_logs import follow_logs
    from dagmaster.application.queries.handlers import find_handler
    from dagmaster.application.queries.nodes import node_detail

    async def work(system: System) -> NodeDetailView:
        schema = (await system.call(find_handler, name)).params
        params = read_json_file(params_file) | read_pairs(pairs, _param_parser(schema), "a param")
        started = await system.call(
            run_handler, name, params, submitted_by=sender(), timeout_seconds=timeout, wait_seconds=0.0
        )
        echo(f"the handler runs on a worker, as job {started.job_id}", err=True)
        async with contextlib.aclosing(system.call(follow_logs, started.job_id)) as logs:
            async for log in logs:
                echo(log.text, err=True, nl=False)
        return await system.call(node_detail, started.job_id, NODE_ID)

    node = server.run(work)
    if node.status is NodeStatus.COMPLETED:
        return _print_output(node.output, as_json=as_json)
    reason: JsonObject = {
        "kind": "cancelled",
        "message": f"the job of the test ended; its node is {node.status}",
    }
    return _print_failure(node.error or reason, as_json=as_json)


# ── Params and outcomes ──


def _param_parser(schema: JsonObject | None) -> Callable[[str, str], JsonValue]:
    """Return a function that parses a param: as text if its type is text (such as 2020), else as JSON."""
    from dagmaster.authoring.schema_description import takes_text

    schema = schema or {}
    return lambda name, text: (
        text if text != "null" and takes_text(schema, name) else json_or_text(name, text)
    )


class _StderrReports:
    """Prints progress, checkpoints and logs of the handler to standard error."""

    def progress(self, _task: TaskMessage, progress: Progress) -> None:
        total = "" if progress.total is None else f" of {progress.total:,.10g}"
        echo(f"progress: {progress.current:,.10g}{total} {progress.message}".rstrip(), err=True)

    def checkpoint(self, _task: TaskMessage, checkpoint: Checkpoint) -> None:
        echo(f"checkpoint: {checkpoint.phase}", err=True)

    def log(self, _task: TaskMessage, text: str) -> None:
        echo(text, err=True, nl=False)

    dump = log


def _error_of(outcome: Outcome) -> JsonObject:
    return getattr(outcome, "error", None) or {"kind": "released", "message": "the handler released the task"}


def _print_output(output: JsonValue, *, as_json: bool) -> int:
    document: JsonObject = {"status": "COMPLETED", "output": output, "error": None}
    echo_json(document if as_json else output, indent=None if as_json else 2)
    return COMPLETED


def _print_failure(error: JsonObject, *, as_json: bool) -> int:
    if as_json:
        echo_json({"status": "FAILED", "output": None, "error": error})
    else:
        echo(style(f"FAILED ({error['kind']}): {error['message']}", fg="red", bold=True), err=True)
        if error.get("traceback"):
            echo(str(error["traceback"]).rstrip(), err=True)
    return BAD_INPUT if error["kind"] == "invalid_params" else FAILED


def _find(registry: Registry, name: str) -> HandlerSpec:
    try:
        return registry.get(name)
    except HandlerNotFound as error:
        raise CommandError(error) from error
