"""Write the nodes of a builder as a source document, whose problems point at Python lines."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.python.futures import (
    MAX_DEPTH,
    Future,
    Gate,
    Scope,
    escape,
    futures_in,
    literal,
    origin_of,
    write_template,
)
from dagmaster.authoring.python.graph_nodes import Branch, Conditional, Node, NodeGroup
from dagmaster.authoring.python.places import Place, reject
from dagmaster.authoring.source_document import Document, json_problem
from dagmaster.engine.expressions.parser import MAX_LENGTH
from dagmaster.errors.source_map import Source, truncate
from dagmaster.sdk.json_forms import NoJsonForm, json_form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dagmaster.authoring.python.futures import Requirement
    from dagmaster.errors import Problem
    from dagmaster.errors.source_map import Path

_TEMPLATED: Final = frozenset(
    {"params", "source", "inputs", "message", "seconds", "until", "condition_field"}
)
"""The keys of nodes whose values may have expressions. All others are fixed when the workflow is written."""

_MAX_LABEL: Final = 90
_HINTS: Final = {
    "write `| default(…)` behind it": "write .default(…) behind the future",
    "give it `required: true` or a default, or write `| default(…)`": (
        "give the parameter a default, or write .default(…) behind it"
    ),
    "declare it under inputs:": "make it a parameter of the workflow function",
    "write the mapping as one expression: {{ {'key': value} }}": (
        "names of arguments and results have no {{: pass or return a mapping that has the key as one value"
    ),
}
"""Remedies in the terms of Python authors."""


class PythonDocument(Document):
    """A document that was written in Python. A problem is at the call that made the node."""

    __slots__ = ("_part_places", "_place", "_places")

    is_python = True

    def __init__(
        self,
        data: dict[str, Any],
        place: Place,
        places: Mapping[str, Place],
        part_places: Mapping[str, Callable[[str], Place]] | None = None,
    ) -> None:
        super().__init__(data, Source("", place.file), None)
        self._place = place
        self._places = places
        self._part_places = part_places or {}

    def problem(
        self,
        message: str,
        path: Path = (),
        *,
        at_key: bool = False,  # noqa: ARG002 - a call has one place
        hint: str = "",
        offset: int = 0,  # noqa: ARG002 - as above
        severity: str = "error",
    ) -> Problem:
        """Return a problem at the call of the node, a parameter, what is returned, or the function."""
        return self._find_place(path).problem(
            message, hint=_HINTS.get(hint, hint), path=path, severity=severity
        )

    def _find_place(self, path: Path) -> Place:
        if len(path) > 1 and path[0] == "nodes":
            return self._places.get(str(path[1]), self._place)
        if len(path) > 1 and path[0] in self._part_places:
            return self._part_places[str(path[0])](str(path[1]))
        return self._place


class DocumentWriter:
    """Writes the nodes of one workflow."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = list(nodes)
        self.ids = assign_ids(self.nodes)
        self._nodes_by_id = {node_id: node for node, node_id in self.ids.items()}
        self._members: dict[Node, list[Node]] = {}
        for node in self.nodes:
            if node.group is not None:
                self._members.setdefault(node.group, []).append(node)
        self._predecessors: dict[Any, list[Any]] = {}
        self._edges: list[tuple[Requirement, Node]] = []

    def write_nodes(self) -> dict[str, Any]:
        nodes = {}
        for node in self.nodes:
            with _bounded(f"what {node.label!r} waits for", node.place):
                nodes[self.ids[node]] = self._node(node)
        self._draw_edges(nodes)
        return nodes

    def places(self) -> dict[str, Place]:
        return {node_id: node.place for node, node_id in self.ids.items()}

    def value(self, value: Any, subject: str, *, nesting: int = 0, place: Place | None = None) -> Any:
        """Write a value: futures as expressions, text as it is, everything else as JSON."""
        with _bounded(subject, place):
            return self._value(value, subject, Scope(self.ids, nesting, place), 0)

    def _value(self, value: Any, subject: str, scope: Scope, depth: int) -> Any:
        if isinstance(value, Future):
            return write_template(value, scope)
        if value is None or isinstance(value, str) or type(value) in (bool, int, float):
            return _scalar(value, subject, scope.place)
        if depth > MAX_DEPTH:
            message = f"{truncate(subject)} is nested more than {MAX_DEPTH} deep, or contains itself"
            raise reject(message, place=scope.place)
        if isinstance(value, list | tuple):
            return [
                self._value(item, f"{subject}[{index}]", scope, depth + 1) for index, item in enumerate(value)
            ]
        if isinstance(value, Mapping):
            written = {
                _key(key, subject, scope.place): self._value(item, f"{subject}.{key}", scope, depth + 1)
                for key, item in value.items()
            }
            # A key of a mapping has no escape; one in an expression needs none. The outermost are names.
            has_braces = depth > 0 and any("{{" in key for key in written)
            return self._expression(value, subject, scope) if has_braces else written
        return self._value(_to_json(value, subject, scope.place), subject, scope, depth)

    def _expression(self, value: Mapping[str, Any], subject: str, scope: Scope) -> str:
        text = literal(value, scope)
        if len(text) > MAX_LENGTH:
            message = f"{truncate(subject)} has a key with {{{{, and is longer than {MAX_LENGTH} characters"
            raise reject(message, "make the mapping in a @task", place=scope.place)
        return f"{{{{ {text} }}}}"

    def _node(self, node: Node) -> dict[str, Any]:
        written: dict[str, Any] = {} if node.kind == "task" else {"type": node.kind}
        for key, value in node.keys.items():
            written[key] = self._key(node, key, value)
        gate = self._depends_on(node)
        if gate is not None:
            written["depends_on"] = gate
        if node.group is not None:
            written["group"] = self._spell(node.group, node)
        return written

    def _key(self, node: Node, key: str, value: Any) -> Any:
        if isinstance(value, Node):
            return self._node(value)
        if key in _TEMPLATED:
            return self.value(value, f"{key} of {node.label!r}", nesting=node.level, place=node.place)
        if any(True for _ in futures_in(value)):
            message = f"{key} of {node.label!r} cannot be a future: it is fixed when the workflow is written"
            raise reject(message, "write the value, or make it a param of the task", place=node.place)
        return value

    # ── Dependencies ──

    def _depends_on(self, node: Node) -> Any:
        """Return the gate of a node: what its author wrote, its branch, and the sources of its values."""
        if node.level:
            return None
        gates, requirements = self._written(node), list(_requirements(node))
        joins = [requirement for requirement in requirements if _is_join(requirement)]
        if joins or any(map(_is_join, gates)):
            self._edges += [(leaf, node) for gate in (*gates, *joins) for leaf in self._ends(gate, node)]
            return None
        waits = [*gates, *self._missing(node, gates, requirements)]
        spelled = [self._spell(gate, node) for one in waits for gate in _flattened(one, node.place)]
        unique = list({json.dumps(gate): gate for gate in spelled}.values())
        return unique[0] if len(unique) == 1 else unique or None

    def _missing(
        self, node: Node, gates: list[Requirement], requirements: list[Requirement]
    ) -> Iterator[Requirement]:
        """Yield the requirements that are not upstream already: a value that may be missing has a default."""
        inherited = [gate for group in node.groups() for gate in self._written(group)]
        known = {self._owner(leaf) for gate in (*gates, *inherited) for leaf in _leaves(gate)}
        is_complete = not known
        for requirement in requirements:
            own = {self._owner(leaf) for leaf in _leaves(requirement)}
            if not is_complete and not own <= known:
                # Only now: it walks the graph.
                known, is_complete = self._upstream(known), True
            if not own <= known:
                yield requirement

    def _written(self, node: Node) -> list[Requirement]:
        """Return what a node waits for whatever its values are: the author's dependencies, and its branch."""
        dependencies = [requirement_of(one, node.place) for one in (*_listed(node.depends_on), *node.after)]
        gates = [gate for gate in dependencies if gate is not None]
        if node.branch is not None and all(group.branch is not node.branch for group in node.groups()):
            sources = [*gates, *_requirements(node)]
            if not _is_inside({leaf for gate in sources for leaf in _leaves(gate)}, node.branch):
                gates.append(node.branch)
        return gates

    def _upstream(self, nodes: Iterable[Any]) -> set[Any]:
        """Return these nodes and all before them."""
        seen: set[Any] = set()
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node not in seen:
                seen.add(node)
                pending += self._before(node)
        return seen

    def _before(self, node: Any) -> list[Any]:
        if node not in self._predecessors:
            self._predecessors[node] = list(self._predecessors_of(node)) if isinstance(node, Node) else []
        return self._predecessors[node]

    def _predecessors_of(self, node: Node) -> Iterator[Any]:
        yield from self._members.get(node, ())
        gates = [gate for one in (node, *node.groups()) for gate in self._written(one)]
        for gate in (*gates, *_requirements(node)):
            yield from map(self._owner, _leaves(gate))

    def _owner(self, leaf: Requirement) -> Any:
        """Return the node of a leaf; the id of one that is not of this workflow."""
        if isinstance(leaf, str):
            node_id = leaf.partition(".")[0]
            return self._nodes_by_id.get(node_id, node_id)
        return leaf.node if isinstance(leaf, Branch) else leaf

    def _ends(self, gate: Requirement, node: Node) -> Iterator[Requirement]:
        """Yield the sources of the edges to a node that joins."""
        if isinstance(gate, Gate) and gate.kind == "any_of":
            hint = "let a separate node wait for the any_of, and join that"
            raise reject(f"{node.label!r} waits for a join and for an any_of", hint, place=node.place)
        yield from _leaves(gate)

    def _draw_edges(self, nodes: dict[str, Any]) -> None:
        for source, target in self._edges:
            node_id, _, branch = str(self._spell(source, target)).partition(".")
            part = nodes.get(node_id, {})
            if branch:
                part = next((one for one in part.get("branches", ()) if one["name"] == branch), {})
            targets = list(dict.fromkeys((*_listed(part.get("next")), self.ids[target])))
            part["next"] = targets[0] if len(targets) == 1 else targets

    def _spell(self, requirement: Requirement, node: Node) -> Any:
        if isinstance(requirement, str):
            return requirement
        if isinstance(requirement, Gate):
            if _is_join(requirement):
                hint = "let a separate node join them, and wait for that"
                raise reject(
                    f"{node.label!r} waits for a join inside of another gate", hint, place=node.place
                )
            members = [requirement_of(member, node.place) for member in requirement.members]
            return {requirement.kind: [self._spell(member, node) for member in members if member is not None]}
        owner = requirement.node if isinstance(requirement, Branch) else requirement
        if owner not in self.ids:
            message = f"{node.label!r} depends on {owner.label!r}, which belongs to another workflow"
            raise reject(message, place=node.place)
        return f"{self.ids[owner]}.{requirement.name}" if isinstance(requirement, Branch) else self.ids[owner]


