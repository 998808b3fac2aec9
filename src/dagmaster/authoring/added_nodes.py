"""Definitions of nodes that are added to the graph of one job, and the batches that they make.

A definition is JSON with the keys of a node in a workflow file, but for its params: they are values and never
templates, and `references` has the places in them where the output of another node stands. So a text with
braces needs no escape, and 100,000 of them are read without parsing one expression.
"""

from __future__ import annotations

import json
import json.encoder
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.node_reader import NO_LIMITS, NoValues, read_node
from dagmaster.engine.expressions.json_values import ABSENT, missing, pick
from dagmaster.engine.expressions.templates import JsonTemplate, Template
from dagmaster.engine.graph import Aggregation, Gate, GateKind, GroupSpec, Kind, Leaf, TaskSpec
from dagmaster.engine.growth import NodeBatch
from dagmaster.errors import EvaluationFailed
from dagmaster.ports.added_nodes import StoredBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dagmaster.engine.graph import DefaultLimits, Spec
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.added_nodes import BatchRows, DependencyRecord, GroupRecord, NodeRecord

    _TaskMaker = Callable[[str, Gate | None, str | None, Template, int], TaskSpec]

PYTHON_WORKFLOW: Final = "python"
"""The workflow of jobs whose graph is built in Python: it has no nodes but those that are added."""

PYTHON_DEFINITION: Final[JsonObject] = {"workflow_id": PYTHON_WORKFLOW, "version": 1, "nodes": {}}

_ADDABLE: Final = frozenset({Kind.TASK, Kind.FAN_IN, Kind.WAIT})
_DECODE: Final = json.JSONDecoder().decode
# What writes a field of a new task, and the fields that each task has for itself.
_WRITE: Final = {one.name: getattr(TaskSpec, one.name).__set__ for one in fields(TaskSpec)}
_OWN_FIELDS: Final = ("id", "requires", "group", "params", "graph_task_id")


def _make_encoder() -> Callable[[Any], str]:
    """Return a function that encodes JSON.

    `encode` of the standard library makes an encoder for each call: half the cost of the definition of a
    task. One of CPython in C is made once and used for all; the public one serves elsewhere.
    """
    strict = json.JSONEncoder(allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return strict.encode
    # No record of containers, no indentation; separators; neither sorted nor skipped keys; no NaN.
    options = (None, ": ", ", ", *[False] * 3)
    chunks = make(None, strict.default, json.encoder.encode_basestring_ascii, *options)
    return lambda value: "".join(chunks(value, 0))


encode_json: Final = _make_encoder()
"""Encodes a value as JSON without NaN; raises TypeError, ValueError or RecursionError if it cannot."""


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


def read_batch(
    rows: BatchRows, numbers: tuple[int, ...] = (), limits: DefaultLimits | None = None
) -> NodeBatch:
    added_by = rows.added_by if isinstance(rows, StoredBatch) else None
    links = BatchLinks([record.node_id for record in rows.nodes], rows.groups, rows.dependencies)
    reader = _NodeReader(links, limits or NO_LIMITS, added_by)
    return NodeBatch(
        numbers, (*links.groups(added_by), *map(reader.read, rows.nodes)), tuple(links.of_existing)
    )


class BatchLinks:
    """What the nodes and groups of a batch wait for.

    `of_existing`: what nodes of the job wait for from now on.
    """

    def __init__(
        self,
        node_ids: Collection[str],
        groups: Sequence[GroupRecord],
        dependencies: Iterable[DependencyRecord],
    ) -> None:
        self._groups = groups
        self._sources: dict[str, list[Leaf]] = {}
        self.of_existing: list[tuple[str, Leaf]] = []
        new = {*node_ids, *(group.name for group in groups)}
        leaves: dict[str, Leaf] = {}
        for _, previous, _, following in dependencies:
            leaf = leaves.get(previous) or leaves.setdefault(previous, Leaf(previous))
            if following in new:
                self._sources.setdefault(following, []).append(leaf)
            else:
                self.of_existing.append((following, leaf))

    def requires(self, node_id: str, collected: Sequence[str] = ()) -> Gate | None:
        """Return what a node waits for: also for the nodes whose results it collects."""
        leaves: Sequence[Leaf] = self._sources.get(node_id, ())
        if collected:
            leaves = [*leaves, *map(Leaf, collected)]
        return Gate(GateKind.ALL, tuple(dict.fromkeys(leaves))) if leaves else None

    def groups(self, added_by: str | None = None) -> Iterator[GroupSpec]:
        for group in self._groups:
            requires = self.requires(group.name)
            yield GroupSpec(id=group.name, group=group.parent, requires=requires, added_by=added_by)


class _NodeReader:
    """Reads the nodes of one batch."""

    def __init__(self, links: BatchLinks, limits: DefaultLimits, added_by: str | None) -> None:
        self._links = links
        self._limits = limits
        self._added_by = added_by
        # By their definitions without params: most tasks of a batch have one in common.
        self._makers: dict[str, _TaskMaker] = {}

    def read(self, record: NodeRecord) -> Spec:
        number, node_id, group, text = record
        definition = _DECODE(text)
        kind = definition.get("type", Kind.TASK)
        if kind == Kind.TASK and "references" not in definition:
            params = JsonTemplate(encode_json(definition.pop("params", {})))
            key = repr(definition)
            make = self._makers.get(key) or self._makers.setdefault(key, self._maker(definition))
            return make(node_id, self._links.requires(node_id), group, params, number)
        if kind not in _ADDABLE:
            raise ValueError(f"node {node_id} has the type {kind!r}, which cannot be added to a job")
        if kind == Kind.FAN_IN:
            # The results of tasks in their order: one that failed and is allowed to keeps its place.
            definition = {"aggregation": Aggregation.COLLECT_ALL, **definition}
        spec = read_node(
            node_id,
            definition,
            _ReferencedValues(definition.get("references", ())),
            limits=self._limits,
            requires=self._links.requires(node_id, definition.get("sources", ())),
            group=group,
            added_by=self._added_by,
        )
        if isinstance(spec, TaskSpec):
            _WRITE["graph_task_id"](spec, number)
        return spec

    def _maker(self, definition: JsonObject) -> _TaskMaker:
        """Return a function that makes tasks with the options of this one.

        The constructor of a frozen class takes 2.8 µs, this 0.9 (2026-11): a task may add 100,000 nodes.
        """
        options = read_node("", definition, NoValues(), limits=self._limits, added_by=self._added_by)
        rest = [(write, getattr(options, name)) for name, write in _WRITE.items() if name not in _OWN_FIELDS]
        write_id, write_requires, write_group, write_params, write_number = (
            _WRITE[name] for name in _OWN_FIELDS
        )

        def make(
            node_id: str, requires: Gate | None, group: str | None, params: Template, number: int
        ) -> TaskSpec:
            spec: TaskSpec = object.__new__(TaskSpec)
            write_id(spec, node_id)
            write_requires(spec, requires)
            write_group(spec, group)
            write_params(spec, params)
            write_number(spec, number)
            for write, value in rest:
                write(spec, value)
            return spec

        return make


class _ReferencedValues(NoValues):
    """Values that are no templates, with the outputs of nodes at some places."""

    def __init__(self, references: Sequence[Sequence[Any]]) -> None:
        self._references = references

    def template(self, key: str, written: Any) -> Template:  # noqa: ARG002 - as in the protocol
        return params_template(written, self._references)


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
    """Return the output of a node, or a part of it; raise `EvaluationFailed` if it has none."""
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
    """Return a copy with this value at a path; what is next to the path is shared.

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
