"""Validate workflow files: everything that can be known before they run. No database is needed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dagmaster.application.commands.publication import WorkflowSource
from dagmaster.application.views.results import ValidationResult
from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.authoring.python.workflow_files import file_of, is_python_file, load_workflows
from dagmaster.errors import QueryInvalid, WorkflowInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dagmaster.authoring.compiler.compile import Compiled
    from dagmaster.sdk.handler_catalog import HandlerCatalog


def validate_files(
    files: Iterable[Path], handlers: HandlerCatalog, *, allow_missing_handlers: bool = False
) -> list[ValidationResult]:
    """Compile files, the .yaml and .yml files of folders, and the workflows of Python files, each once.

    Return the problems of each.
    """
    results: list[ValidationResult] = []
    for file in expand_folders(files):
        if is_python_file(file):
            results += _validate_python(file, handlers, allow_missing_handlers=allow_missing_handlers)
        else:
            compile_one = partial(
                compile_file, file, handlers=handlers, allow_missing_handlers=allow_missing_handlers
            )
            results.append(_validate(str(file), compile_one))
    return results


def validate_text(
    text: str, handlers: HandlerCatalog, *, name: str = "workflow.yaml", allow_missing_handlers: bool = False
) -> ValidationResult:
    """Compile the text of a workflow file; return its problems."""
    compile_one = partial(compile_text, handlers=handlers, allow_missing_handlers=allow_missing_handlers)
    return _validate(name, partial(compile_one, text, name))


def to_sources(results: Sequence[ValidationResult]) -> list[WorkflowSource]:
    """Return what `publish_workflows` takes; raise `WorkflowInvalid` with the problems of all workflows."""
    if not all(result.is_valid for result in results):
        raise WorkflowInvalid([problem for result in results for problem in result.problems])
    return [WorkflowSource(result.graph, result.file) for result in results if result.graph is not None]


def expand_folders(files: Iterable[Path]) -> list[Path]:
    """Return the files, and the .yaml and .yml files of folders; raise `QueryInvalid` if one has none."""
    paths: list[Path] = []
    for file in files:
        if not file.is_dir():
            paths.append(file)
            continue
        inside = sorted([*file.glob("*.yaml"), *file.glob("*.yml")])
        if not inside:
            raise QueryInvalid(f"{file}: no .yaml or .yml file in this folder")
        paths += inside
    return list(dict.fromkeys(paths))


def _validate_python(
    file: Path, handlers: HandlerCatalog, *, allow_missing_handlers: bool
) -> Iterator[ValidationResult]:
    try:
        workflows = load_workflows(file)
    except WorkflowInvalid as error:
        yield ValidationResult(file=str(file), is_valid=False, problems=error.problems, graph=None)
        return
    for workflow in workflows:
        name = f"{file_of(file)}:{workflow.__name__}"
        yield _validate(
            name, partial(workflow.compile, handlers, allow_missing_handlers=allow_missing_handlers)
        )


def _validate(file: str, compile_workflow: Callable[[], Compiled]) -> ValidationResult:
    try:
        compiled = compile_workflow()
    except WorkflowInvalid as error:
        return ValidationResult(file=file, is_valid=False, problems=error.problems, graph=None)
    return ValidationResult(file=file, is_valid=True, problems=tuple(compiled.warnings), graph=compiled.graph)