def assign_ids(nodes: list[Node]) -> dict[Node, str]:
    """Return the id of each node: its name, which is unique, or its label and, if that is taken, a number."""
    ids: dict[Node, str] = {}
    owners: dict[str, Node] = {}
    for node in nodes:
        if node.name is not None:
            if node.name in owners:
                first = owners[node.name].place
                message = f"two nodes have the name {node.name!r}: the other is at {first.file}:{first.line}"
                raise reject(
                    message,
                    "a name= is unique in a workflow; without it the id gets a number",
                    place=node.place,
                )
            owners[node.name] = node
            ids[node] = node.name
    numbers: dict[str, int] = {}
    for node in nodes:
        if node.name is None:
            label = (
                re.sub(r"__+", "_", re.sub(r"[^A-Za-z0-9_]", "_", node.label))[:_MAX_LABEL].strip("_")
                or node.kind
            )
            label = label if re.match("[A-Za-z_]", label) else f"_{label}"
            node_id, number = label, numbers.get(label, 1)
            while node_id in owners:
                number += 1
                node_id = f"{label}_{number}"
            numbers[label] = number
            owners[node_id] = node
            ids[node] = node_id
    return {node: ids[node] for node in nodes}


def requirement_of(dependency: Any, place: Place) -> Requirement | None:
    if isinstance(dependency, Future):
        return origin_of(dependency).requirement()
    if isinstance(dependency, Branch | Gate | str):
        return dependency
    if isinstance(dependency, Conditional):
        return requirement_of(dependency.output, place)
    if isinstance(dependency, NodeGroup):
        return dependency.node
    kind = type(dependency).__name__
    message = f"a dependency is a future, a group or a branch of a conditional, not a value of type {kind}"
    raise reject(message, "pass the future that a call returned", place=place)


