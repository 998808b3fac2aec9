"""Workflow files next to each other: a child job's workflow is found in the directory of its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.authoring.compiler.compile import compile_file
from dagmaster.authoring.python.workflow_files import file_of, load_workflow
from dagmaster.authoring.sibling_files import SiblingFiles
from dagmaster.engine.graph import FanOutSpec, WorkflowSpec

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from dagmaster.authoring.compiler.compile import Compiled
    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.sdk.handler_catalog import HandlerCatalog


def compile_with_children(
    path: pathlib.Path, handlers: HandlerCatalog, *, allow_missing_handlers: bool = False
) -> tuple[Compiled, list[Graph]]:
    """Compile a file and the workflows of its child jobs, at any depth: Python calls, or files next to it."""
    workflow = load_workflow(path)
    compiled = workflow.compile(handlers, allow_missing_handlers=allow_missing_handlers)
    siblings = SiblingFiles(file_of(path).parent)
    children = {member.workflow_id: member.compile(handlers).graph for member in workflow.family()[1:]}
    pending = [compiled.graph, *children.values()]
    while pending:
        for workflow_id, version in _child_workflows(pending.pop()):
            if workflow_id not in children and workflow_id != compiled.graph.workflow_id:
                file = siblings.newest(workflow_id, version)
                if file is not None:
                    graph = children[workflow_id] = compile_file(file, handlers=handlers).graph
                    pending.append(graph)
    return compiled, list(children.values())


def _child_workflows(graph: Graph) -> Iterator[tuple[str, int | None]]:
    for spec in graph.specs.values():
        inner: Spec = spec
        while isinstance(inner, FanOutSpec):
            inner = inner.child
        if isinstance(inner, WorkflowSpec):
            yield inner.workflow_id, inner.version
