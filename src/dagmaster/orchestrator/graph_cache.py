"""Compiled graphs, by their content hashes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.errors import GraphNotFound

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.store import OrchestratorStore

MAX_GRAPHS: Final = 200


class GraphCache:
    """Compiles each graph once, and forgets those that nobody asked for lately."""

    def __init__(self, store: OrchestratorStore) -> None:
        self._store = store
        self._compiled: OrderedDict[str, Graph] = OrderedDict()

    async def get(self, content_hash: str) -> Graph:
        """The graph with this hash."""
        graph = self._compiled.get(content_hash)
        if graph is None:
            definition = await self._store.definition(content_hash)
            if definition is None:
                raise GraphNotFound(f"the graph {content_hash} is not stored")
            graph = self._compiled[content_hash] = compile_definition(definition)
            if len(self._compiled) > MAX_GRAPHS:
                self._compiled.popitem(last=False)
        else:
            self._compiled.move_to_end(content_hash)
        return graph
