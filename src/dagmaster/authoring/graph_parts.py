"""Parts of graphs that are built in code: tasks, groups and dependencies, by ids that need no database.

A part becomes the rows of one batch once the number of the batch is known: tasks without a name are called
after their function, with numbers that no other batch has.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from dagmaster.authoring import schema
from dagmaster.authoring.added_nodes import BatchLinks, encode_json
from dagmaster.authoring.garbage_collection import without_gc
from dagmaster.engine.graph import GroupSpec, StartSpec
from dagmaster.engine.growth import NodeBatch, check_batch
from dagmaster.errors import NodesRejected
from dagmaster.ports.added_nodes import BatchRows, DependencyRecord, GroupRecord, MemberKind, NodeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dagmaster.engine.graph import Spec
    from dagmaster.json_types import JsonObject

MAX_NAME: Final = 100
_KINDS: Final = {kind.value: kind for kind in MemberKind}
_NAME: Final = re.compile(schema.ID_PATTERN)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(slots=True)
class TaskPart:
    """A task.

    `definition` has the keys of a node but its dependencies; `references` are [path, id of a task, path].

    A node that collects results (`sources` of its definition) waits for them without a dependency for each.
    `params`: the task's params as JSON, if they are not part of the definition, which many tasks may share.
    """

    id: int
    label: str
    definition: JsonObject
    name: str | None = None
    group: int | None = None
    references: Sequence[Sequence[Any]] = ()
    params: str | None = None

    def with_params(self) -> JsonObject:
        return (
            self.definition if self.params is None else {**self.definition, "params": json.loads(self.params)}
        )


@dataclass(slots=True)
class GroupPart:
    """A group, and the id of the group that it is in."""

    id: int
    name: str
    parent: int | None = None


@dataclass(slots=True)
class GraphPart:
    """Tasks and groups to add, and dependencies between them and `known` ones: node ids by id."""

    tasks: list[TaskPart] = field(default_factory=list)
    groups: list[GroupPart] = field(default_factory=list)
    dependencies: list[tuple[MemberKind, int, MemberKind, int]] = field(default_factory=list)
    known: dict[int, str] = field(default_factory=dict)
    made_names: tuple[tuple[int, ...], dict[int, str]] | None = field(default=None, repr=False, compare=False)
    """The names of the last batch number, which are asked for several times."""

    def extend(self, more: GraphPart) -> None:
        self.tasks += more.tasks
        self.groups += more.groups
        self.dependencies += more.dependencies
        self.known |= more.known

    def to_json(self) -> JsonObject:
        tasks: list[Any] = [
            [t.id, t.label, t.with_params(), t.name, t.group, t.references] for t in self.tasks
        ]
        return {
            "tasks": tasks,
            "groups": [[group.id, group.name, group.parent] for group in self.groups],
            "dependencies": [list(dependency) for dependency in self.dependencies],
            "known": [[number, name] for number, name in self.known.items()],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> GraphPart:
        """Return a part from its JSON; raise ValueError, TypeError or KeyError if it is not one."""
        return cls(
            [TaskPart(*columns) for columns in body["tasks"]],
            [GroupPart(*columns) for columns in body["groups"]],
            [
                (_KINDS[kind], source, _KINDS[target_kind], target)
                for kind, source, target_kind, target in body["dependencies"]
            ],
            {int(number): str(name) for number, name in body["known"]},
        )

    def map_json(self, change: Callable[[JsonObject], JsonObject]) -> GraphPart:
        return GraphPart.from_json(change(self.to_json()))

    def digest(self) -> str:
        """Return a digest of the part that does not depend on its ids: the same calls make the same part."""
        ids = [*(group.id for group in self.groups), *(task.id for task in self.tasks)]
        places = {number: place for place, number in enumerate(ids)}
        places |= {number: -1 - place for place, number in enumerate(self.known)}
        tasks = []
        for task in self.tasks:
            definition: dict[str, Any] = dict(task.with_params())
            sources = [places[source] for source in definition.pop("sources", ())]
            references = [[path, places[source], *inner] for path, source, *inner in task.references]
            tasks.append(
                [task.label, definition, sources, task.name, places.get(task.group or 0), references]
            )
        groups = [[group.name, places.get(group.parent or 0)] for group in self.groups]
        edges = [[kind, places[source], to, places[target]] for kind, source, to, target in self.dependencies]
        body = json.dumps([tasks, groups, edges, list(self.known.values())], sort_keys=True)
        return hashlib.sha256(body.encode()).hexdigest()

    def to_rows(self, number: int) -> BatchRows:
        """Return the rows of the batch of this number; raise `NodesRejected` if a name cannot be used."""
        names = self.names(number)
        heads: dict[int, str] = {}
        nodes = [
            NodeRecord(
                task.id, names[task.id], _place(names, task.group), _definition_text(task, names, heads)
            )
            for task in self.tasks
        ]
        return BatchRows(nodes, self._group_rows(names), self._dependency_rows(names))

    def outline(self, number: int) -> NodeBatch:
        """Return the batch without what nodes do: cheaper, and enough to check names, groups and cycles."""
        names = self.names(number)
        links = BatchLinks(
            [names[task.id] for task in self.tasks], self._group_rows(names), self._dependency_rows(names)
        )
        nodes = []
        for task in self.tasks:
            name, sources = names[task.id], cast("list[int]", task.definition.get("sources", ()))
            requires = links.requires(name, [_known(names, source) for source in sources])
            nodes.append(StartSpec(id=name, group=_place(names, task.group), requires=requires))
        return NodeBatch((), (*links.groups(), *nodes), tuple(links.of_existing))

    def _group_rows(self, names: Mapping[int, str]) -> list[GroupRecord]:
        return [GroupRecord(group.id, group.name, _place(names, group.parent)) for group in self.groups]

    def _dependency_rows(self, names: Mapping[int, str]) -> list[DependencyRecord]:
        try:
            return [
                DependencyRecord(kind, names[source], target_kind, names[target])
                for kind, source, target_kind, target in self.dependencies
            ]
        except KeyError as error:
            _known(names, error.args[0])
            raise

    def check(self) -> None:
        """Raise `NodesRejected` if no graph can have this part."""
        check_part(self)

    def check_structure(self) -> None:
        """Raise `NodesRejected` if no graph can have this part: its definitions come from Python code."""
        with without_gc():
            if not self._is_flat():
                _check_outline(self, self.outline(1))

    def _is_flat(self) -> bool:
        """Return whether some tasks wait for nothing and the others for them: there is no cycle."""
        if (
            self.groups
            or self.known
            or any(task.name is not None or task.group is not None for task in self.tasks)
        ):
            return False
        waiting = {target for _, _, _, target in self.dependencies}
        sources = {source for _, source, _, _ in self.dependencies}
        for task in self.tasks:
            if "sources" in task.definition:
                waiting.add(task.id)
                sources.update(cast("list[int]", task.definition["sources"]))
        return waiting.isdisjoint(sources) and {task.id for task in self.tasks}.issuperset(waiting | sources)

    def names(self, number: int) -> dict[int, str]:
        """Return the node id of each task and group, known ones included."""
        key = (number, len(self.tasks), len(self.groups), len(self.known))
        if self.made_names is None or self.made_names[0] != key:
            self.made_names = (key, self._make_names(number))
        return self.made_names[1]

    def _make_names(self, number: int) -> dict[int, str]:
        names = dict(self.known)
        taken = set(self.known.values())
        named = [(group.id, group.name) for group in self.groups]
        named += [(task.id, task.name) for task in self.tasks if task.name is not None]
        for number_of, name in named:
            _check_name(name)
            if name in taken:
                raise NodesRejected(f"two nodes are named {name!r}: only one can have a name", [name])
            taken.add(name)
            names[number_of] = name
        unnamed = [task for task in self.tasks if task.name is None]
        stems = {label: _stem(label, number) for label in {task.label for task in unnamed}}
        counters: dict[str, Iterator[int]] = {}
        if number > 1 and not taken:
            # Each name is a stem and a number, and nothing else has a name: two are equal only if both parts
            # are.
            counters = {stem: count(1) for stem in stems.values()}
            return {task.id: f"{(stem := stems[task.label])}_{next(counters[stem])}" for task in unnamed}
        for task in unnamed:
            names[task.id] = name = _next_name(stems[task.label], counters, taken, is_first=number == 1)
            taken.add(name)
        return names


def check_part(part: GraphPart, existing: Mapping[str, Spec] | None = None, number: int = 1) -> BatchRows:
    """Return the rows of a part; raise `NodesRejected` if they cannot be added to a graph with these nodes.

    Without a graph, the known nodes are taken for granted.
    """
    with without_gc():
        rows = part.to_rows(number)
        _check_outline(part, part.outline(number), existing)
        return rows


def _check_outline(part: GraphPart, outline: NodeBatch, existing: Mapping[str, Spec] | None = None) -> None:
    if existing is None:
        groups = {spec.group for spec in outline.specs}
        known = part.known.values()
        existing = {name: GroupSpec(id=name) if name in groups else StartSpec(id=name) for name in known}
    check_batch(existing, outline)


def _stem(label: str, number: int) -> str:
    stem = _NOT_IN_NAMES.sub("_", label).strip("_") or "task"
    stem = stem if stem[0].isalpha() else f"task_{stem}"
    # The number of the batch keeps the names of batches apart that are added at the same moment.
    return stem[: MAX_NAME - 20] if number == 1 else f"{stem[: MAX_NAME - 30]}_b{number}"


def _next_name(stem: str, counters: dict[str, Any], taken: set[str], *, is_first: bool) -> str:
    if is_first and stem not in counters and stem not in taken:
        counters[stem] = count(2)
        return stem
    numbers = counters.get(stem) or counters.setdefault(stem, count(1))
    while (name := f"{stem}_{next(numbers)}") in taken:
        pass
    return name


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME or "__" in name:
        raise NodesRejected(
            f"{name[:120]!r} cannot be the name of a node: letters, digits and single _, at most {MAX_NAME},"
            " starting"
            " with a letter or _",
            [name],
        )


def _place(names: Mapping[int, str], group: int | None) -> str | None:
    return None if group is None else _known(names, group)


def _known(names: Mapping[int, str], number: int) -> str:
    name = names.get(number)
    if name is None:
        raise NodesRejected(
            f"task or group {number} is not part of this graph: also add it, or remove the dependency"
        )
    return name


def _definition_text(task: TaskPart, names: Mapping[int, str], heads: dict[int, str]) -> str:
    """Return the definition of a task as JSON: first what many share (in `heads`), then the params."""
    definition, params = task.definition, task.params
    if "sources" in definition:
        sources: Any = definition["sources"]
        definition = {**definition, "sources": [_known(names, source) for source in sources]}
    if params is None:
        text = _to_json(names[task.id], definition)
    else:
        head = heads.get(id(definition))
        if head is None:
            head = heads[id(definition)] = _to_json(names[task.id], definition)[:-1]
        text = f'{head}, "params": {params}}}'
    if not task.references:
        return text
    references = [[path, _known(names, source), *inner] for path, source, *inner in task.references]
    return f'{text[:-1]}, "references": {encode_json(references)}}}'


def _to_json(name: str, definition: Mapping[str, Any]) -> str:
    try:
        return encode_json(definition)
    except (TypeError, ValueError, RecursionError) as error:
        raise NodesRejected(f"the kwargs of {name} are not JSON: {error}") from None
