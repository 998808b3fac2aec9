"""Dry run of a new job: it starts without workers, and advances as far as results can be reused.

It uses the turns of a real job, so its outcome is what would happen. Nothing is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.engine.events import EngineEvent, JobStarted, TimerFired
from dagmaster.engine.graph import FanOutSpec, OnFailure, WaitSpec
from dagmaster.engine.model import FanOut, Job, JobRow
from dagmaster.engine.status import NodeStatus
from dagmaster.orchestrator.child_jobs import ChildJobs
from dagmaster.orchestrator.graph_cache import GraphCache
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.orchestrator.turn import run_turn
from dagmaster.ports.job_records import ClaimedJob
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.node_values import ValueKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.model import Node
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.node_values import ValueKey
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.reusable_results import SourceJob


async def dry_run(
    store: OrchestratorStore,
    graph: Graph,
    *,
    inputs: Mapping[str, Any],
    env: Mapping[str, str],
    workflows: Mapping[str, str],
    past: SourceJob,
    redo: tuple[str, ...] = (),
) -> Job:
    """Return the job in the state in which no more results can be reused."""
    claimed = ClaimedJob(
        row=JobRow(id=""), workflow_id=graph.workflow_id, version=graph.version, content_hash=graph.content_hash,
        inputs=inputs, env=env, priority=5, epoch=0, event_seq=0, depth=0, queue=None, workflows=workflows, parent=None,
        resumed_from=past.job_id, redo=redo,
    )  # fmt: skip
    values = _MemoryValues(store)
    owned = OwnedJob(claimed, _unlimited_graph(graph), values, source=past, reusable=store)
    values.job = owned.job
    children = ChildJobs(store, GraphCache(store).get)
    events: list[EngineEvent] = [JobStarted()]
    now = store.clock.now()
    while events:
        result = await run_turn(
            owned.job, events, reported={}, scopes=owned.scopes, values=owned.values, now=now, reuse=owned.reuse
        )
        values.keep(result)
        _, events = await children.start(owned, result)
        due = [node for node in result.changed if _is_time_only(node)]
        now = max([now, *(node.wake_at or now for node in due)])
        events += [TimerFired(node.id) for node in due]
    return owned.job


def _is_time_only(node: Node) -> bool:
    """Return whether a node waits only for time: until its next children are created, or until a wait ends."""
    is_wait = isinstance(node.spec, WaitSpec) and node.spec.signal is None and node.status is NodeStatus.WAITING
    return node.wake_at is not None and (is_wait or isinstance(node, FanOut))


def _unlimited_graph(graph: Graph) -> Graph:
    """Return the graph without limits: no child waits for another, and no failure ends the job."""
    specs = {node_id: _unlimited(spec) for node_id, spec in graph.specs.items()}
    return replace(graph, specs=specs, on_failure=OnFailure.CONTINUE, deadline_seconds=None)


def _unlimited(spec: Spec) -> Spec:
    if not isinstance(spec, FanOutSpec):
        return spec
    child = _unlimited(spec.child)
    return replace(spec, max_parallel=None, fail_fast=False, child=child)  # type: ignore[arg-type]


class _MemoryValues:
    """The values of a dry run, in memory; reused outputs stay in the store until they are needed."""

    def __init__(self, store: OrchestratorStore) -> None:
        self.job: Job | None = None
        self._store = store
        self._outputs: dict[str, Any] = {}
        self._sources: dict[str, list[Any]] = {}

    def keep(self, result: TurnResult) -> None:
        """Keep the values of a turn."""
        self._outputs.update(result.outputs)
        self._sources.update(result.sources)

    async def load(self, _job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Return the values that exist."""
        values: dict[ValueKey, Any] = {}
        for key in keys:
            if key.kind is ValueKind.ITEMS:
                if key.node in self._sources:
                    values[key] = self._sources[key.node]
            elif key.kind is ValueKind.OUTPUTS:
                values[key] = await self._child_outputs(key.node)
            elif key.node in self._outputs:
                values[key] = await self._resolve_output(key.node)
        return values

    async def resolve_value(self, value: JsonText) -> Any:
        """Read a value: from its text, or from its blob."""
        return await self._store.resolve_value(value)

    async def _child_outputs(self, fan_id: str) -> list[Any]:
        fan = None if self.job is None else self.job.nodes[fan_id]
        children = fan.children[: fan.expanded] if isinstance(fan, FanOut) else []
        return [
            await self._child_outputs(each.id) if isinstance(each, FanOut) else await self._resolve_output(each.id)
            for each in children
        ]

    async def _resolve_output(self, node_id: str) -> Any:
        value = self._outputs.get(node_id)
        return await self.resolve_value(value) if isinstance(value, JsonText) else value
