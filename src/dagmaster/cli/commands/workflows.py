"""`dagmaster workflows`: validate and draw workflow files. For published ones, see `workflows_published`."""

from __future__ import annotations

import json
import pathlib

import click

from dagmaster.cli.known_handlers import known_handlers
from dagmaster.cli.main import BAD_INPUT, COMPLETED, LazyGroup
from dagmaster.cli.options import (
    WorkflowPath,
    handlers_option,
    load_registry,
    modules_with_tasks,
    print_problems,
)
from dagmaster.cli.system import find_server
from dagmaster.errors import WorkflowInvalid
from dagmaster.sdk.command_line import json_option
from dagmaster.sdk.terminal import echo, echo_json, style
from dagmaster.text_format import format_count, format_list


@click.group(
    cls=LazyGroup,
    lazy={
        "push": ("dagmaster.cli.commands.workflows_published:push", "Publish workflow files."),
        "activate": (
            "dagmaster.cli.commands.workflows_published:activate",
            "Choose the version for new jobs of a workflow.",
        ),
        "list": ("dagmaster.cli.commands.workflows_show:list_workflows", "List the published workflows."),
        "show": (
            "dagmaster.cli.commands.workflows_show:show",
            "Show a published workflow: inputs, versions, nodes.",
        ),
    },
)
def workflows() -> None:
    """Validate, draw and publish workflow files, and show the published ones."""


@workflows.command(epilog="Exit codes: 0 all are valid, 2 one is not.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=pathlib.Path))
@click.option(
    "--allow-missing-handlers", is_flag=True, help="A handler that is not found is a warning, not an error."
)
@json_option
@handlers_option
def validate(
    files: tuple[pathlib.Path, ...], *, allow_missing_handlers: bool, as_json: bool, modules: tuple[str, ...]
) -> int:
    """Validate workflow files: report everything that can be known before they run.

    All problems of all files are printed, each with its line, the text there, and the most similar valid
    name. A folder stands for the .yaml and .yml files in it. No database is needed. With --url or
    DAGMASTER_URL, handlers that this machine does not have are checked as the workers of the server have
    published them.

    \b
    Examples:
      dagmaster workflows validate workflows/*.yaml
      dagmaster workflows validate flow.yaml --allow-missing-handlers
      dagmaster workflows validate flow.py:nightly
    """
    from dagmaster.application.commands.validation import validate_files

    modules = modules_with_tasks(modules, files)
    handlers = load_registry(modules) if find_server(None) is None else known_handlers(modules, None)
    results = validate_files(files, handlers, allow_missing_handlers=allow_missing_handlers)
    invalid = sum(not result.is_valid for result in results)
    if as_json:
        echo_json([result.to_dict() for result in results])
        return BAD_INPUT if invalid else COMPLETED
    for result in results:
        print_problems(result.problems)
        if result.is_valid:
            echo(f"{style('ok', fg='green', bold=True)}  {result.file}")
    count = format_count(len(results), "workflow")
    summary = f"{invalid} of {count} cannot run" if invalid else f"{count}, no errors"
    echo(summary, err=True)
    return BAD_INPUT if invalid else COMPLETED


@workflows.command()
@click.argument("file", type=WorkflowPath())
@click.option(
    "--format",
    "style",
    type=click.Choice(["mermaid", "svg"]),
    help="The format.  [default: by the suffix of the output, else mermaid]",
)
@click.option("-o", "--output", type=click.Path(path_type=pathlib.Path), help="Write to this file.")
@handlers_option
def diagram(
    file: pathlib.Path, *, style: str | None, output: pathlib.Path | None, modules: tuple[str, ...]
) -> int:
    """Draw a workflow as Mermaid text or as SVG.

    \b
    Examples:
      dagmaster workflows diagram flow.yaml
      dagmaster workflows diagram flow.yaml -o flow.svg
      dagmaster workflows diagram flow.py:nightly
    """
    from dagmaster.authoring.diagram import diagram as draw
    from dagmaster.authoring.python.workflow_files import load_workflow
    from dagmaster.authoring.python.workflows import DEFAULT_QUEUE

    registry = load_registry(modules_with_tasks(modules, [file]))
    registry.default_queue = registry.default_queue or DEFAULT_QUEUE
    try:
        graph = load_workflow(file).compile(registry, allow_missing_handlers=True).graph
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


@workflows.command(epilog="Exit codes: 0 exported, 2 the workflow is not valid.")
@click.argument("file", type=WorkflowPath())
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=pathlib.Path),
    help="Write to this file (.yaml, .yml, or one that exists), or to a folder, which is made: it gets the"
    " workflows of child jobs.",
)
def export(file: pathlib.Path, *, output: pathlib.Path | None) -> int:
    """Write a workflow of Python code as a workflow file (YAML).

    The file has the same graph. Its tasks stay Python functions: name their module where it is used
    (--handlers). Workflows that it calls are separate files next to it.

    \b
    Examples:
      dagmaster workflows export flow.py:nightly -o nightly.yaml
      dagmaster workflows export flow.py:nightly -o flows/     with all workflows that it calls
    """
    from dagmaster.authoring.python.workflow_files import load_workflow

    try:
        first, *called = load_workflow(file).family()
        texts = {member.workflow_id: member.to_yaml() for member in (first, *called)}
    except WorkflowInvalid as error:
        print_problems(error.problems)
        return BAD_INPUT
    output = None if output == pathlib.Path("-") else output
    if output is not None and _is_folder(output):
        _make_folder(output)
        for workflow_id, text in texts.items():
            _write(text, output / f"{workflow_id}.yaml")
        return COMPLETED
    _write(texts[first.workflow_id], output)
    if called:
        names = format_list([one.workflow_id for one in called])
        echo(f"it runs {names}: export these next to it, or all at once to a folder (-o FOLDER)", err=True)
    return COMPLETED


@workflows.command()
@click.option("-o", "--output", type=click.Path(path_type=pathlib.Path), help="Write to this file.")
def schema(*, output: pathlib.Path | None) -> int:
    """Print the JSON Schema of workflow files, for editors.

    \b
    Write it next to your files, and refer to it in their first line:
      # yaml-language-server: $schema=workflow.schema.json
    """
    from dagmaster.authoring.schema import json_schema

    _write(json.dumps(json_schema(), indent=2) + "\n", output)
    return COMPLETED


def _is_folder(output: pathlib.Path) -> bool:
    """Return whether an output is a folder, or is to be one; raise if it names another kind of file."""
    if output.exists():
        return output.is_dir()
    if output.suffix and output.suffix.lower() not in (".yaml", ".yml"):
        raise click.UsageError(
            f"-o {output}: a workflow file ends in .yaml or .yml, and a folder has no suffix"
        )
    return not output.suffix


def _make_folder(folder: pathlib.Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from error


def _write(text: str, output: pathlib.Path | None) -> None:
    if output is None:
        echo(text, nl=not text.endswith("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from error
    echo(f"wrote {output}", err=True)
