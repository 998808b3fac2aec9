"""Compiled graphs by content hash."""

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
        self._compiled: OrderedDict[str, Graph] = OrderedDict()

    async def get(self, content_hash: str) -> Graph:
        """Return the graph with this hash."""
        graph = self._compiled.get(content_hash)
        if graph is None:
            definition = await self._store.definition(content_hash)
            if definition is None:
                raise GraphNotFound(f"the graph {content_hash} is not stored")
            from dagmaster.authoring.compiler.compile import compile_definition

            graph = self._compiled[content_hash] = compile_definition(definition, self._limits)
            if len(self._compiled) > MAX_GRAPHS:
                self._compiled.popitem(last=False)
        else:
            self._compiled.move_to_end(content_hash)
        return graph
