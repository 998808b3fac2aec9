"""The scopes of expressions: references of a node become keys of values to load, and the values a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.engine.expressions.secret_parts import secret_names, typed_inputs
from dagmaster.engine.model import FanOut, Job, Node
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.tenants import DEFAULT_TENANT, may_use_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagmaster.engine.expressions.templates import Template
    from dagmaster.json_types import JsonObject, JsonValue

    Ref = tuple[str | int, ...]


class ExpressionScopes:
    """The scopes of one job. The part shared by all children of a fan-out is built once."""

    def __init__(
        self,
        job: Job,
        inputs: Mapping[str, JsonValue],
        env: Mapping[str, str],
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        self.job, self.tenant = job, tenant
        self.secret_inputs = secret_names(job.graph.inputs)
        self.inputs = typed_inputs(self.secret_inputs, inputs)
        self.env = env
        self.outputs: dict[str, Any] = {}
        """The loaded outputs of nodes."""
        self.loaded: dict[ValueKey, Any] = {}
        """The loaded values of fan-outs."""
        self._shared: dict[tuple[str | None, tuple[Ref, ...]], JsonObject] = {}

    def foreign_secret(self, template: Template) -> str | None:
        """Return the name of a secret that the tenant of the job may not use; None without one."""
        if self.tenant == DEFAULT_TENANT:
            return None
        names = (str(use.keys[1]) for _, use in template.uses if use.keys[0] == "secrets")
        return next((name for name in names if not may_use_secret(self.tenant, name)), None)

    @staticmethod
    def add_needed(node: Node | None, refs: Iterable[Ref], outputs: set[str], keys: set[ValueKey]) -> None:
        """Add the nodes whose output these references need, and the keys of other values."""
        for ref in refs:
            root = ref[0]
            if root == "nodes":
                if ref[2] == "output":
                    outputs.add(ref[1])  # type: ignore[arg-type]
                elif ref[2] == "outputs":
                    keys.add(ValueKey(ValueKind.OUTPUTS, str(ref[1])))
            elif node is None:
                continue
            elif root == "upstream" and ref[1] == "output":
                if node.top.upstream is not None:
                    outputs.add(node.top.upstream)
            elif root in ("item", "outer") and ref[-1] == "item":
                child = _ancestor(node, len(ref) - 1)
                if child.parent is not None:
                    keys.add(ValueKey(ValueKind.ITEMS, child.parent.id))

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
        self.outputs.clear()
        self.loaded.clear()
        self._shared.clear()

    def _share(self, top: Node | None, refs: tuple[Ref, ...]) -> JsonObject:
        scope: dict[str, Any] = {"inputs": self.inputs, "env": self.env, "job": {"id": self.job.id}}
        nodes: dict[str, dict[str, Any]] = {}
        states, outputs = self.job.nodes, self.outputs
        for ref in refs:
            if ref[0] == "nodes":
                name: str = ref[1]  # type: ignore[assignment]
                into = nodes.get(name)
                if into is None:
                    into = nodes[name] = {}
                if ref[2] != "output":
                    self._put(into, states[name], str(ref[2]))
                # Without a call: a node that collects 100,000 results refers to each.
                elif name in outputs and states[name].status is NodeStatus.COMPLETED:
                    into["output"] = outputs[name]
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
        elif node.status is not NodeStatus.COMPLETED:
            return
        elif field == "output":
            if node.id in self.outputs:
                into[field] = self.outputs[node.id]
        elif (key := ValueKey(ValueKind.OUTPUTS, node.id)) in self.loaded:
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
