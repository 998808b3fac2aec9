"""Graphs by content hash: compiled, or their outlines."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from dagmaster.errors import GraphNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.graph import DefaultLimits, Graph
    from dagmaster.json_types import JsonValue

MAX_GRAPHS: Final = 200


class Definitions(Protocol):
    """A store of graph definitions."""

    async def definition(self, content_hash: str) -> Mapping[str, JsonValue] | None:
        """Return a stored definition."""


class GraphCache:
    """Compile each graph once, with the operator's limits; evict the least recently used."""

    def __init__(self, store: Definitions, limits: DefaultLimits | None = None) -> None:
        self._store = store
        self._limits = limits
        self._graphs: OrderedDict[str, Graph] = OrderedDict()

    async def get(self, content_hash: str) -> Graph:
        """Return the graph with this hash."""
        graph = self._graphs.get(content_hash)
        if graph is None:
            definition = await self._store.definition(content_hash)
            if definition is None:
                raise GraphNotFound(f"the graph {content_hash} is not stored")
            graph = self._graphs[content_hash] = self._read(definition, content_hash)
            if len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
        else:
            self._graphs.move_to_end(content_hash)
        return graph

    def _read(self, definition: Mapping[str, JsonValue], _content_hash: str) -> Graph:
        from dagmaster.authoring.compiler.compile import compile_definition

        return compile_definition(definition, self._limits)


class OutlineCache(GraphCache):
    """The same for outlines: graphs without expressions, or with those of branches only, which are not compiled."""

    def __init__(self, store: Definitions, *, with_conditions: bool = False) -> None:
        super().__init__(store)
        self._with_conditions = with_conditions

    def _read(self, definition: Mapping[str, JsonValue], content_hash: str) -> Graph:
        from dagmaster.authoring.graph_outline import outline_graph

        return outline_graph(definition, content_hash, with_conditions=self._with_conditions)
