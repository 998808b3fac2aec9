"""Publishes workflow files for `dagmaster dev`, in a separate process: Python code is imported again.

    python -m dagmaster.cli.dev_publication '{"files": […], "modules": […], "data_dir": null}'

Prints what was published, and the problems of what was not. The last lines have the published workflows, and
the modules of tasks by Python file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dagmaster.application.commands.publication import publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_files
from dagmaster.authoring.python.workflow_files import handler_sources, has_workflows, is_python_file
from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import load_registry, print_problems
from dagmaster.errors import DagmasterError, WorkflowInvalid
from dagmaster.sdk.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.application.commands.publication import WorkflowSource
    from dagmaster.sdk.handler_registry import Registry

MODULES_LINE: Final = "dagmaster: modules "
"""How the line with the modules begins. It is there if the code could be imported."""
WORKFLOWS_LINE: Final = "dagmaster: workflows "
"""How the line with the ids of the published workflows begins."""
DEFAULT_QUEUE: Final = "default"
"""The queue of Python tasks that name none: the workers of `dev` serve all queues."""


def main() -> int:
    """Publish the files of the request; return the exit code."""
    request = json.loads(sys.argv[1])
    data_dir = None if request["data_dir"] is None else Path(request["data_dir"])
    try:
        return _publish([Path(file) for file in request["files"]], request["modules"], data_dir)
    except click.ClickException as error:
        echo(error.format_message(), err=True)
    except DagmasterError as error:
        echo(str(error), err=True)
    return BAD_INPUT


def _publish(files: list[Path], modules: list[str], data_dir: Path | None) -> int:
    from dagmaster.cli.system import database_session

    workflow_files, sources = _read_python(files)
    is_loadable = sources is not None
    task_modules = [module for names in (sources or {}).values() for module in names]
    registry = load_registry(dict.fromkeys((*modules, *task_modules)))
    if registry.python_queue is None and registry.default_queue is None:
        registry.python_queue = DEFAULT_QUEUE
    workflows = compile_files(workflow_files, registry, with_warnings=True)
    if workflows:
        with database_session(data_dir) as session:
            results = session.run(
                lambda system: system.call(publish_workflows, workflows, replace=True), migrate=True
            )
        for source, result in zip(workflows, results, strict=True):
            echo(f"{result.outcome.value} {result.workflow_id} v{result.version} (from {source.file})")
        echo(f"{WORKFLOWS_LINE}{json.dumps([result.workflow_id for result in results])}")
    if is_loadable:
        echo(f"{MODULES_LINE}{json.dumps(sources)}")
    return COMPLETED if is_loadable else BAD_INPUT


def _read_python(files: list[Path]) -> tuple[list[Path], dict[str, list[str]] | None]:
    """Return the files with workflows, and the modules with tasks by Python file; None if one has errors."""
    workflow_files: list[Path] = []
    sources: dict[str, list[str]] = {}
    is_loadable = True
    for file in files:
        if not is_python_file(file):
            workflow_files.append(file)
            continue
        try:
            if has_workflows(file):
                workflow_files.append(file)
            sources[str(file)] = list(handler_sources(file))
        except WorkflowInvalid as error:
            print_problems(error.problems)
            echo(f"{file} is not published", err=True)
            is_loadable = False
    return workflow_files, sources if is_loadable else None


def compile_files(
    files: Iterable[Path], registry: Registry, *, with_warnings: bool = False
) -> list[WorkflowSource]:
    """Compile workflow files; print the problems of invalid ones, and leave them out."""
    results = validate_files(files, registry, allow_missing_handlers=True)
    sources: dict[tuple[str, int], WorkflowSource] = {}
    for result in results:
        if with_warnings or not result.is_valid:
            print_problems(result.problems)
        if not result.is_valid:
            echo(f"{result.file} is not published", err=True)
            continue
        (source,) = to_sources([result])
        first = sources.setdefault((source.graph.workflow_id, source.graph.version), source)
        if first is not source:
            echo(f"{source.file} is not published: {first.file} is the same version of it", err=True)
    return list(sources.values())


if __name__ == "__main__":
    sys.exit(main())
