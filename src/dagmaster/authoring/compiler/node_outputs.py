"""The keys that the output of each type of node has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.authoring import schema
from dagmaster.authoring.node_kinds import NODE_KINDS
from dagmaster.engine.graph import Kind

if TYPE_CHECKING:
    from dagmaster.sdk.handler_catalog import HandlerCatalog


def output_keys(model: schema.AnyNodeModel, handlers: HandlerCatalog | None) -> frozenset[str] | None:
    if isinstance(model, schema.TaskModel):
        handler = None if handlers is None else handlers.find(model.handler)
        return None if handler is None else handler.output_keys()
    if isinstance(model, schema.FanInModel):
        return _FAN_IN_KEYS[model.aggregation]
    if isinstance(model, schema.WaitModel):
        return None if model.signal is not None else frozenset({"waited_until"})
    return NODE_KINDS[Kind(model.type)].output_keys


_FAN_IN_KEYS: Final[dict[str, frozenset[str]]] = {
    "collect": frozenset({"results", "count", "failed"}),
    "collect_all": frozenset({"results", "count", "failed"}),
    "concat": frozenset({"results", "count"}),
    "sum": frozenset({"total", "count"}),
    "first": frozenset({"result", "count"}),
    "last": frozenset({"result", "count"}),
}
