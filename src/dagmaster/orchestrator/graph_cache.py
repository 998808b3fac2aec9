"""Graphs by content hash: compiled, or their outlines."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

from dagmaster.errors import GraphNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.engine.graph import DefaultLimits, Graph
    from dagmaster.json_types import JsonValue

P = ParamSpec("P")
T = TypeVar("T")
MAX_GRAPHS: Final = 200


class Definitions(Protocol):
    """A store of graph definitions."""

    async def definition(self, content_hash: str) -> Mapping[str, JsonValue] | None:
        """Return a stored definition."""


class Runner(Protocol):
    """Runs work that takes long."""

    async def __call__(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function, and return what it returns."""


async def run_here(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function on the event loop."""
    return work(*args, **options)


class GraphCache:
    """Compile each graph once, with the operator's limits; evict the least recently used.

    `run`: where graphs are compiled. A process whose loop has others to answer sets threads.
    """

    def __init__(self, store: Definitions, limits: DefaultLimits | None = None) -> None:
        self._store = store
        self._limits = limits
        self._graphs: OrderedDict[str, Graph] = OrderedDict()
        self._loading = asyncio.Lock()
        self.run: Runner = run_here

    @property
    def task_timeout_seconds(self) -> float | None:
        """Return the operator's timeout of tasks that name none."""
        return None if self._limits is None else self._limits.task_timeout_seconds

    async def get(self, content_hash: str) -> Graph:
        """Return the graph with this hash."""
        graph = self._graphs.get(content_hash)
        if graph is None:
            # One at a time: requests for the same graph wait for the first of them.
            async with self._loading:
                graph = self._graphs.get(content_hash)
                if graph is None:
                    graph = await self._load(content_hash)
            self._graphs[content_hash] = graph
            if len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(content_hash)
        return graph

    async def _load(self, content_hash: str) -> Graph:
        definition = await self._store.definition(content_hash)
        if definition is None:
            raise GraphNotFound(f"the graph {content_hash} is not stored")
        return await self.run(self._read, definition, content_hash)

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
