"""`dagmaster workflows push, activate`: publish workflow versions."""

from __future__ import annotations

import pathlib
import sys

import click

from dagmaster.cli.errors import command_errors
from dagmaster.cli.known_handlers import known_handlers
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import handlers_option, modules_with_tasks, print_problems, print_rejection
from dagmaster.cli.system import on_system, open_session
from dagmaster.errors import WorkflowInvalid
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, style
from dagmaster.text_format import format_count


@click.command(
    epilog="Exit codes: 0 all are published, 2 one is invalid or in conflict (then none is), 3 no database."
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=pathlib.Path))
@click.option("--replace", is_flag=True, help="Replace the content of a published version: for development.")
@click.option("--no-activate", is_flag=True, help="Publish without making it the version for new jobs.")
@click.option(
    "--allow-missing-handlers", is_flag=True, help="A handler that is not found is a warning, not an error."
)
@json_option
@handlers_option
@data_dir_option
def push(
    files: tuple[pathlib.Path, ...],
    *,
    replace: bool,
    no_activate: bool,
    allow_missing_handlers: bool,
    as_json: bool,
    modules: tuple[str, ...],
    data_dir: pathlib.Path | None,
) -> int:
    """Publish workflow files, so that jobs can be submitted by workflow id.

    All files are validated first, as `workflows validate` does; if one is not valid, none is published.
    Handlers that this machine does not have are checked as workers have published them. A published version
    does not change: raise `version:` in the file. Jobs keep the content that they were submitted with. A
    folder stands for the .yaml and .yml files in it.

    \b
    Examples:
      dagmaster workflows push workflows/
      dagmaster workflows push flow.yaml --handlers ./my_handlers.py
      dagmaster workflows push flow.yaml --replace         while you develop it
      dagmaster workflows push flow.py                     the @workflow functions of a Python file
    """
    from dagmaster.application.commands.publication import publish_workflows
    from dagmaster.application.commands.validation import to_sources, validate_files

    with command_errors():
        handlers = known_handlers(modules_with_tasks(modules, files), data_dir)
        results = validate_files(files, handlers, allow_missing_handlers=allow_missing_handlers)
    try:
        sources = to_sources(results)
    except WorkflowInvalid as error:
        errors = sum(problem.severity == "error" for problem in error.problems)
        print_rejection(
            error, f"{format_count(errors, 'error')}: nothing was published", sys.stdout if as_json else None
        )
        return BAD_INPUT
    print_problems(problem for result in results for problem in result.problems)
    with open_session(data_dir) as session:
        published = session.run(
            lambda system: system.call(publish_workflows, sources, replace=replace, activate=not no_activate),
            migrate=True,
        )
    if as_json:
        echo_json([result.to_dict() for result in published])
        return COMPLETED
    for result in published:
        colour = None if result.outcome == "unchanged" else "green"
        note = "; running jobs keep the content they have" if result.outcome == "replaced" else ""
        active = "" if result.is_active else ", not active"
        name = f"{result.workflow_id} v{result.version}"
        echo(f"{style(result.outcome.value, fg=colour, bold=True)}  {name}{note}{active}")
    return COMPLETED


@click.command(epilog="Exit codes: 0 it is active, 2 there is no such version, 3 no database.")
@click.argument("workflow_id", metavar="ID")
@click.argument("version", type=click.IntRange(1))
@json_option
@data_dir_option
def activate(workflow_id: str, version: int, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Choose the version for new jobs of a workflow.

    Running jobs keep the version that they were submitted with. To go back after a mistake, activate an older
    version.

    \b
    Examples:
      dagmaster workflows activate fan_out 2
    """
    from dagmaster.application.commands.publication import activate_version

    result = on_system(data_dir, lambda system: system.call(activate_version, workflow_id, version))
    if as_json:
        echo_json(result.to_dict())
        return COMPLETED
    before = "" if result.previous_version is None else f" (before: v{result.previous_version})"
    echo(f"new jobs of {workflow_id} get v{version}{before}")
    return COMPLETED
