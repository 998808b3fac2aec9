"""`dagmaster handlers`: list, show and test handlers."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import TYPE_CHECKING, Any

import click

from dagmaster.authoring.handler_definitions import describe_handler
from dagmaster.cli.errors import CommandError
from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED
from dagmaster.cli.options import (
    handlers_option,
    json_option,
    json_or_text,
    json_output_option,
    load_registry,
    read_json_file,
    read_pairs,
)
from dagmaster.errors import HandlerNotFound
from dagmaster.ports.task_messages import Outcome, Succeeded, TaskMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.authoring.handler_registry import HandlerSpec, Registry
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.handler_reports import Checkpoint, Progress


@click.group()
def handlers() -> None:
    """List, show and test handlers."""


@handlers.command(name="list")
@json_option
@handlers_option
def list_handlers(*, as_json: bool, modules: tuple[str, ...]) -> int:
    """List the handlers that workflows can use."""
    registry = load_registry(modules)
    specs = sorted(registry, key=lambda spec: spec.name)
    if as_json:
        click.echo(json.dumps([describe_handler(spec) for spec in specs], ensure_ascii=False))
        return COMPLETED
    width = max((len(spec.name) for spec in specs), default=0)
    for spec in specs:
        click.echo(f"{click.style(spec.name.ljust(width), bold=True)}  {_first_line(spec)}")
    click.echo(f"\n{len(specs)} handlers. `dagmaster handlers show NAME` shows the params of one.", err=True)
    return COMPLETED


@handlers.command()
@click.argument("name")
@json_option
@handlers_option
def show(name: str, *, as_json: bool, modules: tuple[str, ...]) -> int:
    """Show the params and the output of a handler."""
    spec = _find(load_registry(modules), name)
    if as_json:
        click.echo(json.dumps(describe_handler(spec), ensure_ascii=False, indent=2))
        return COMPLETED
    click.echo(click.style(spec.name, bold=True) + f"  (version {spec.version}, {spec.module})")
    if spec.description:
        click.echo(f"\n{spec.description}")
    facts = [
        ("queue", spec.queue),
        ("timeout", None if spec.timeout_seconds is None else f"{spec.timeout_seconds:g} s"),
        ("attempts", None if spec.retry is None else spec.retry.max_attempts),
        ("also named", ", ".join(spec.aliases)),
    ]
    click.echo("")
    for label, value in facts:
        if value:
            click.echo(f"  {label:<10} {value}")
    document = describe_handler(spec)
    _show_fields("Params", document["params"])
    _show_fields("Output", document["output"])
    return COMPLETED


@handlers.command(epilog="Exit codes: 0 it succeeded, 1 it failed, 2 bad usage or bad input.")
@click.argument("name")
@click.option("-p", "--param", "pairs", multiple=True, metavar="KEY=VALUE", help="One param, as text or JSON.")
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
    default=1,
    show_default=True,
    help="The number of the attempt that the handler sees.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="The timeout in seconds.",
)
@json_output_option("Print one JSON document: status, output, error.")
@handlers_option
def test(
    name: str,
    *,
    pairs: tuple[str, ...],
    params_file: pathlib.Path | None,
    attempt: int,
    timeout: float,
    as_json: bool,
    modules: tuple[str, ...],
) -> int:
    """Run one handler with these params, without a job.

    It runs as on a worker: a plain function in a child process. What it prints, logs and reports goes to standard
    error; its output to standard output.

    \b
    Examples:
      dagmaster handlers test hello_world -p name=Ada
      dagmaster handlers test chunk_processor -p 'chunk=[1, 2, 3]'
    """
    from dagmaster.bootstrap import execute_task

    registry = load_registry(modules)
    spec = _find(registry, name)
    params = read_json_file(params_file) | read_pairs(pairs, _param_parser(spec), "a param")
    message = TaskMessage(
        task_id="test",
        job_id="test",
        node_id="test",
        handler=spec.name,
        params=params,
        timeout_seconds=timeout,
        attempt=attempt,
        fencing_token=attempt,
    )
    outcome = asyncio.run(execute_task(message, registry, _StderrReports(), modules=modules))
    return _print_outcome(outcome, as_json=as_json)


def _param_parser(spec: HandlerSpec) -> Callable[[str, str], JsonValue]:
    """Return a function that parses a param: as JSON if possible, but as text if its type is text (such as 2020)."""
    from dagmaster.authoring.schema_description import takes_text

    schema = spec.params_schema() or {}
    return lambda name, text: text if text != "null" and takes_text(schema, name) else json_or_text(name, text)


class _StderrReports:
    """Prints progress, checkpoints and logs of the handler to standard error."""

    def progress(self, _task: TaskMessage, progress: Progress) -> None:
        total = "" if progress.total is None else f" of {progress.total:,.10g}"
        click.echo(f"progress: {progress.current:,.10g}{total} {progress.message}".rstrip(), err=True)

    def checkpoint(self, _task: TaskMessage, checkpoint: Checkpoint) -> None:
        click.echo(f"checkpoint: {checkpoint.phase}", err=True)

    def log(self, _task: TaskMessage, text: str) -> None:
        click.echo(text, err=True, nl=False)

    dump = log


def _print_outcome(outcome: Outcome, *, as_json: bool) -> int:
    if isinstance(outcome, Succeeded):
        document: JsonObject = {"status": "COMPLETED", "output": outcome.output, "error": None}
        text = json.dumps(document if as_json else outcome.output, ensure_ascii=False, indent=None if as_json else 2)
        click.echo(text)
        return COMPLETED
    error = getattr(outcome, "error", {"kind": "released", "message": "the handler released the task"})
    if as_json:
        click.echo(json.dumps({"status": "FAILED", "output": None, "error": error}, ensure_ascii=False))
    else:
        click.echo(click.style(f"FAILED ({error['kind']}): {error['message']}", fg="red", bold=True), err=True)
        if error.get("traceback"):
            click.echo(str(error["traceback"]).rstrip(), err=True)
    return BAD_INPUT if error["kind"] == "invalid_params" else FAILED


def _find(registry: Registry, name: str) -> HandlerSpec:
    try:
        return registry.get(name)
    except HandlerNotFound as error:
        raise CommandError(error) from error


def _show_fields(title: str, schema: dict[str, Any] | None) -> None:
    click.echo(f"\n{title}:")
    if schema is None:
        click.echo("  not declared: anything is accepted")
        return
    from dagmaster.authoring.schema_description import REQUIRED, describe_fields

    fields = describe_fields(schema)
    if not fields:
        click.echo("  none")
        return
    width = max(len(field.name) for field in fields)
    for field in fields:
        default = field.default if field.default in ("", REQUIRED) else f"default {field.default}"
        details = ", ".join(filter(None, (field.kind, field.limits, default if title == "Params" else "")))
        click.echo(f"  {click.style(field.name.ljust(width), bold=True)}  {details}")
        if field.description:
            click.echo(f"  {'':<{width}}  {click.style(field.description, dim=True)}")


def _first_line(spec: HandlerSpec) -> str:
    return spec.description.strip().split("\n", 1)[0]
