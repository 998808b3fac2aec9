"""Workflow files beside each other: a child job's workflow is found in the directory of its parent."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.authoring.compiler.compile import compile_file
from dagmaster.authoring.python.workflow_files import file_of, load_workflow
from dagmaster.authoring.source_document import read_file
from dagmaster.engine.graph import FanOutSpec, WorkflowSpec
from dagmaster.errors import WorkflowInvalid

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from dagmaster.authoring.compiler.compile import Compiled
    from dagmaster.authoring.handler_catalog import HandlerCatalog
    from dagmaster.engine.graph import Graph, Spec


def compile_with_children(
    path: pathlib.Path, handlers: HandlerCatalog, *, allow_missing_handlers: bool = False
) -> tuple[Compiled, list[Graph]]:
    """Compile a file, and the workflows that its child jobs need, at any depth: Python calls, or files beside it."""
    workflow = load_workflow(path)
    compiled = workflow.compile(handlers, allow_missing_handlers=allow_missing_handlers)
    siblings = _Siblings(file_of(path).parent, handlers)
    children = {member.workflow_id: member.compile(handlers).graph for member in workflow.family()[1:]}
    pending = [compiled.graph, *children.values()]
    while pending:
        for workflow_id, version in _child_workflows(pending.pop()):
            if workflow_id not in children and workflow_id != compiled.graph.workflow_id:
                graph = siblings.newest(workflow_id, version)
                if graph is not None:
                    children[workflow_id] = graph
                    pending.append(graph)
    return compiled, list(children.values())


def _child_workflows(graph: Graph) -> Iterator[tuple[str, int | None]]:
    for spec in graph.specs.values():
        inner: Spec = spec
        while isinstance(inner, FanOutSpec):
            inner = inner.child
        if isinstance(inner, WorkflowSpec):
            yield inner.workflow_id, inner.version


class _Siblings:
    """The workflow files of a directory, read on first use."""

    def __init__(self, directory: pathlib.Path, handlers: HandlerCatalog) -> None:
        self._directory = directory
        self._handlers = handlers
        self._files: dict[str, list[pathlib.Path]] | None = None

    def newest(self, workflow_id: str, version: int | None) -> Graph | None:
        """Return the newest version of a workflow, or this version; raise `WorkflowInvalid` if one does not compile."""
        if self._files is None:
            self._files = self._files_by_workflow()
        graphs = [compile_file(file, handlers=self._handlers).graph for file in self._files.get(workflow_id, ())]
        matching = [graph for graph in graphs if version in (None, graph.version)]
        return max(matching, key=lambda graph: graph.version, default=None)

    def _files_by_workflow(self) -> dict[str, list[pathlib.Path]]:
        files: dict[str, list[pathlib.Path]] = {}
        for file in sorted([*self._directory.glob("*.yaml"), *self._directory.glob("*.yml")]):
            with contextlib.suppress(WorkflowInvalid):
                data = read_file(file).data
                if isinstance(data, dict):
                    files.setdefault(str(data.get("workflow_id") or data.get("name")), []).append(file)
        return files
