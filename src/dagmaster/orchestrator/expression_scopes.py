"""The scopes of expressions: references of a node become keys of values to load, and the values a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.model import FanOut, Job, Node
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.node_values import ValueKey, ValueKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dagmaster.json_types import JsonObject, JsonValue

    Ref = tuple[str | int, ...]


# Looked up: a node that collects 100,000 results refers to each.
_KINDS: Final[dict[str | int, ValueKind]] = {kind.value: kind for kind in (ValueKind.OUTPUT, ValueKind.OUTPUTS)}


class ExpressionScopes:
    """The scopes of one job. The part shared by all children of a fan-out is built once."""

    def __init__(self, job: Job, inputs: Mapping[str, JsonValue], env: Mapping[str, str]) -> None:
        self.job = job
        self.inputs = inputs
        self.env = env
        self.loaded: dict[ValueKey, Any] = {}
        self._shared: dict[tuple[str | None, tuple[Ref, ...]], JsonObject] = {}

    def missing_keys(self, node: Node | None, refs: Iterable[Ref]) -> Iterator[ValueKey]:
        """Yield the keys of the values that these references need and that are not loaded yet."""
        loaded = self.loaded
        for ref in refs:
            key: ValueKey | None
            if ref[0] == "nodes" and ref[2] == "output":
                # Without a call: a node that collects 100,000 results refers to each.
                key = ValueKey(ValueKind.OUTPUT, str(ref[1]))
            else:
                key = self._key(node, ref)
            if key is not None and key not in loaded:
                yield key

    def _key(self, node: Node | None, ref: Ref) -> ValueKey | None:
        root = ref[0]
        if root == "nodes":
            kind = _KINDS.get(ref[2])
            return None if kind is None else ValueKey(kind, str(ref[1]))
        if root == "upstream" and ref[1] == "output" and node is not None:
            source = node.top.upstream
            return None if source is None else ValueKey(ValueKind.OUTPUT, source)
        if root in ("item", "outer") and ref[-1] == "item" and node is not None:
            child = _ancestor(node, len(ref) - 1)
            return None if child.parent is None else ValueKey(ValueKind.ITEMS, child.parent.id)
        return None

    def scope(self, node: Node | None, refs: tuple[Ref, ...]) -> JsonObject:
        """Return the scope of these references. Missing values are left out: the expression reports them."""
        top = None if node is None else node.top
        key = (None if top is None else top.id, refs)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._share(top, refs)
        if node is None or node.parent is None:
            return shared
        return {**shared, **self._of_child(node, refs)}

    def clear(self) -> None:
        """Drop every value: they are valid for one turn."""
        self.loaded.clear()
        self._shared.clear()

    def _share(self, top: Node | None, refs: tuple[Ref, ...]) -> JsonObject:
        scope: dict[str, Any] = {"inputs": self.inputs, "env": self.env, "job": {"id": self.job.id}}
        nodes: dict[str, JsonObject] = {}
        states, loaded = self.job.nodes, self.loaded
        for ref in refs:
            if ref[0] == "nodes" and ref[2] == "output":
                name = str(ref[1])
                key, into = ValueKey(ValueKind.OUTPUT, name), nodes.setdefault(name, {})
                if key in loaded and states[name].status is NodeStatus.COMPLETED:
                    into["output"] = loaded[key]
            elif ref[0] == "nodes":
                name, field = str(ref[1]), str(ref[2])
                self._put(nodes.setdefault(name, {}), self.job.nodes[name], field)
            elif ref[0] == "upstream" and top is not None and top.upstream is not None:
                self._put(scope.setdefault("upstream", {}), self.job.nodes[top.upstream], str(ref[1]))
        if nodes:
            scope["nodes"] = nodes
        return scope

    def _put(self, into: dict[str, Any], node: Node, field: str) -> None:
        if field == "status":
            into["status"] = node.status.value
        elif field == "error":
            into["error"] = node.error
        elif field == "failed":
            into["failed"] = failed_children(node)
        elif node.status is NodeStatus.COMPLETED:
            key = ValueKey(_KINDS[field], node.id)
            if key in self.loaded:
                into[field] = self.loaded[key]

    def _of_child(self, node: Node, refs: tuple[Ref, ...]) -> JsonObject:
        scope: dict[str, Any] = {}
        for ref in refs:
            if ref[0] not in ("item", "index", "outer"):
                continue
            child = _ancestor(node, len(ref) - 1)
            if child.parent is None:
                continue
            into = scope
            for step in ref[:-1]:
                into = into.setdefault(str(step), {})
            if ref[-1] == "index":
                into["index"] = child.index
            else:
                into["item"] = self.loaded[ValueKey(ValueKind.ITEMS, child.parent.id)][child.index]
        return scope


def failed_children(node: Node) -> list[JsonObject]:
    """Return `nodes.fan.failed`: the failed children in index order."""
    if not isinstance(node, FanOut):
        return []
    children = node.children[: node.expanded]
    return [{"index": c.index, "error": c.error} for c in children if c.status is NodeStatus.FAILED]


def _ancestor(node: Node, levels: int) -> Node:
    for _ in range(levels):
        if node.parent is None:
            break
        node = node.parent
    return node
