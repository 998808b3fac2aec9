"""Edit the nodes of a workflow file as text: add, change, connect, rename and remove them.

The text is changed where the node is, and nowhere else. It is read again after each step, and must contain
what the edit says, else the edit is rejected. An invalid text raises `WorkflowInvalid`; problems of a
workflow do not matter.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.authoring.schema import ID_PATTERN
from dagmaster.authoring.yaml.splices import NotEditable, YamlText
from dagmaster.authoring.yaml.writer import write_inline
from dagmaster.errors import WorkflowEditRejected, WorkflowInvalid
from dagmaster.errors.source_map import truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.errors.source_map import Path
    from dagmaster.json_types import JsonObject, JsonValue

_ID: Final = re.compile(ID_PATTERN)
MAX_ID: Final = 64
_CONDITIONS: Final = ("condition", "condition_field")


def add_node(text: str, node_id: str, node: JsonObject) -> str:
    edit = _Edit(text)
    edit.check_new(node_id)
    if edit.has_nodes:
        edit.set_value(("nodes", node_id), node)
    else:
        edit.set_value(("nodes",), {node_id: node})
    return edit.finish()


def set_version(text: str, version: int) -> str:
    edit = _Edit(text)
    edit.set_value(("version",), version)
    return edit.finish()


def outline_nodes(text: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the nodes as written, and the edges between them: source (perhaps `node.branch`) and target."""
    edit = _Edit(text)
    edges = dict.fromkeys((reference.source, reference.target) for reference in edit.references())
    return edit.nodes, list(edges)


def set_field(text: str, node_id: str, key: str, value: JsonValue) -> str:
    """Set a key of a node; None removes it."""
    edit = _Edit(text)
    node = edit.node(node_id)
    if value is not None:
        edit.set_value(("nodes", node_id, key), value)
    elif key in node:
        edit.remove(("nodes", node_id, key))
    return edit.finish()


def remove_node(text: str, node_id: str) -> str:
    """Remove a node, and the edges to and from it. Expressions that use it stay: they are problems then."""
    edit = _Edit(text)
    edit.node(node_id)
    if len(edit.nodes) == 1:
        raise WorkflowEditRejected(
            f"{node_id} is the only node, and a workflow has at least one: add another one first"
        )
    edit.remove_references(lambda reference: reference.node_id == node_id and reference.owner != node_id)
    edit.remove(("nodes", node_id))
    return edit.finish()


def rename_node(text: str, node_id: str, new_id: str) -> str:
    edit = _Edit(text)
    edit.node(node_id)
    if new_id == node_id:
        return text
    edit.check_new(new_id)
    edit.rename(node_id, new_id)
    return edit.finish()


def connect_nodes(text: str, source: str, target_id: str) -> str:
    """Let a node come after another one, or after a branch: `node.branch`.

    It is written as its other edges are.

    A node with `depends_on` gets it there, one that others lead to by `next` at the source, and else
    `depends_on`.
    """
    edit = _Edit(text)
    source_id, _, branch = source.partition(".")
    edit.node(source_id)
    target = edit.node(target_id)
    if source_id == target_id:
        raise WorkflowEditRejected(f"{target_id} cannot come after itself")
    references = [reference for reference in edit.references() if reference.target == target_id]
    if any(reference.source == source for reference in references):
        return text
    if target.get("depends_on") is None and any(reference.key == "next" for reference in references):
        edit.add_name(edit.path_of_next(source_id, branch), target_id)
    else:
        edit.add_name(edit.path_of_depends_on(target_id), source)
    return edit.finish()


def disconnect_nodes(text: str, source: str, target_id: str) -> str:
    """Remove the edges from a node, or from its branch if one is named, to another one."""
    edit = _Edit(text)
    source_id, _, branch = source.partition(".")
    edit.node(source_id)
    edit.node(target_id)
    edit.remove_references(
        lambda reference: (
            reference.target == target_id
            and (reference.source == source if branch else reference.source.partition(".")[0] == source_id)
        )
    )
    return edit.finish()


