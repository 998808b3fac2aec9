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
    from dagmaster.ports.added_nodes import AddedNodeReader, StoredBatch
    from dagmaster.records.jobs import JobRecord

P = ParamSpec("P")
T = TypeVar("T")
MAX_GRAPHS: Final = 200
MAX_EXTENDED: Final = 20
"""How many graphs of single jobs are kept: each may have 100,000 nodes."""


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

    def __init__(
        self, store: Definitions, limits: DefaultLimits | None = None, added: AddedNodeReader | None = None
    ) -> None:
        self._store = store
        self._added = added
        self._extended: OrderedDict[str, tuple[tuple[int, ...], Graph]] = OrderedDict()
        self._limits = limits
        self._graphs: OrderedDict[str, Graph] = OrderedDict()
        self._loading = asyncio.Lock()
        self.run: Runner = run_here

    @property
    def limits(self) -> DefaultLimits | None:
        """Return the operator's limits of tasks that name none."""
        return self._limits

    async def get(self, content_hash: str) -> Graph:
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

    async def of_job(self, job: JobRecord) -> Graph:
        """Return the graph of a job with the nodes that were added to it."""
        graph = await self.get(job.content_hash)
        numbers = () if self._added is None else await self._added.accepted_batches(job.job_id)
        if self._added is None or not numbers:
            return graph
        known, extended = self._extended.get(job.job_id, ((), graph))
        if known != numbers:
            # Batches are accepted in any order, and a graph depends on it: one that was accepted late starts
            # again.
            is_later = numbers[: len(known)] == known
            missing = numbers[len(known) :] if is_later else numbers
            batches = await self._added.load_batches(job.job_id, missing)
            extended = await self.run(_grow, extended if is_later else graph, batches, self._limits)
            self._extended[job.job_id] = (numbers, extended)
            if len(self._extended) > MAX_EXTENDED:
                self._extended.popitem(last=False)
        return extended

    async def _load(self, content_hash: str) -> Graph:
        definition = await self._store.definition(content_hash)
        if definition is None:
            raise GraphNotFound(f"the graph {content_hash} is not stored")
        return await self.run(self._read, definition, content_hash)

    def _read(self, definition: Mapping[str, JsonValue], _content_hash: str) -> Graph:
        from dagmaster.authoring.compiler.compile import compile_definition

        return compile_definition(definition, self._limits)


def _grow(graph: Graph, batches: list[StoredBatch], limits: DefaultLimits | None) -> Graph:
    from dagmaster.authoring.added_nodes import read_batches
    from dagmaster.engine.growth import grow_graph

    return grow_graph(graph, read_batches(batches, limits))


class OutlineCache(GraphCache):
    """A cache of outlines: graphs without expressions, or with the texts of branches only."""

    def __init__(
        self,
        store: Definitions,
        limits: DefaultLimits | None = None,
        added: AddedNodeReader | None = None,
        *,
        with_conditions: bool = False,
    ) -> None:
        super().__init__(store, limits, added)
        self._with_conditions = with_conditions

    def _read(self, definition: Mapping[str, JsonValue], content_hash: str) -> Graph:
        from dagmaster.authoring.graph_outline import outline_graph

        return outline_graph(definition, content_hash, self._limits, with_conditions=self._with_conditions)