def _flattened(requirement: Requirement, place: Place) -> Iterator[Requirement]:
    """Yield the members of an `all_of`: a list of dependencies means the same."""
    if isinstance(requirement, Gate) and requirement.kind == "all_of":
        for member in requirement.members:
            inner = requirement_of(member, place)
            if inner is not None:
                yield from _flattened(inner, place)
    else:
        yield requirement


def _is_join(requirement: Requirement) -> bool:
    return isinstance(requirement, Gate) and requirement.kind == "join"


def _is_inside(leaves: set[Requirement], branch: Branch) -> bool:
    """Return whether a dependency is in the branch: then a node that waits for it is skipped with it."""
    owners = [leaf.node if isinstance(leaf, Branch) else leaf for leaf in leaves if leaf is not branch]
    return branch in leaves or any(isinstance(owner, Node) and branch.encloses(owner) for owner in owners)


def _listed(dependencies: Any) -> list[Any]:
    if dependencies is None:
        return []
    return list(dependencies) if isinstance(dependencies, list | tuple) else [dependencies]


def _requirements(node: Node) -> Iterator[Requirement]:
    """Yield what the values of a node, and of the tasks inside it, come from."""
    for key, value in node.keys.items():
        if isinstance(value, Node):
            yield from _requirements(value)
        elif key in _TEMPLATED:
            for future in futures_in(value):
                requirement = origin_of(future).requirement()
                if requirement is not None:
                    yield requirement