class _Reference(NamedTuple):
    """A place that names another node: `depends_on` of the target, or `next` or `group` of the source."""

    path: Path
    owner: str
    key: str
    name: str
    branch: str = ""

    @property
    def node_id(self) -> str:
        return self.name.partition(".")[0]

    @property
    def source(self) -> str:
        """Return the node, or its branch, that the edge leaves."""
        if self.key == "depends_on":
            return self.name
        return f"{self.owner}.{self.branch}" if self.branch else self.owner

    @property
    def target(self) -> str:
        return self.owner if self.key == "depends_on" else self.name


class _Edit:
    """A text and what it shall contain: each step changes both."""

    def __init__(self, text: str) -> None:
        self._source = YamlText(text)
        if not isinstance(self._source.data, dict):
            raise WorkflowEditRejected(
                "the file is not a mapping: write `name: my_workflow` and below it `nodes:`"
            )
        self._data: dict[str, Any] = copy.deepcopy(self._source.data)
        if not isinstance(self._data.get("nodes") or {}, dict):
            raise WorkflowEditRejected(
                "`nodes` is not a mapping: write each node as `id:` and its keys below it"
            )

    def finish(self) -> str:
        """Return the text; raise `WorkflowEditRejected` if it does not contain what it should."""
        if self._source.data != self._data:
            raise _not_editable()
        return str(self._source)

    @property
    def has_nodes(self) -> bool:
        return "nodes" in self._data

    @property
    def nodes(self) -> dict[str, Any]:
        return self._data.get("nodes") or {}

    def node(self, node_id: str) -> dict[str, Any]:
        """Return a node; raise `WorkflowEditRejected` if no node has this name."""
        if node_id not in self.nodes:
            raise WorkflowEditRejected(f"there is no node {truncate(node_id)!r} in the file")
        node = self.nodes[node_id]
        return node if isinstance(node, dict) else {}

    def check_new(self, node_id: str) -> None:
        """Raise `WorkflowEditRejected` if a node cannot have this name."""
        if not _ID.match(node_id) or len(node_id) > MAX_ID:
            raise WorkflowEditRejected(
                f"{truncate(node_id)!r} is no name of a node: up to {MAX_ID} letters, digits and _, no digit"
                " first"
            )
        if node_id in self.nodes:
            raise WorkflowEditRejected(f"there is a node {node_id!r} already: choose another name")

    # ── Steps ──

    def set_value(self, path: Path, value: JsonValue) -> None:
        self._step(lambda source: source.set_value(path, value))
        *outer, key = path
        parent: Any = self._data
        for part in outer:
            if parent[part] is None:
                parent[part] = {}
            parent = parent[part]
        parent[key] = value

    def remove(self, *paths: Path) -> None:
        """Remove keys and items of lists at once."""
        self._step(lambda source: source.remove_all(paths))
        chosen: dict[Path, set[str | int]] = {}
        for path in paths:
            chosen.setdefault(path[:-1], set()).add(path[-1])
        for outer, keys in chosen.items():
            container = self._value(outer)
            if isinstance(container, list):
                container[:] = [item for index, item in enumerate(container) if index not in keys]
            else:
                for key in keys:
                    del container[key]

    def add_name(self, path: Path, name: str) -> None:
        """Add a name to a list of names, which may be one name, or missing."""
        names = self._value(path)
        if isinstance(names, list) and names:
            self._step(lambda source: source.append(path, name))
            names.append(name)
        else:
            self.set_value(path, [names, name] if isinstance(names, str) else name)

    def remove_references(self, is_chosen: Callable[[_Reference], bool]) -> None:
        """Remove the places that name a node, with the lists and groups that would be empty then."""
        references = [reference for reference in self.references() if is_chosen(reference)]
        left: dict[Path, int] = {}
        removed: dict[Path, None] = {}
        for reference in references:
            path = reference.path
            removed[path] = None
            while path[-1] != reference.key:
                path = path[:-1]
                left[path] = left.get(path, len(self._value(path))) - 1
                if left[path]:
                    break
                removed[path] = None
        # What is within a list that is removed goes with it.
        self.remove(*(path for path in removed if path[:-1] not in removed))

    def rename(self, node_id: str, new_id: str) -> None:
        named = {
            reference.path: f"{new_id}{reference.name[len(node_id) :]}"
            for reference in self.references()
            if reference.node_id == node_id
        }
        expression = re.compile(rf"(?<![\w.])nodes\.{re.escape(node_id)}(?!\w)")
        names: list[tuple[Any, str]] = []
        texts: list[Any] = []
        for path, scalar, is_key in self._source.scalars():
            is_quoted = scalar.style == '"'
            if is_key and path == ("nodes", node_id):
                names.append((scalar, write_inline(new_id, quoted=is_quoted)))
            elif not is_key and path in named:
                names.append((scalar, write_inline(named[path], quoted=is_quoted)))
            elif not is_key and _is_expression(path, scalar.value):
                texts.append(scalar)
        self._step(lambda source: source.replace_scalars(names, texts, expression, f"nodes.{new_id}"))
        for path, name in named.items():
            self._value(path[:-1])[path[-1]] = name
        self._data["nodes"] = {new_id if key == node_id else key: node for key, node in self.nodes.items()}
        self._data = _substitute(self._data, expression, f"nodes.{new_id}")

    def _step(self, change: Callable[[YamlText], YamlText]) -> None:
        try:
            self._source = change(self._source)
        except (NotEditable, WorkflowInvalid, LookupError, StopIteration) as error:
            raise _not_editable() from error

    # ── Lookups ──

    def _value(self, path: Path) -> Any:
        """Return the value at a path; None if the last key is missing."""
        value: Any = self._data
        for part in path:
            value = value.get(part) if isinstance(value, dict) else value[part]
        return value

    def references(self) -> Iterator[_Reference]:
        """Yield every place that names a node as an edge."""
        for owner, node in self.nodes.items():
            if not isinstance(node, dict):
                continue
            path: Path = ("nodes", owner)
            yield from (
                _Reference(at, owner, "depends_on", name)
                for at, name in _names(node.get("depends_on"), (*path, "depends_on"))
            )
            yield from (
                _Reference(at, owner, "next", name) for at, name in _names(node.get("next"), (*path, "next"))
            )
            if isinstance(node.get("group"), str):
                yield _Reference((*path, "group"), owner, "group", node["group"])
            for index, branch in enumerate(_branches(node)):
                names = _names(branch.get("next"), (*path, "branches", index, "next"))
                yield from (
                    _Reference(at, owner, "next", name, _branch_name(branch, index)) for at, name in names
                )

    def path_of_next(self, node_id: str, branch: str) -> Path:
        """Return where the targets of a node, or of its branch, are."""
        branches = _branches(self.node(node_id))
        if not branches:
            return ("nodes", node_id, "next")
        names = [_branch_name(one, index) for index, one in enumerate(branches)]
        if branch not in names:
            raise WorkflowEditRejected(
                f"{node_id} chooses a branch: connect one of {', '.join(names)}, as {node_id}.{names[0]}"
            )
        return ("nodes", node_id, "branches", names.index(branch), "next")

    def path_of_depends_on(self, node_id: str) -> Path:
        """Return where the nodes are that a node comes after; raise if that is more than a list of names."""
        path: Path = ("nodes", node_id, "depends_on")
        group = self._value(path)
        if not isinstance(group, dict):
            return path
        if list(group) != ["all_of"]:
            raise WorkflowEditRejected(
                f"{node_id} comes after any of several nodes: edit its `depends_on` in the text"
            )
        return (*path, "all_of")


def _names(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the names in a list, or in groups inside of each other."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _names(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _names(item, (*path, key))


def _branches(node: dict[str, Any]) -> list[dict[str, Any]]:
    branches = node.get("branches")
    return (
        branches
        if isinstance(branches, list) and all(isinstance(branch, dict) for branch in branches)
        else []
    )


def _branch_name(branch: dict[str, Any], index: int) -> str:
    return str(branch.get("name") or ("default" if branch.get("default") else f"branch_{index + 1}"))


def _is_expression(path: Path, text: str) -> bool:
    return "{{" in text or path[-1] in _CONDITIONS


def _substitute(value: Any, expression: re.Pattern[str], replacement: str, path: Path = ()) -> Any:
    if isinstance(value, dict):
        return {key: _substitute(item, expression, replacement, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _substitute(item, expression, replacement, (*path, index)) for index, item in enumerate(value)
        ]
    return (
        expression.sub(replacement, value)
        if isinstance(value, str) and _is_expression(path or ("",), value)
        else value
    )


def _not_editable() -> WorkflowEditRejected:
    return WorkflowEditRejected(
        "the file is written in a way in which this cannot be edited here: edit the text"
    )
