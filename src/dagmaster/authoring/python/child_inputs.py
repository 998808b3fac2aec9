"""Check the inputs that a workflow gives to its child jobs, as far as they and their workflows are known."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.compiler.compile import compile_document
from dagmaster.authoring.compiler.literal_params import has_expression
from dagmaster.authoring.inputs import input_problems
from dagmaster.errors import WorkflowInvalid
from dagmaster.sdk.handler_registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem


# The queues of tasks do not matter here.
_ANY_HANDLERS: Final = Registry(default_queue="default")


def check_child_inputs(document: Document, children: Mapping[str, Document]) -> None:
    """Raise `WorkflowInvalid` with each input of a child job that is missing, unknown or does not fit."""
    problems: list[Problem] = []
    definitions: dict[str, Any] = {}
    for path, node in _child_jobs(document.data):
        workflow_id, version = node["workflow_id"], node.get("version")
        child = children.get(workflow_id)
        if child is None or version not in (None, child.data.get("version", 1)):
            continue
        if workflow_id not in definitions:
            definitions[workflow_id] = _inputs_of(child)
        problems += _check(document, definitions[workflow_id], node.get("inputs") or {}, path)
    if problems:
        raise WorkflowInvalid(problems)


def _child_jobs(data: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the nodes that run a workflow, also in fan-outs, with their places."""
    for node_id, top in data["nodes"].items():
        path: Path = ("nodes", node_id)
        node = top or {}
        while node.get("type") == "fan_out":
            path, node = (*path, "task"), node["task"]
        if node.get("type") == "workflow":
            yield path, node


def _inputs_of(child: Document) -> Mapping[str, Any] | None:
    """Return the definitions of the inputs of a workflow; None if it is not valid, which is another error."""
    with contextlib.suppress(WorkflowInvalid):
        return compile_document(child, handlers=_ANY_HANDLERS, allow_missing_handlers=True).graph.inputs
    return None


def _check(
    document: Document, definitions: Mapping[str, Any] | None, inputs: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if definitions is None:
        return
    unknown = {name for name, value in inputs.items() if name in definitions and has_expression(value)}
    for problem in input_problems(_without(definitions, unknown), _without(inputs, unknown)):
        name = problem.path.partition(".")[0].partition("[")[0]
        message = (
            f"{problem.path}: {problem.message}"
            if name in inputs and name in definitions
            else problem.message
        )
        yield document.problem(
            message, (*path, "inputs", name) if name in inputs else path, hint=problem.hint
        )


def _without(mapping: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}
