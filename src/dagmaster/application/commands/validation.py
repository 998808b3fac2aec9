"""Validate workflow files: everything that can be known before they run. No database is needed."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.commands.publication import WorkflowSource
from dagmaster.application.queries.handlers import contract_of, usable_handlers
from dagmaster.application.views.results import ValidationResult
from dagmaster.authoring.compiler.compile import compile_definition, compile_file, compile_text
from dagmaster.authoring.python.workflow_files import file_of, is_python_file, load_workflows
from dagmaster.errors import Problem, QueryInvalid, WorkflowInvalid
from dagmaster.sdk.handler_definitions import PublishedHandlers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dagmaster.application.context import Application
    from dagmaster.authoring.compiler.compile import Compiled
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.sdk.handler_catalog import HandlerCatalog

_WORD: Final = re.compile(r"[\w.-]+")


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


def check_text(
    text: str,
    name: str,
    documents: list[JsonObject],
    default_queue: str | None,
    *,
    allow_missing_handlers: bool,
) -> JsonObject:
    """Do what `validate_text` does, in a check process: return `CheckedText` as JSON."""
    result = validate_text(
        text,
        PublishedHandlers(documents, default_queue),
        name=name,
        allow_missing_handlers=allow_missing_handlers,
    )
    return {
        "problems": [problem.to_dict() for problem in result.problems],
        "definition": None if result.graph is None else dict(result.graph.definition),
    }


def check_definition(definition: JsonObject) -> list[JsonValue]:
    """Compile a definition in a check process; return its problems."""
    try:
        compile_definition(definition, is_published=False)
    except WorkflowInvalid as error:
        return [problem.to_dict() for problem in error.problems]
    return []


async def validate_apart(
    app: Application,
    text: str,
    *,
    name: str = "workflow.yaml",
    allow_missing_handlers: bool,
    has_graph: bool = False,
) -> ValidationResult:
    """Do what `validate_text` does with the handlers that workers have published, where it can be stopped.

    `has_graph`: compile the graph of a valid text again, from its definition: no process sends a graph.
    """
    answer = await app.checks.check(
        check_text,
        text=text,
        name=name,
        documents=await documents_for(app, text),
        default_queue=app.default_queue,
        allow_missing_handlers=allow_missing_handlers,
    )
    definition = answer["definition"]
    return ValidationResult(
        file=name,
        is_valid=definition is not None,
        problems=tuple(Problem(**problem) for problem in answer["problems"]),
        graph=await app.checks.run(compile_definition, definition)
        if has_graph and definition is not None
        else None,
    )


async def compile_apart(app: Application, definition: JsonObject) -> Graph:
    """Compile the definition of a caller where it can be stopped; raise `WorkflowInvalid`."""
    problems = await app.checks.check(check_definition, definition=definition)
    if problems:
        raise WorkflowInvalid([Problem(**problem) for problem in problems])
    return await app.checks.run(compile_definition, definition)


async def documents_for(app: Application, text: str) -> list[dict[str, Any]]:
    """Return the definitions of handlers that a text may name, and the names of the others.

    With a backslash it may spell a name in another way, and all are returned. The text is read once: callers
    have published thousands of names.
    """
    records = await usable_handlers(app)
    is_escaped, words = "\\" in text, frozenset(_WORD.findall(text))
    return [
        contract_of(record)
        if is_escaped or any(_may_have(words, name) for name in (record.name, *record.aliases))
        else {"name": record.name, "aliases": list(record.aliases)}
        for record in records
    ]


def _may_have(words: frozenset[str], name: str) -> bool:
    # Callers name handlers as they like, also with spaces and quotes.
    return name in words or words.issuperset(_WORD.findall(name))


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
