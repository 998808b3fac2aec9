"""Turns tasks and groups of Python code into a part of a graph, with everything that belongs to them.

What is applied brings along what it waits for, the groups that it is in, and their members.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dagmaster.authoring.added_nodes import encode_json
from dagmaster.authoring.entrypoint_arguments import argument_problem, typed_signature
from dagmaster.authoring.garbage_collection import without_gc
from dagmaster.authoring.graph_parts import GraphPart, GroupPart, TaskPart
from dagmaster.authoring.python.futures import MAX_DEPTH
from dagmaster.authoring.python.graph_items import APPLIED, GraphItem, Group, ResultCollector, Task, items_in
from dagmaster.authoring.python.holds import Hold, add_held_groups
from dagmaster.authoring.python.result_parts import ResultPart
from dagmaster.errors import NodesRejected
from dagmaster.ports.added_nodes import MemberKind
from dagmaster.sdk.code_fingerprints import code_fingerprint, entrypoint_fingerprint
from dagmaster.sdk.entrypoints import function_name
from dagmaster.sdk.json_forms import NoJsonForm, json_form, short_repr

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject
    from dagmaster.sdk.handler_signatures import Signature

_MAX_PLACES: Final = 4
_KINDS: Final = {"task": MemberKind.TASK, "group": MemberKind.GROUP}
_SIMPLE: Final = frozenset({int, bool, type(None)})
_NOT_IMPORTABLE: Final = (
    ": a worker imports a function by its name, and cannot import a lambda or a function in another one."
    " Define it in a"
    " module, or run the job in this process: OrchContext(local=True), or in_memory=True, and run_job_test"
)
_UNCHANGED: Final = frozenset({*_SIMPLE, str, float})
"""The types of values that JSON does not change."""
_Reference: TypeAlias = tuple[list[str | int], GraphItem, tuple[str | int, ...]]
"""A place in kwargs, the task whose result stands there, and the keys of the part that it is."""


@dataclass(slots=True)
class Collected:
    """What is to be added to a job. `items`: the new ones; `touched`: known ones that get dependencies."""

    part: GraphPart
    items: list[GraphItem]
    touched: list[GraphItem]
    edge_counts: list[int]
    """How many dependencies each of them had: it can get more while these are stored."""

    def changed_ids(self) -> set[int]:
        """Return the ids of what is added, and of known items that get dependencies."""
        return {item.id for item in (*self.items, *self.touched)}

    def affected_ids(self) -> set[int]:
        """Return the ids of what is added or changed, and of what waits for it."""
        return self.changed_ids().union(following.id for item in self.items for following in item.next or ())

    def leaf_groups(self) -> list[Group]:
        """Return the new groups that have no group in them.

        One that is not complete keeps those around it open.
        """
        return [item for item in self.items if isinstance(item, Group) and not item.groups]

    def add_hold(self, hold: Hold, groups: list[Group]) -> None:
        """Keep the job and these groups from completing until the hold is released."""
        self.part.tasks.append(hold.to_task())
        add_held_groups(self.part, hold, groups)

    def check(self) -> None:
        """Raise `NodesRejected` with the lines of the wrong tasks, if no graph can have these items."""
        try:
            self.part.check_structure()
        except NodesRejected as error:
            raise self._with_places(error) from None

    def check_importable(self) -> None:
        """Raise `NodesRejected` for a function that no worker can import: a lambda or an inner function."""
        importable: set[object] = set()
        for item in self.items:
            function = item.function if isinstance(item, Task) else None
            if not isinstance(item, Task) or function is None or function in importable:
                continue
            if "<" in getattr(function, "__qualname__", "") and function_name(function) == item.entrypoint:
                raise _rejected(item, _NOT_IMPORTABLE)
            importable.add(function)

    def _with_places(self, error: NodesRejected) -> NodesRejected:
        try:
            names = self.part.names(1) if error.nodes else {}
        except NodesRejected:
            # Two have the same name.
            names = {}
        blamed = [
            item
            for item in self.items
            if isinstance(item, Task) and names.get(item.id, item.name) in error.nodes
        ]
        places = [f"{item.label} is made at {item.made_at}" for item in blamed[:_MAX_PLACES] if item.made_at]
        return NodesRejected(f"{error} ({', '.join(places)})", error.nodes) if places else error

    def mark_applied(
        self, job_id: int, names: dict[int, str], stored_ids: Mapping[str, str] | None = None
    ) -> None:
        """Set the job and the node of each new item.

        `stored_ids`: what the same graph was stored with before.
        """
        for item in self.items:
            item.job_id, item.node_id = job_id, names[item.id]
            if stored_ids:
                item.id = int(stored_ids.get(item.node_id, item.id))
            if type(item) is Task:
                APPLIED[item.id] = item
        for item, count in zip((*self.items, *self.touched), self.edge_counts, strict=True):
            item.stored = count


def collect(
    items: Any,
    *,
    job_id: int | None = None,
    default_queue: str | None = None,
    follows: bool = False,
    with_applied: bool = False,
    with_code: bool = False,
) -> Collected:
    """Return what has to be added to a job for these items; raise `NodesRejected` about what cannot be.

    `job_id`: the job that they are for; None: a new one. `follows`: also what waits for them. `with_applied`:
    as if nothing were part of a job yet. `with_code`: record the fingerprints of their functions.
    """
    with without_gc():
        collector = _Collector(
            job_id, default_queue, follows=follows, with_applied=with_applied, with_code=with_code
        )
        collector.visit_all(list(items_in(items)))
        return collector.finish()


class _Collector:
    def __init__(
        self,
        job_id: int | None,
        default_queue: str | None,
        *,
        follows: bool,
        with_applied: bool,
        with_code: bool,
    ) -> None:
        self.with_code = with_code
        # What tasks have in common: 100,000 of one function share one definition, and need one look at its
        # source.
        self.common: dict[tuple[Any, ...], tuple[str, dict[str, Any]]] = {}
        self.called: set[tuple[str, ...]] = set()
        self.signatures: dict[tuple[str, Any], Signature | None] = {}
        self.job_id = job_id
        self.with_applied = with_applied
        self.default_queue = default_queue
        self.follows = follows
        self.part = GraphPart()
        self.seen: set[int] = set()
        self.new: list[GraphItem] = []
        self.touched: list[GraphItem] = []
        self.pending: list[GraphItem] = []
        self.parts: dict[int, TaskPart] = {}

    def visit_all(self, items: list[GraphItem]) -> None:
        pending = self.pending = items[::-1]
        seen, new, with_applied = self.seen, self.new, self.with_applied
        while pending:
            item = pending.pop()
            if item.id in seen:
                continue
            seen.add(item.id)
            if item.job_id is not None and not with_applied:
                self._visit_known(item)
                continue
            new.append(item)
            if type(item) is Task and item.group is None and item.next is None:
                self._visit_task(item)
            else:
                self._visit_new(item)

    def _visit_known(self, item: GraphItem) -> None:
        if item.job_id != self.job_id:
            raise NodesRejected(_of_another_job(item, self.job_id))
        assert item.node_id is not None  # noqa: S101 - for mypy; it is set with the job
        self.part.known[item.id] = item.node_id
        if isinstance(item, Group):
            self.pending += item.tasks
            self.pending += item.groups
        if item.previous is not None and len(item.previous) > item.stored:
            self.touched.append(item)
            self._add_edges(item, item.previous[item.stored :])

    def _visit_new(self, item: GraphItem) -> None:
        pending = self.pending
        if item.group is not None:
            pending.append(item.group)
        if item.next is not None:
            # What is known already and waits for this from now on.
            pending += item.next if self.follows else [one for one in item.next if one.job_id is not None]
        if type(item) is Task:
            self._visit_task(item)
        elif isinstance(item, Group):
            pending += item.groups
            pending += item.tasks
            if item.previous is not None:
                self._add_edges(item, item.previous)
        elif isinstance(item, ResultCollector):
            self.parts[item.id] = _collector_part(item)
            pending += [source for source in item.sources if source.id not in self.seen]
            if item.previous is not None:
                self._add_edges(item, item.previous)
        else:
            self._visit_task(item)  # type: ignore[arg-type]

    def _visit_task(self, task: Task) -> None:
        # Options are compared by identity: most tasks of a function share them.
        key = (task.entrypoint, id(task.options))
        stem, definition = self.common.get(key) or self.common.setdefault(
            key, (task.stem, self._define(task))
        )
        group, previous = task.group, task.previous
        part = TaskPart(task.id, stem, definition, task.name, None if group is None else group.id)
        self.parts[task.id] = part
        references = _read_kwargs(task, part)
        call = (task.entrypoint, *task.kwargs)
        if call not in self.called:
            self.called.add(call)
            _check_call(task)
        signature = self._signature(task)
        if signature is not None:
            _check_values(task, part, signature, references)
        if references:
            part.references = [[path, source.id, *_within(source, keys)] for path, source, keys in references]
            previous = [*(previous or ()), *(source for _, source, _ in references)]
        if previous is not None:
            self._add_edges(task, previous)

    def _signature(self, task: Task) -> Signature | None:
        key = (task.entrypoint, task.function)
        if key not in self.signatures:
            self.signatures[key] = typed_signature(task.function, task.entrypoint)
        return self.signatures[key]

    def _define(self, task: Task) -> dict[str, Any]:
        queue = task.options.get("queue", self.default_queue)
        if queue is None:
            raise _rejected(
                task, " has no queue: give it queue=, write @task(queue=), or set DAGMASTER_PYTHON_QUEUE"
            )
        definition = {"handler": task.entrypoint, "queue": queue, **task.options}
        if self.with_code and "code_fingerprint" not in definition and (code := _fingerprint(task)):
            definition["code_fingerprint"] = code
        return definition

    def _add_edges(self, item: GraphItem, previous: list[GraphItem]) -> None:
        dependencies, pending, kind = self.part.dependencies, self.pending, _KINDS[item.kind]
        for source in previous if len(previous) == 1 else dict.fromkeys(previous):
            dependencies.append((_KINDS[source.kind], source.id, kind, item.id))
            if source.id not in self.seen:
                pending.append(source)

    def finish(self) -> Collected:
        # In the order in which they were made: it numbers the tasks without a name.
        self.new.sort(key=attrgetter("id"))
        part = self.part
        part.tasks = [self.parts[item.id] for item in self.new if item.kind == "task"]
        part.groups = [
            GroupPart(item.id, item.name or "", None if item.group is None else item.group.id)
            for item in self.new
            if item.kind == "group"
        ]
        edge_counts = [len(item.previous or ()) for item in (*self.new, *self.touched)]
        return Collected(part, self.new, self.touched, edge_counts)


def _fingerprint(task: Task) -> str:
    return (
        entrypoint_fingerprint(task.entrypoint) if task.function is None else code_fingerprint(task.function)
    )


def _of_another_job(item: GraphItem, job_id: int | None) -> str:
    place = f"{type(item).__name__.lower()} {item.label} ({item.id}) is part of job {item.job_id}"
    if job_id is None:
        return f"{place} already: a new job needs new tasks"
    return f"{place}, not of job {job_id}: tasks of two jobs cannot depend on each other"


def _within(source: GraphItem, keys: tuple[str | int, ...]) -> list[list[str | int]]:
    path = ["results", *keys] if isinstance(source, ResultCollector) else [*keys]
    return [path] if path else []


def _collector_part(item: ResultCollector) -> TaskPart:
    definition: JsonObject = {"type": "fan_in", "sources": [source.id for source in item.sources]}
    return TaskPart(item.id, "collect", definition, item.name, item.group_id)


def _check_call(task: Task) -> None:
    """Raise `NodesRejected` if the function of a task cannot be called with arguments of these names."""
    problem = argument_problem(task.function, task.entrypoint, task.kwargs)
    if problem:
        raise _rejected(task, f": {problem}")


def _check_values(
    task: Task, part: TaskPart, signature: Signature, references: list[_Reference] | None
) -> None:
    """Raise `NodesRejected` if a value in the kwargs of a task is not of its declared type."""
    kwargs: Any = task.kwargs
    if type(kwargs) is not dict or not _UNCHANGED.issuperset(map(type, kwargs.values())):
        # As the worker gets them.
        kwargs = json.loads(part.params or "{}")
    problem = signature.value_problem(kwargs, {str(path[0]) for path, *_ in references} if references else ())
    if problem:
        raise _rejected(task, f": {problem}")


def _rejected(task: Task, problem: str) -> NodesRejected:
    place = task.made_at
    return NodesRejected(f"task {task.label} ({task.entrypoint}){problem}{place and f' (made at {place})'}")


# ── Kwargs ──────────────────────────────────────────────────────────────────────────────────────────────────


def _read_kwargs(task: Task, part: TaskPart) -> list[_Reference] | None:
    """Set the params of a task; return where results of other tasks stand in them."""
    kwargs = task.kwargs
    text = _flat_json(kwargs) if type(kwargs) is dict else None
    if text is not None:
        part.params = text if kwargs else None
        return None
    references: list[_Reference] = []
    try:
        part.params = encode_json(_Kwargs(task, references).read(kwargs))
    except (TypeError, ValueError, RecursionError) as error:
        raise _rejected(task, f": its kwargs are not JSON: {error}") from None
    return references


def _flat_json(kwargs: dict[Any, Any]) -> str | None:
    """Return simple kwargs as JSON; None if they have to be read value by value.

    What JSON would change in silence is read so: a mapping, whose keys may be other than text, many levels,
    and characters that cannot be stored.
    """
    try:
        text = encode_json(kwargs)
        # Raises TypeError if a key is not text.
        "".join(kwargs)
    except (TypeError, ValueError, RecursionError):
        return None
    is_deep = len(text) >= 2 * MAX_DEPTH and text.count("[") > MAX_DEPTH
    return None if is_deep or "\\u" in text or text.find("{", 1) > 0 else text


class _Kwargs:
    """Reads the kwargs of a task: copies lists and mappings, and finds tasks in them."""

    def __init__(self, task: Task, references: list[_Reference]) -> None:
        self.task = task
        self.references = references
        self.path: list[str | int] = []

    def read(self, kwargs: Any) -> Any:
        if not hasattr(kwargs, "keys"):
            raise NodesRejected(
                f"task {self.task.label}: kwargs is {short_repr(kwargs)}, not a mapping of arguments"
            )
        return self._mapping(kwargs)

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SIMPLE:
            return value
        if kind is str:
            return self._text(value)
        if kind is float:
            if not isfinite(value):
                raise self._reject(value, "is not a JSON number")
            return value
        if isinstance(value, GraphItem):
            return self._reference(value)
        if isinstance(value, ResultPart):
            return self._reference(value.source, value.path)
        if len(self.path) > MAX_DEPTH:
            raise self._reject(value, f"is nested more than {MAX_DEPTH} deep, or contains itself")
        # Subclasses are what JSON makes of them, wherever they stand: `_flat_json` also accepts them.
        if isinstance(value, list | tuple):
            return [self._at(place, one) for place, one in enumerate(value)]
        if isinstance(value, Mapping):
            return self._mapping(value)
        return self._value(self._form(value))

    def _form(self, value: Any) -> Any:
        try:
            return str.__str__(value) if isinstance(value, str) else json_form(value)
        except NoJsonForm as reason:
            raise self._reject(value, str(reason)) from None

    def _at(self, key: str | int, value: Any) -> Any:
        self.path.append(key)
        read = self._value(value)
        self.path.pop()
        return read

    def _mapping(self, value: Any) -> dict[str, Any]:
        for key in value:
            if not isinstance(key, str):
                raise self._reject(value, f"has the key {short_repr(key)}, and keys of JSON are text")
            self._text(key)
        return {str.__str__(key): self._at(str.__str__(key), one) for key, one in value.items()}

    def _text(self, value: str) -> str:
        if "\0" in value:
            raise self._reject(value, "has a NUL character, which cannot be stored")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise self._reject(value, "has half of a surrogate pair, which cannot be stored") from None
        return value

    def _reference(self, value: GraphItem, keys: tuple[str | int, ...] = ()) -> None:
        if isinstance(value, Group):
            raise self._reject(
                value, "is a group, which has no result: name a task in it, or collect their results"
            )
        if value is self.task:
            raise self._reject(value, "is the task itself")
        self.references.append((list(self.path), value, keys))

    def _reject(self, value: Any, reason: str) -> NodesRejected:
        place = "kwargs" + "".join(f"[{key!r}]" for key in self.path)
        return _rejected(self.task, f": {place} {reason}: {short_repr(value)}")
