"""Writes tasks and groups of Python code as the nodes of a workflow or of a job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.added_nodes import fill_place
from dagmaster.authoring.graph_parts import check_part
from dagmaster.authoring.python.document_writer import DocumentWriter
from dagmaster.authoring.python.futures import Future, Origin
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.authoring.python.graph_items import Task
from dagmaster.engine.graph import Aggregation
from dagmaster.engine.topology import topological_order
from dagmaster.errors import NodesRejected
from dagmaster.sdk.entrypoint_sources import loaded_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.authoring.graph_parts import GraphPart, TaskPart
    from dagmaster.authoring.python.futures import Scope

_NO_QUEUE = ""


def write_nodes(items: Any) -> tuple[dict[str, Any], dict[str, Callable[..., Any]]]:
    """Return the nodes of tasks and groups as in YAML, by id, and their functions, by handler.

    Raise `NodesRejected` if they make no graph, or one that a workflow file cannot say.
    """
    collected = collect(items, default_queue=_NO_QUEUE, follows=True, with_applied=True)
    part = collected.part
    applied = {item.id: item.node_id for item in collected.items if item.node_id is not None}
    for task in part.tasks:
        task.name = applied.get(task.id, task.name)
    check_part(part)
    names = part.names(1)
    tasks = [item for item in collected.items if isinstance(item, Task)]
    _check_results(part, {task.id for task in tasks if task.allow_failure}, names)
    functions = {task.entrypoint: task.function or loaded_function(task.entrypoint) for task in tasks}
    known = {name: function for name, function in functions.items() if function is not None}
    return _write_part(part, names), known


def _check_results(part: GraphPart, may_fail: set[int], names: Mapping[int, str]) -> None:
    """Raise `NodesRejected` if a task takes a result that may be missing: a file needs a default for it."""
    for task in part.tasks:
        for _, source, *_ in task.references:
            if source in may_fail:
                raise NodesRejected(
                    f"{names[task.id]} takes the result of {names[source]}, which may fail (allow_failure):"
                    " in a"
                    " workflow file it needs a default; collect the result instead:"
                    " create_result_collector([…])"
                )


def _write_part(part: GraphPart, names: Mapping[int, str]) -> dict[str, Any]:
    previous: dict[int, list[int]] = {}
    for _, source, _, target in part.dependencies:
        previous.setdefault(target, []).append(source)
    nodes: dict[str, Any] = {}
    for group in part.groups:
        nodes[names[group.id]] = {"type": "group", **_place(previous.get(group.id, ()), group.parent, names)}
    for task in part.tasks:
        sources = previous.get(task.id, [])
        if "sources" in task.definition:
            collected = _place(_collected(task, sources, names), task.group, names)
            nodes[names[task.id]] = {
                "type": "fan_in",
                "aggregation": Aggregation.COLLECT_ALL.value,
                **collected,
            }
        else:
            nodes[names[task.id]] = {**_write_task(task, names), **_place(sources, task.group, names)}
    return {name: nodes[name] for name in _order(part, names)}


def _place(sources: Any, group: int | None, names: Mapping[int, str]) -> dict[str, Any]:
    waited_for = list(dict.fromkeys(names[source] for source in sources))
    keys: dict[str, Any] = {"depends_on": waited_for} if waited_for else {}
    return keys if group is None else {**keys, "group": names[group]}


def _write_task(task: TaskPart, names: Mapping[int, str]) -> dict[str, Any]:
    node = {key: value for key, value in task.definition.items() if (key, value) != ("queue", _NO_QUEUE)}
    params: Any = json.loads(task.params or "{}")
    name = next((name for name in params if "{{" in name), None)
    if name is not None:
        raise NodesRejected(
            f"{names[task.id]} has the argument {name!r}: in a workflow file no name has {{{{"
        )
    for path, source, *within in task.references:
        part: Future[Any] = Future(
            _OutputOrigin(names[source]), tuple(key for keys in within for key in keys)
        )
        params = fill_place(params, path, part)
    written = DocumentWriter(()).value(params, f"params of {names[task.id]!r}")
    return {**node, "params": written} if written else node


@dataclass(frozen=True, slots=True)
class _OutputOrigin(Origin):
    """The output of a node, by its id."""

    node_id: str

    def text(self, scope: Scope) -> str:  # noqa: ARG002 - the same everywhere
        return f"nodes.{self.node_id}.output"


def _collected(task: TaskPart, previous: list[int], names: Mapping[int, str]) -> list[int]:
    """Return the tasks whose results a node collects; in a file these are all that it waits for."""
    sources: Any = task.definition["sources"]
    if not sources:
        raise NodesRejected(f"{names[task.id]} collects no results: a workflow file has no such node")
    if len(set(sources)) < len(sources):
        raise NodesRejected(f"{names[task.id]} collects a result twice: a workflow file has no such node")
    others = [names[one] for one in previous if one not in sources]
    if others:
        raise NodesRejected(
            f"{names[task.id]} waits for {others[0]}, whose result it does not collect: a workflow file has"
            " no such"
            " node; let what uses it wait"
        )
    return list(sources)


def _order(part: GraphPart, names: Mapping[int, str]) -> list[str]:
    """Return the nodes as they were made, or in the order in which each fan_in collects."""
    ids = [*(names[group.id] for group in part.groups), *(names[task.id] for task in part.tasks)]
    before: dict[str, list[str]] = {name: [] for name in ids}
    for task in part.tasks:
        sources: Any = task.definition.get("sources", ())
        for first, second in pairwise(dict.fromkeys(sources)):
            before[names[second]].append(names[first])
    places = {name: place for place, name in enumerate(ids)}
    if all(places[source] < places[name] for name in ids for source in before[name]):
        return ids
    order = topological_order(ids, before)
    if len(order) < len(ids):
        raise NodesRejected(
            "two collectors take results in opposite orders: a workflow file has one order of nodes"
        )
    return order
