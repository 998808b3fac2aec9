"""`dagmaster workflows`: check, draw and describe workflow files. What a database has is in `publishing`."""

from __future__ import annotations

import json
import pathlib
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from dagmaster.authoring.compiler.compile import compile_file
from dagmaster.cli.main import BAD_INPUT, COMPLETED, LazyGroup
from dagmaster.cli.options import handlers_option, json_option, load_registry, print_problems
from dagmaster.errors import Problem, WorkflowInvalid

if TYPE_CHECKING:
    from dagmaster.authoring.handler_registry import Registry


@click.group(
    cls=LazyGroup,
    lazy={
        "push": ("dagmaster.cli.commands.workflows_published:push", "Publish workflow files."),
        "list": ("dagmaster.cli.commands.workflows_show:list_workflows", "List the published workflows."),
        "show": (
            "dagmaster.cli.commands.workflows_show:show",
            "Show a published workflow: inputs, versions, nodes.",
        ),
    },
)
def workflows() -> None:
    """Check, draw and publish workflow files, and look at the published ones."""


@workflows.command(epilog="Exit codes: 0 all are right, 2 one is not.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=pathlib.Path))
@click.option("--allow-missing-handlers", is_flag=True, help="A handler that is not there is a warning, not an error.")
@json_option
@handlers_option
def validate(
    files: tuple[pathlib.Path, ...], *, allow_missing_handlers: bool, as_json: bool, modules: tuple[str, ...]
) -> int:
    """Check workflow files: everything that can be known before they run.

    All problems of all files are told, each with its line, what was written there, and the nearest right name. A folder
    stands for the .yaml and .yml files in it.

    \b
    Examples:
      dagmaster workflows validate workflows/*.yaml
      dagmaster workflows validate flow.yaml --allow-missing-handlers
    """
    began = time.monotonic()
    registry = load_registry(modules)
    found = unfold(files)
    outcomes = {file: _check(file, registry, allow_missing=allow_missing_handlers) for file in found}
    wrong = [file for file, problems in outcomes.items() if any(p.severity == "error" for p in problems)]
    if as_json:
        document = [
            {"file": str(file), "valid": file not in wrong, "problems": [asdict(problem) for problem in problems]}
            for file, problems in outcomes.items()
        ]
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        for file, problems in outcomes.items():
            if problems:
                print_problems(problems)
            if file not in wrong:
                click.echo(f"{click.style('ok', fg='green', bold=True)}  {file}")
        took = time.monotonic() - began
        count = f"{len(found)} file{'s' if len(found) != 1 else ''}"
        said = f"{len(wrong)} of {count} cannot run" if wrong else f"{count}, no errors"
        click.echo(f"{said} ({took:.2f} s)", err=True)
    return BAD_INPUT if wrong else COMPLETED


def unfold(files: tuple[pathlib.Path, ...]) -> list[pathlib.Path]:
    """The files, and those in the folders, each once."""
    found: list[pathlib.Path] = []
    for file in files:
        if not file.is_dir():
            found.append(file)
            continue
        inside = sorted([*file.glob("*.yaml"), *file.glob("*.yml")])
        if not inside:
            raise click.ClickException(f"{file}: no .yaml or .yml file in this folder")
        found += inside
    return list(dict.fromkeys(found))


def _check(file: pathlib.Path, registry: Registry, *, allow_missing: bool) -> tuple[Problem, ...]:
    try:
        return compile_file(file, handlers=registry, allow_missing_handlers=allow_missing).warnings
    except WorkflowInvalid as error:
        return error.problems


@workflows.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path, dir_okay=False, exists=True))
@click.option("--format", "style", type=click.Choice(["mermaid", "svg"]), help="Default: by the name of the output.")
@click.option("-o", "--output", type=click.Path(path_type=pathlib.Path), help="Write to this file.")
@handlers_option
def diagram(file: pathlib.Path, *, style: str | None, output: pathlib.Path | None, modules: tuple[str, ...]) -> int:
    """Draw a workflow, as Mermaid text or as SVG.

    \b
    Examples:
      dagmaster workflows diagram flow.yaml
      dagmaster workflows diagram flow.yaml -o flow.svg
    """
    from dagmaster.authoring.diagram import diagram as draw

    try:
        graph = compile_file(file, handlers=load_registry(modules), allow_missing_handlers=True).graph
    except WorkflowInvalid as error:
        print_problems(error.problems)
        return BAD_INPUT
    if style is None:
        suffix = "" if output is None else output.suffix.lower()
        if suffix not in ("", ".svg", ".mmd", ".mermaid", ".md", ".txt"):
            raise click.UsageError(f"a diagram is .svg or .mmd (Mermaid), not {suffix}")
        style = "svg" if suffix == ".svg" else "mermaid"
    _write(draw.svg(graph) if style == "svg" else draw.mermaid(graph), output)
    return COMPLETED


@workflows.command()
@click.option("-o", "--output", type=click.Path(path_type=pathlib.Path), help="Write to this file.")
def schema(*, output: pathlib.Path | None) -> int:
    """Print the JSON Schema of workflow files, for editors.

    \b
    Write it beside your files and name it in their first line:
      # yaml-language-server: $schema=workflow.schema.json
    """
    from dagmaster.authoring.schema import json_schema

    _write(json.dumps(json_schema(), indent=2) + "\n", output)
    return COMPLETED


def _write(text: str, output: pathlib.Path | None) -> None:
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from error
    click.echo(f"wrote {output}", err=True)
