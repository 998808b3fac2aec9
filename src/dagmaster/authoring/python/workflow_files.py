"""Workflows in files and modules: `flow.py`, `flow.py:nightly`, `my_package.flow:nightly`, `flow.yaml`."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.python.places import Place
from dagmaster.authoring.python.workflows import RESULT, Workflow
from dagmaster.authoring.sibling_files import SiblingFiles, child_workflows, workflow_id_of
from dagmaster.authoring.source_document import read_file
from dagmaster.errors import HandlerInvalid, Problem, WorkflowInvalid
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.sdk.handler_decorator import mark_of
from dagmaster.sdk.module_imports import append_working_directory, failing_line, import_source, is_file
from dagmaster.sdk.module_names import FILE_MODULE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from dagmaster.authoring.source_document import Document

_PYTHON: Final = re.compile(r"(.+\.py)(?::([^:/\\]*))?")
_IN_MODULE: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


def is_python_file(path: Path | str) -> bool:
    return _split(path) is not None


def file_of(path: Path | str) -> Path:
    """Return the file of a path without the name of a workflow in it, or of a module, which is imported."""
    source, _ = _split(path) or (str(path), None)
    return (
        Path(source) if is_file(source) or not is_python_file(path) else Path(str(_import(source).__file__))
    )


def _split(path: Path | str) -> tuple[str, str | None] | None:
    match = _PYTHON.fullmatch(str(path)) or _IN_MODULE.fullmatch(str(path))
    return None if match is None else (match[1], match[2])


def load_workflow(path: Path | str) -> Workflow[Any, Any]:
    """Return the workflow of a YAML file, or of a Python file: the only one in it, or `flow.py:name`.

    `my_package.flow:name` is one of a module. What is in the folder of a Python file can be imported by it.
    Workflows of child jobs that are in files next to a YAML file belong to it.
    """
    if not is_python_file(path):
        return _Folder(Path(path).parent).load(Path(path))
    workflows = load_workflows(path)
    if len(workflows) > 1:
        names = ", ".join(workflow.__name__ for workflow in workflows)
        file = file_of(path)
        raise _invalid(
            f"the file has several workflows: {names}", file, f"name one: {file}:{workflows[0].__name__}"
        )
    return workflows[0]


def load_workflows(path: Path | str) -> list[Workflow[Any, Any]]:
    """Return the workflows of a Python file, or the named one; raise `WorkflowInvalid` if none is."""
    file, name = _split(path) or (str(path), None)
    module = _import(file)
    workflows = {key: one for key, one in vars(module).items() if isinstance(one, Workflow)}
    if name is not None:
        if name not in workflows:
            noun = "file" if is_file(file) else "module"
            raise _invalid(f"the {noun} has no workflow {name!r}", Path(file), did_you_mean(name, workflows))
        return [workflows[name]]
    own = [one for one in workflows.values() if getattr(one, "__module__", None) == module.__name__]
    if not own:
        raise _invalid("the file has no workflow", Path(file), "decorate a function with @workflow")
    return list(dict.fromkeys(own))


def has_workflows(path: Path | str) -> bool:
    """Return whether a Python file defines workflows; raise `WorkflowInvalid` if it cannot be imported."""
    module = _import(str(file_of(path)))
    return any(
        isinstance(one, Workflow) and one.__module__ == module.__name__ for one in vars(module).values()
    )


def handler_sources(path: Path | str) -> tuple[str, ...]:
    """Return what `--handlers` names for a Python file: itself if it has tasks, and the modules of its tasks.

    Itself comes first, even if all its tasks are in modules next to it: then these can be imported.
    """
    module = _import(str(file_of(path)))
    modules = task_modules(path) if has_workflows(path) else ()
    has_handlers = any(
        mark_of(one) is not None and getattr(one, "__module__", None) == module.__name__
        for one in vars(module).values()
    )
    own = (str(module.__file__),) if has_handlers or modules else ()
    return tuple(dict.fromkeys((*own, *modules)))


def task_modules(path: Path | str) -> tuple[str, ...]:
    """Return the modules and files with the tasks of a Python file's workflows, as `--handlers` names them.

    A workflow that is not valid has none: its problems are reported when it is compiled.
    """
    sources: dict[str, None] = {}
    with contextlib.suppress(WorkflowInvalid):
        for workflow in load_workflows(path):
            with contextlib.suppress(WorkflowInvalid):
                sources |= dict.fromkeys(_sources_of(workflow))
    return tuple(sources)


def _import(source: str) -> ModuleType:
    """Import a file or a module; raise `WorkflowInvalid` with the line at which that failed."""
    # As `discover` does: the import of the same file for its handlers may not end otherwise.
    append_working_directory()
    try:
        return import_source(source, f"the {'file' if is_file(source) else 'module'} {source!r}")
    except HandlerInvalid as error:
        line = failing_line(Path(source), error.__cause__) if is_file(source) else 0
        if not line:
            raise _invalid(str(error), Path(source)) from error
        raise WorkflowInvalid([Place(source, line).problem(str(error))]) from error


def _sources_of(workflow: Workflow[Any, Any]) -> Iterator[str]:
    for member in workflow.family():
        for task in member.tasks.values():
            module = task.function.__module__
            yield str(sys.modules[module].__file__) if FILE_MODULE.fullmatch(module) else module


class _Folder:
    """Workflows of YAML files in a folder: each is loaded once, with those that its child jobs run."""

    def __init__(self, directory: Path) -> None:
        self._files = SiblingFiles(directory)
        self._loaded: set[str] = set()

    def load(self, path: Path) -> Workflow[Any, Any]:
        """Return the workflow of a file. As of a function, one output `result` is the result itself."""
        document = read_file(path)
        data = document.data if isinstance(document.data, dict) else {}
        workflow_id = workflow_id_of(data)
        self._loaded.add(workflow_id)

        def build(target: Workflow[Any, Any]) -> Document:
            target.children = {child.workflow_id: child for child in self._load_children(data)}
            return document

        outputs = data.get("outputs")
        is_one_value = isinstance(outputs, dict) and list(outputs) == [RESULT]
        return Workflow(workflow_id, build, returns_mapping=not is_one_value)

    def _load_children(self, data: dict[str, Any]) -> Iterator[Workflow[Any, Any]]:
        """Yield the workflows of child jobs next to the file, unless loaded: two may run each other."""
        for workflow_id, version in child_workflows(data):
            file = None if workflow_id in self._loaded else self._files.newest(workflow_id, version)
            if file is not None:
                yield self.load(file)


def _invalid(message: str, file: Path, hint: str = "") -> WorkflowInvalid:
    return WorkflowInvalid([Problem(message=message, file=str(file), hint=hint)])
