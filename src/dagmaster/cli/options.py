"""What several commands share: reading inputs, finding handlers, saying problems."""

from __future__ import annotations

import getpass
import json
import os
import pathlib
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from dagmaster.errors import DagmasterError, InputsInvalid, Problem, WorkflowInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dagmaster.authoring.handler_registry import Registry

F = TypeVar("F", bound="Callable[..., Any]")

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    help="The embedded PostgreSQL's data. Default: DAGMASTER_DATA_DIR, else one for each user.",
)
handlers_option = click.option(
    "--handlers",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A module (myapp.tasks) or file (./tasks.py) that has handlers. Repeatable; adds to DAGMASTER_HANDLERS.",
)


def inputs_options(command: F) -> F:
    """The options by which the inputs of a job are given."""
    one = click.option("-i", "--input", "pairs", multiple=True, metavar="KEY=VALUE", help="One input. Repeatable.")
    many = click.option(
        "-I",
        "--inputs",
        "inputs_file",
        type=click.Path(path_type=pathlib.Path, allow_dash=True),
        metavar="FILE",
        help="Inputs from a JSON file (- for standard input). -i wins over it.",
    )
    return one(many(command))


def load_registry(modules: Iterable[str]) -> Registry:
    """Find the handlers: those that ship, those of the settings, and those named on the command line."""
    from dagmaster.bootstrap import find_handlers

    try:
        return find_handlers(tuple(modules))
    except DagmasterError as error:
        raise click.ClickException(str(error)) from error


def current_user() -> str:
    """Name the person at the command line. In a container, the user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def say_problems(problems: Iterable[Problem]) -> None:
    """Print problems to the error stream, each with its place."""
    for problem in problems:
        colour = "yellow" if problem.severity == "warning" else "red"
        said = str(problem)
        head, _, rest = said.partition("\n")
        click.echo(click.style(head, fg=colour, bold=True) + ("\n" + rest if rest else ""), err=True)


def say_refused(error: WorkflowInvalid | InputsInvalid, said: str, out: TextIO | None) -> None:
    """Print why something was refused; to `out`, for a program, one document, as always."""
    say_problems(error.problems)
    click.echo(f"\n{said}.", err=True)
    if out is not None:
        document = {"status": "REFUSED", "problems": [asdict(problem) for problem in error.problems]}
        out.write(json.dumps(document, ensure_ascii=False) + "\n")


def about_inputs(error: InputsInvalid) -> str:
    """What to do about inputs that were refused: one that is missing is to be given; one that is wrong was told."""
    is_missing = any(problem.message.startswith("missing input") for problem in error.problems)
    return "give inputs as -i name=value, or from a file with -I" if is_missing else "the inputs do not fit"


def read_pairs(pairs: Iterable[str], parse: Callable[[str, str], Any], what: str) -> dict[str, Any]:
    """Read key=value pairs."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{what} is written key=value, not {pair!r}")
        if key in found:
            raise click.UsageError(f"{what} {key!r} is given twice")
        found[key] = parse(key, text)
    return found


def read_json_file(path: pathlib.Path | None) -> dict[str, Any]:
    """Read an object from a JSON file; `-` is the standard input."""
    if path is None:
        return {}
    from dagmaster.authoring.inputs import read_json

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        data = read_json(text)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise click.ClickException(f"{path}: expected a JSON object, as {{'name': 'value'}}")
    return data


def json_or_text(key: str, text: str) -> Any:
    """Read a value as JSON if it is JSON, else as text."""
    from dagmaster.authoring.inputs import read_json

    try:
        return read_json(text)
    except RecursionError as error:
        raise click.UsageError(f"{key}: the value is nested too deep") from error
    except ValueError:
        return text
