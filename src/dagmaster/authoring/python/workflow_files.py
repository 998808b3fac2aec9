"""Workflows in files: `flow.py`, `flow.py:nightly`, `flow.yaml`."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.handler_decorator import mark_of
from dagmaster.authoring.module_imports import import_source
from dagmaster.authoring.module_names import FILE_MODULE
from dagmaster.authoring.python.workflows import Workflow
from dagmaster.authoring.source_document import read_file
from dagmaster.authoring.suggestions import did_you_mean
from dagmaster.errors import HandlerInvalid, Problem, WorkflowInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_PYTHON: Final = re.compile(r"(.+\.py)(?::([^:/\\]*))?")


def is_python_file(path: Path | str) -> bool:
    """Return whether a path names a Python file, or a workflow in one."""
    return _PYTHON.fullmatch(str(path)) is not None


def file_of(path: Path | str) -> Path:
    """Return the file of a path, without the name of a workflow in it."""
    match = _PYTHON.fullmatch(str(path))
    return Path(match[1]) if match else Path(path)


def load_workflow(path: Path | str) -> Workflow[Any, Any]:
    """Return the workflow of a YAML file, or of a Python file: the only one in it, or `flow.py:name`."""
    if not is_python_file(path):
        return _from_yaml(Path(path))
    workflows = load_workflows(path)
    if len(workflows) > 1:
        names = ", ".join(workflow.__name__ for workflow in workflows)
        file = file_of(path)
        raise _invalid(f"the file has several workflows: {names}", file, f"name one: {file}:{workflows[0].__name__}")
    return workflows[0]


def load_workflows(path: Path | str) -> list[Workflow[Any, Any]]:
    """Return the workflows that a Python file defines, or the one that is named; raise `WorkflowInvalid` if none is."""
    match = _PYTHON.fullmatch(str(path))
    file, name = (match[1], match[2]) if match else (str(path), None)
    module = _import(file)
    workflows = {key: one for key, one in vars(module).items() if isinstance(one, Workflow)}
    if name is not None:
        if name not in workflows:
            raise _invalid(f"the file has no workflow {name!r}", Path(file), did_you_mean(name, workflows))
        return [workflows[name]]
    own = [one for one in workflows.values() if getattr(one, "__module__", None) == module.__name__]
    if not own:
        raise _invalid("the file has no workflow", Path(file), "decorate a function with @workflow")
    return list(dict.fromkeys(own))


def has_workflows(path: Path | str) -> bool:
    """Return whether a Python file defines workflows; raise `WorkflowInvalid` if it cannot be imported."""
    module = _import(str(file_of(path)))
    return any(isinstance(one, Workflow) and one.__module__ == module.__name__ for one in vars(module).values())


def handler_sources(path: Path | str) -> tuple[str, ...]:
    """Return what `--handlers` names for a Python file: the modules of its tasks, and itself if it has handlers."""
    module = _import(str(file_of(path)))
    has_handlers = any(
        mark_of(one) is not None and getattr(one, "__module__", None) == module.__name__
        for one in vars(module).values()
    )
    own = (str(module.__file__),) if has_handlers else ()
    return tuple(dict.fromkeys((*own, *(task_modules(path) if has_workflows(path) else ()))))


def task_modules(path: Path | str) -> tuple[str, ...]:
    """Return the modules and files that have the tasks of the workflows of a Python file, as `--handlers` names them.

    A workflow that is not valid has none: its problems are reported when it is compiled.
    """
    sources: dict[str, None] = {}
    with contextlib.suppress(WorkflowInvalid):
        for workflow in load_workflows(path):
            with contextlib.suppress(WorkflowInvalid):
                sources |= dict.fromkeys(_sources_of(workflow))
    return tuple(sources)


def _import(file: str) -> ModuleType:
    try:
        return import_source(file, f"the file {file!r}")
    except HandlerInvalid as error:
        raise _invalid(str(error), Path(file)) from error


def _sources_of(workflow: Workflow[Any, Any]) -> Iterator[str]:
    for member in workflow.family():
        for task in member.tasks.values():
            module = task.function.__module__
            yield str(sys.modules[module].__file__) if FILE_MODULE.fullmatch(module) else module


def _from_yaml(path: Path) -> Workflow[Any, Any]:
    document = read_file(path)
    data = document.data if isinstance(document.data, dict) else {}
    workflow_id = str(data.get("workflow_id") or data.get("name"))
    return Workflow(workflow_id, lambda _: document, returns_mapping=True)


def _invalid(message: str, file: Path, hint: str = "") -> WorkflowInvalid:
    return WorkflowInvalid([Problem(message=message, file=str(file), hint=hint)])
