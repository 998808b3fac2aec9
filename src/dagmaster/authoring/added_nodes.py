"""Definitions of nodes that are added to the graph of one job, and the batches that they make.

A definition is JSON with the keys of a node in a workflow file, but for its params: they are values and never
templates, and `references` has the places in them where the output of another node stands. So a text with
braces needs no escape, and 100,000 of them are read without parsing one expression.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dagmaster.engine.expressions.json_values import ABSENT, missing, pick
from dagmaster.engine.expressions.templates import JsonTemplate, Template
from dagmaster.engine.graph import (
    Aggregation,
    DefaultLimits,
    FanInSpec,
    Gate,
    GateKind,
    GroupSpec,
    Kind,
    Leaf,
    OnTimeout,
    StartSpec,
    TaskSpec,
    WaitSpec,
)
from dagmaster.engine.growth import NodeBatch
from dagmaster.engine.retry import Backoff, RetryPolicy
from dagmaster.errors import EvaluationFailed
from dagmaster.ports.added_nodes import StoredBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dagmaster.engine.graph import Spec
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.added_nodes import BatchRows, NodeRecord

    _TaskMaker = Callable[[str, Gate | None, str | None, Template, str | None], TaskSpec]

PYTHON_WORKFLOW: Final = "python"
"""The workflow of jobs whose graph is built in Python: it has no nodes but those that are added."""

PYTHON_DEFINITION: Final[JsonObject] = {"workflow_id": PYTHON_WORKFLOW, "version": 1, "nodes": {}}

_NO_LIMITS: Final = DefaultLimits()
_Defaults: TypeAlias = tuple[float, int]
"""The timeout and the attempts of tasks that name none."""
# Without the search for white space around it: a definition was written by `graph_parts`.
_DECODE: Final = json.JSONDecoder().raw_decode
_PARAMS: Final = '"params": '
# What writes a field of a new task, and the fields that each task has for itself.
_WRITE: Final = {one.name: getattr(TaskSpec, one.name).__set__ for one in fields(TaskSpec)}
_OWN_FIELDS: Final = ("id", "requires", "group", "params", "added_by")


def read_batches(batches: Iterable[StoredBatch], limits: DefaultLimits | None = None) -> list[NodeBatch]:
    """Return stored batches as the engine adds them; those that were accepted as a whole are one."""
    merged: list[NodeBatch] = []
    last_order: int | None = None
    for stored in batches:
        batch = read_batch(stored, (stored.number,), limits)
        if merged and stored.accepted_order is not None and stored.accepted_order == last_order:
            merged[-1] = merged[-1].merge(batch)
        else:
            merged.append(batch)
        last_order = stored.accepted_order
    return merged


def outline_batch(rows: BatchRows) -> NodeBatch:
    """Return the rows of a batch without what nodes do: enough to check names, groups and cycles, and much cheaper."""
    return _link_batch(
        rows, (), lambda record, requires: StartSpec(id=record.node_id, requires=requires, group=record.group)
    )


def read_batch(
    rows: BatchRows, numbers: tuple[int, ...] = (), limits: DefaultLimits | None = None
) -> NodeBatch:
    """Return the rows of a batch as the engine adds them."""
    known = limits or _NO_LIMITS
    # A tuple: it is part of a key that is looked up for every node.
    defaults = (known.task_timeout_seconds, known.task_max_attempts)
    added_by = rows.added_by if isinstance(rows, StoredBatch) else None
    return _link_batch(
        rows, numbers, lambda record, requires: _read_node(record, requires, defaults, added_by), added_by
    )


def _link_batch(
    rows: BatchRows,
    numbers: tuple[int, ...],
    read_node: Callable[[NodeRecord, Gate | None], Spec],
    added_by: str | None = None,
) -> NodeBatch:
    new = {record.node_id for record in rows.nodes} | {group.name for group in rows.groups}
    sources: dict[str, list[Leaf]] = {}
    links: list[tuple[str, Leaf]] = []
    leaves: dict[str, Leaf] = {}
    for _, previous, _, following in rows.dependencies:
        leaf = leaves.get(previous) or leaves.setdefault(previous, Leaf(previous))
        if following in new:
            sources.setdefault(following, []).append(leaf)
        else:
            links.append((following, leaf))
    for record in rows.nodes:
        if '"sources"' in record.definition and (collected := _collected(record)):
            sources.setdefault(record.node_id, []).extend(map(Leaf, collected))
    # Most nodes wait for nothing.
    requires = {node_id: _requires(waited_for) for node_id, waited_for in sources.items()}
    groups = [
        GroupSpec(id=group.name, group=group.parent, requires=requires.get(group.name), added_by=added_by)
        for group in rows.groups
    ]
    nodes = [read_node(record, requires.get(record.node_id)) for record in rows.nodes]
    return NodeBatch(numbers, (*groups, *nodes), tuple(links))


def _collected(record: NodeRecord) -> Sequence[str]:
    """Return the nodes whose results a node collects: it waits for them."""
    definition, _ = _DECODE(record.definition)
    sources: Sequence[str] = definition["sources"] if definition.get("type") == Kind.FAN_IN else ()
    return sources


def _requires(leaves: Sequence[Leaf]) -> Gate:
    return Gate(GateKind.ALL, tuple(dict.fromkeys(leaves)))


def _read_node(record: NodeRecord, requires: Gate | None, defaults: _Defaults, added_by: str | None) -> Spec:
    _, node_id, group, text = record
    head, _, params = text.partition(_PARAMS)
    # If more followed, it would begin so: within a text, a quotation mark has a backslash before it.
    make = _read_options(head, defaults) if params and '}, "' not in params else None
    if make is not None:
        return make(node_id, requires, group, JsonTemplate(params[:-1]), added_by)
    definition, _ = _DECODE(text)
    kind = definition.get("type")
    common: dict[str, Any] = {"id": node_id, "requires": requires, "group": group, "added_by": added_by}
    if kind is None or kind == Kind.TASK:
        params_of = params_template(definition.get("params", {}), definition.get("references", ()))
        return TaskSpec(**common, params=params_of, **_options(definition, defaults))
    if kind == Kind.FAN_IN:
        # The results of tasks in their order: one that failed and is allowed to keeps its place.
        return FanInSpec(**common, aggregation=Aggregation.COLLECT_ALL, sources=tuple(definition["sources"]))
    if kind == Kind.WAIT:
        return WaitSpec(
            **common,
            description=definition.get("description", ""),
            signal=definition["signal"],
            timeout_seconds=definition.get("timeout_seconds"),
            on_timeout=OnTimeout(definition.get("on_timeout", OnTimeout.FAIL)),
        )
    raise ValueError(f"node {node_id} has the type {kind!r}, which cannot be added to a job")


@lru_cache(maxsize=1_000)
def _read_options(head: str, defaults: _Defaults) -> _TaskMaker | None:
    """Return what makes the tasks whose definitions start like this; None if it is not the start of a task."""
    try:
        definition = json.loads(f"{head.rstrip(', ')}}}")
    except ValueError:
        return None
    if definition.get("type", Kind.TASK) != Kind.TASK:
        return None
    return _make_like(TaskSpec(id="", params=JsonTemplate(""), **_options(definition, defaults)))


def _make_like(options: TaskSpec) -> _TaskMaker:
    """Return a function that makes tasks with the options of this one.

    The constructor of a frozen class takes 2.8 µs, this 0.9 (2026-11): a task may add 100,000 nodes.
    """
    rest = [(write, getattr(options, name)) for name, write in _WRITE.items() if name not in _OWN_FIELDS]
    write_id, write_requires, write_group, write_params, write_added_by = (
        _WRITE[name] for name in _OWN_FIELDS
    )

    def make(
        node_id: str, requires: Gate | None, group: str | None, params: Template, added_by: str | None
    ) -> TaskSpec:
        spec: TaskSpec = object.__new__(TaskSpec)
        write_id(spec, node_id)
        write_requires(spec, requires)
        write_group(spec, group)
        write_params(spec, params)
        write_added_by(spec, added_by)
        for write, value in rest:
            write(spec, value)
        return spec

    return make


def _options(definition: Mapping[str, Any], defaults: _Defaults) -> dict[str, Any]:
    timeout, max_attempts = defaults
    return {
        "handler": definition["handler"],
        "queue": definition["queue"],
        "timeout_seconds": definition.get("timeout_seconds", timeout),
        "retry": _read_retry(definition.get("retry"), max_attempts),
        "allow_failure": definition.get("allow_failure", False),
        "code_fingerprint": definition.get("code_fingerprint"),
    }


def _read_retry(written: Mapping[str, Any] | None, max_attempts: int) -> RetryPolicy:
    if written is None:
        return RetryPolicy(max_attempts=max_attempts)
    return RetryPolicy(
        **{**written, "backoff": Backoff(written["backoff"])} if "backoff" in written else written
    )


# ── Params ──────────────────────────────────────────────────────────────────────────────────────────────────


def params_template(params: JsonObject, references: Sequence[Sequence[Any]] = ()) -> Template:
    """Return params as a template: values as they are, and outputs of nodes at the places of `references`.

    A reference is [path, node id, path within the output].
    """
    if not references:
        return Template(params, (), (), None)
    refs = tuple(dict.fromkeys(("nodes", node_id, "output") for _, node_id, *_ in references))
    return Template(params, (), refs, _fill_references(params, references))


def _fill_references(
    params: JsonObject, references: Sequence[Sequence[Any]]
) -> Callable[[Mapping[str, Any], list[int]], JsonValue]:
    def resolve(scope: Mapping[str, Any], _: list[int]) -> JsonValue:
        filled: JsonValue = params
        for path, node_id, *inner in references:
            filled = fill_place(filled, path, _read_output(scope["nodes"][node_id], node_id, *inner))
        return filled

    return resolve


def _read_output(node: Mapping[str, Any], node_id: str, within: Sequence[str | int] = ()) -> Any:
    """Return the output of a node, or a part of it; raise `EvaluationFailed` if there is none."""
    if "output" not in node:
        raise EvaluationFailed(
            f"there is no result of {node_id}: it has not completed", path=f"nodes.{node_id}.output"
        )
    value = node["output"]
    for depth, key in enumerate(within):
        item = pick(value, key)
        if item is ABSENT:
            problem = missing(value, ["nodes", node_id, "output", *within[: depth + 1]])
            raise EvaluationFailed(problem.sentence, path=problem.path)
        value = item
    return value


def fill_place(into: Any, path: Sequence[str | int], value: Any, depth: int = 0) -> Any:
    """Return a copy with this value at a path; what is beside the path is shared.

    Raise `EvaluationFailed` if not.

    The last key of a mapping may be a new one.
    """
    if depth == len(path):
        return value
    key, is_last = path[depth], depth == len(path) - 1
    inner = pick(into, key)
    if inner is ABSENT and not (is_last and isinstance(into, dict) and isinstance(key, str)):
        problem = missing(into, ["params", *path[: depth + 1]])
        raise EvaluationFailed(problem.sentence, path=problem.path)
    copied: Any = list(into) if isinstance(into, list) else dict(into)
    copied[key] = fill_place(inner, path, value, depth + 1)
    return copied
