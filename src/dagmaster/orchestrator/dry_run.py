"""A new job tried out: it starts as it would, with nobody to run anything, and goes as far as results are reused.

It takes the same turns as a real one, so that what it says is what would happen. Nothing is written.
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


async def rehearse(
    store: OrchestratorStore,
    graph: Graph,
    *,
    inputs: Mapping[str, Any],
    env: Mapping[str, str],
    workflows: Mapping[str, str],
    past: SourceJob,
    redo: tuple[str, ...] = (),
) -> Job:
    """Give the job as it stands when nothing more can be reused."""
    claimed = ClaimedJob(
        row=JobRow(id=""), workflow_id=graph.workflow_id, version=graph.version, content_hash=graph.content_hash,
        inputs=inputs, env=env, priority=5, epoch=0, event_seq=0, depth=0, queue=None, workflows=workflows, parent=None,
        resumed_from=past.job_id, redo=redo,
    )  # fmt: skip
    stage = _Stage(store)
    held = OwnedJob(claimed, _all_at_once(graph), stage, past=past, pasts=store)
    stage.job = held.job
    children = ChildJobs(store, GraphCache(store).get)
    happenings: list[EngineEvent] = [JobStarted()]
    now = store.clock.now()
    while happenings:
        writes = await run_turn(
            held.job, happenings, reported={}, scopes=held.scopes, values=held.values, now=now, recall=held.recall
        )
        stage.keep(writes)
        _, happenings = await children.start(held, writes)
        due = [node for node in writes.changed if _passes_by_itself(node)]
        now = max([now, *(node.wake_at or now for node in due)])
        happenings += [TimerFired(node.id) for node in due]
    return held.job


def _passes_by_itself(node: Node) -> bool:
    """Whether only time has to pass: until the next children are made, or until a wait is over."""
    is_wait = isinstance(node.spec, WaitSpec) and node.spec.signal is None and node.status is NodeStatus.WAITING
    return node.wake_at is not None and (is_wait or isinstance(node, FanOut))


def _all_at_once(graph: Graph) -> Graph:
    """A graph in which no child waits for another, and nothing ends because something cannot be."""
    specs = {node_id: _unlimited(spec) for node_id, spec in graph.specs.items()}
    return replace(graph, specs=specs, on_failure=OnFailure.CONTINUE, deadline_seconds=None)


def _unlimited(spec: Spec) -> Spec:
    if not isinstance(spec, FanOutSpec):
        return spec
    child = _unlimited(spec.child)
    return replace(spec, max_parallel=None, fail_fast=False, child=child)  # type: ignore[arg-type]


class _Stage:
    """The values of the rehearsed job, in memory; what is reused stays where it is until it is asked for."""

    def __init__(self, store: OrchestratorStore) -> None:
        self.job: Job | None = None
        self._store = store
        self._outputs: dict[str, Any] = {}
        self._sources: dict[str, list[Any]] = {}

    def keep(self, writes: TurnResult) -> None:
        """Take what a turn made."""
        self._outputs.update(writes.outputs)
        self._sources.update(writes.sources)

    async def load(self, _job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Give the values that are there."""
        found: dict[ValueKey, Any] = {}
        for key in keys:
            if key.kind is ValueKind.ITEMS:
                if key.node in self._sources:
                    found[key] = self._sources[key.node]
            elif key.kind is ValueKind.OUTPUTS:
                found[key] = await self._below(key.node)
            elif key.node in self._outputs:
                found[key] = await self._opened(key.node)
        return found

    async def resolve_value(self, value: JsonText) -> Any:
        """Read a value: from its text, or from its blob."""
        return await self._store.resolve_value(value)

    async def _below(self, fan_id: str) -> list[Any]:
        fan = None if self.job is None else self.job.nodes[fan_id]
        children = fan.children[: fan.expanded] if isinstance(fan, FanOut) else []
        return [
            await self._below(each.id) if isinstance(each, FanOut) else await self._opened(each.id) for each in children
        ]

    async def _opened(self, node_id: str) -> Any:
        value = self._outputs.get(node_id)
        return await self.resolve_value(value) if isinstance(value, JsonText) else value
