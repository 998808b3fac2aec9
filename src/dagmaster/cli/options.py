"""Options and arguments that several commands share, and how inputs are read and problems printed."""

from __future__ import annotations

import pathlib
import sys
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from dagmaster.application.cursors import MAX_LIMIT
from dagmaster.cli.errors import command_errors
from dagmaster.ports.storage import ZONES
from dagmaster.sdk.terminal import echo, echo_json, style

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dagmaster.errors import InputsInvalid, Problem, WorkflowInvalid
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.sdk.handler_registry import Registry

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")


zone_option = click.option(
    "--zone",
    type=click.Choice(ZONES),
    default="bronze",
    show_default=True,
    help="bronze: raw data; silver: results; gold: published data.",
)
handlers_option = click.option(
    "--handlers",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A module (myapp.tasks) or file (./tasks.py) with handlers, besides DAGMASTER_HANDLERS. Repeatable.",
)


def page_options(*, default_limit: int) -> Callable[[F], F]:
    """Return the options `--limit` and `--cursor` of a list that is printed in pages."""
    limit = click.option(
        "--limit",
        type=click.IntRange(1, MAX_LIMIT),
        default=default_limit,
        show_default=True,
        help="The maximum number of entries.",
    )
    cursor = click.option(
        "--cursor", metavar="CURSOR", help="Continue after a page: the cursor that was printed below it."
    )

    def add(command: F) -> F:
        return limit(cursor(command))

    return add


def inputs_options(command: F) -> F:
    one = click.option(
        "-i", "--input", "pairs", multiple=True, metavar="KEY=VALUE", help="One input. Repeatable."
    )
    many = click.option(
        "-I",
        "--inputs",
        "inputs_file",
        type=click.Path(path_type=pathlib.Path, allow_dash=True),
        metavar="FILE",
        help="Inputs from a JSON file (- for standard input). -i overrides it.",
    )
    return one(many(command))


class WorkflowPath(click.Path):
    """A workflow file that exists: YAML or Python (`flow.py`, `flow.py:x`); or a module (`pkg.flow:x`)."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check the file; return the path with the name of the workflow, if there is one."""
        if not is_in_module(value):
            super().convert(workflow_file(value), param, ctx)
        return pathlib.Path(value)


def workflow_file(path: pathlib.Path | str) -> pathlib.Path:
    """Return the file of a path, without the name of a workflow in it (`flow.py:nightly`)."""
    file, colon, _ = str(path).partition(".py:")
    return pathlib.Path(f"{file}.py") if colon else pathlib.Path(path)


def is_in_module(path: pathlib.Path | str) -> bool:
    """Return whether a path names a workflow in a module (`my_package.flow:nightly`)."""
    module, colon, name = str(path).partition(":")
    is_dotted = all(part.isidentifier() for part in module.split("."))
    return bool(colon) and is_dotted and not module.endswith(".py") and name.isidentifier()


def load_registry(modules: Iterable[str]) -> Registry:
    """Return the handlers that are built in, named in the settings or on the command line."""
    from dagmaster.bootstrap import find_handlers

    with command_errors():
        return find_handlers(tuple(modules))


def modules_with_tasks(modules: tuple[str, ...], files: Iterable[pathlib.Path]) -> tuple[str, ...]:
    """Return the modules of `--handlers`, and those that have the tasks of Python workflow files."""
    python_files = [file for file in files if workflow_file(file).suffix == ".py" or is_in_module(file)]
    if not python_files:
        return modules
    from dagmaster.authoring.python.workflow_files import task_modules

    more = [module for file in python_files for module in task_modules(file)]
    return tuple(dict.fromkeys((*modules, *more)))


def print_problems(problems: Iterable[Problem]) -> None:
    for problem in problems:
        colour = "yellow" if problem.severity == "warning" else "red"
        first_line, _, rest = str(problem).partition("\n")
        echo(style(first_line, fg=colour, bold=True) + ("\n" + rest if rest else ""), err=True)


def print_rejection(error: WorkflowInvalid | InputsInvalid, sentence: str, json_out: TextIO | None) -> None:
    """Print why a workflow or inputs were rejected: as JSON to `json_out`, else to the error stream."""
    if json_out is not None:
        echo_json({"error": error.to_dict()}, file=json_out)
        return
    print_problems(error.problems)
    echo(f"\n{sentence}.", err=True)


def inputs_remedy(error: InputsInvalid) -> str:
    is_missing = any(problem.message.startswith("missing input") for problem in error.problems)
    return (
        "give inputs as -i name=value, or from a file with -I" if is_missing else "the inputs are not valid"
    )


def read_pairs(pairs: Iterable[str], parse: Callable[[str, str], T], noun: str) -> dict[str, T]:
    """Parse key=value pairs; `noun` names one in error messages."""
    values: dict[str, T] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{noun} is written key=value, not {pair!r}")
        if key in values:
            raise click.UsageError(f"{noun} {key!r} appears twice")
        values[key] = parse(key, text)
    return values


def read_text_file(path: pathlib.Path) -> str:
    """Read a file; `-` is standard input."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from error


def read_json_file(path: pathlib.Path | None) -> JsonObject:
    """Read an object from a JSON file; `-` is standard input."""
    if path is None:
        return {}
    from dagmaster.json_types import read_json

    try:
        data = read_json(read_text_file(path))
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise click.ClickException(f"{path}: expected a JSON object, as {{'name': 'value'}}")
    return data


def json_or_text(key: str, text: str) -> JsonValue:
    """Parse a value as JSON; return the text itself if it is not JSON."""
    from dagmaster.json_types import read_json

    try:
        return read_json(text)
    except RecursionError as error:
        raise click.UsageError(f"{key}: the value is nested too deep") from error
    except ValueError:
        return text