def _leaves(requirement: Requirement | None) -> Iterator[Requirement]:
    if isinstance(requirement, Gate):
        for member in requirement.members:
            yield from _leaves(requirement_of(member, Place("", 0)))
    elif requirement is not None:
        yield requirement


@contextlib.contextmanager
def _bounded(subject: str, place: Place | None) -> Iterator[None]:
    """Reject what is nested deeper than Python's stack: gates and futures in one another."""
    try:
        yield
    except RecursionError:
        raise reject(f"{truncate(subject)} is nested too deep", place=place) from None


def _key(key: Any, subject: str, place: Place | None) -> str:
    if not isinstance(key, str):
        raise reject(f"{subject} has a key of type {type(key).__name__}, and keys are text", place=place)
    return key


def _scalar(value: Any, subject: str, place: Place | None) -> Any:
    plain = str.__str__(value) if isinstance(value, str) else value
    problem = json_problem(plain, ())
    if problem:
        raise reject(f"{subject}: {problem}", place=place)
    return escape(plain) if isinstance(plain, str) else plain


def _to_json(value: Any, subject: str, place: Place | None) -> Any:
    """Convert a model, a date, an enum … as the params of tasks read them."""
    try:
        return json_form(value)
    except NoJsonForm as reason:
        raise reject(f"{subject} {reason}", place=place) from None
