"""Nodes that are added to owned jobs: read with the results and commands that name their batches."""

from __future__ import annotations

from contextlib import nullcontext
from functools import reduce
from typing import TYPE_CHECKING

from dagmaster.authoring.added_nodes import read_batches
from dagmaster.authoring.garbage_collection import without_gc
from dagmaster.engine.events import NodesAdded, TaskSucceeded
from dagmaster.engine.growth import NodeBatch, grow_graph

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from dagmaster.engine.graph import DefaultLimits, Graph
    from dagmaster.orchestrator.graph_cache import GraphCache
    from dagmaster.orchestrator.inbox import PendingEvents
    from dagmaster.ports.added_nodes import JobNodes
    from dagmaster.ports.job_records import ClaimedJob


async def graph_of(claimed: ClaimedJob, graphs: GraphCache) -> Graph:
    graph = await graphs.get(claimed.new.content_hash)
    if not claimed.batches:
        return graph
    return grow_graph(graph, read_batches(claimed.batches, graphs.limits))


def gc_pause(pending: PendingEvents) -> AbstractContextManager[None]:
    """Pause the garbage collector while nodes are added to a job, which all stay."""
    return without_gc() if pending.batches else nullcontext()


async def load_added(
    pending: PendingEvents, job_id: str, store: JobNodes, limits: DefaultLimits | None = None
) -> None:
    for index, numbers in pending.batches.items():
        batches = read_batches(await store.load_batches(job_id, numbers), limits)
        batch = reduce(NodeBatch.merge, batches) if batches else NodeBatch(tuple(numbers), ())
        event = pending.events[index]
        if isinstance(event, TaskSucceeded):
            event.added = batch
        elif isinstance(event, NodesAdded):
            event.batch = batch
    pending.batches.clear()
