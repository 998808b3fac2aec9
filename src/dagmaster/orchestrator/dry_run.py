"""Dry run of a new job: it takes the turns of a real one as far as the results of tasks are reused.

No task is dispatched and nothing is written; values that the turns make are kept in memory.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.engine.events import BacklogDue, EngineEvent, JobStarted, TimerFired
from dagmaster.engine.expressions.secret_parts import secret_names
from dagmaster.engine.graph import FanOutSpec, OnFailure, WaitSpec
from dagmaster.engine.model import FanOut, Job
from dagmaster.engine.status import NodeStatus
from dagmaster.engine.stored_rows import JobRow
from dagmaster.orchestrator.child_jobs import ChildJobs
from dagmaster.orchestrator.graph_cache import GraphCache
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.orchestrator.turn import run_turn
from dagmaster.ports.job_records import ClaimedJob, NewJob
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.node_values import ValueKind
from dagmaster.ports.secret_vault import InputOwner, seal_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.model import Node
    from dagmaster.json_types import JsonValue
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.node_values import ValueKey
    from dagmaster.ports.reusable_results import ReusableResults, SourceJob
    from dagmaster.ports.secret_vault import SecretVault


async def dry_run_job(  # noqa: PLR0913 - all that a job is made of
    results: ReusableResults,
    graph: Graph,
    *,
    inputs: Mapping[str, JsonValue],
    env: Mapping[str, str],
    workflows: Mapping[str, str],
    source: SourceJob | None = None,
    now: float,
    vault: SecretVault,
    redo: tuple[str, ...] = (),
) -> Job:
    # Sealed like the inputs of a job: results are found by the prints of secret inputs.
    owner = InputOwner(job_id="", workflow_id=graph.workflow_id)
    inputs = await seal_inputs(vault, owner, secret_names(graph.inputs), inputs)
    new = NewJob(
        id="", workflow_id=graph.workflow_id, version=graph.version, content_hash=graph.content_hash,
        inputs=json.dumps(inputs), env=json.dumps(env), workflows=json.dumps(workflows), redo=redo,
    )  # fmt: skip
    claimed = ClaimedJob(new=new, row=JobRow(id=new.id), epoch=0, event_seq=0)
    values = _DryRunValues(results)
    owned = OwnedJob(claimed, _without_limits(graph), values, source=source, reusable=results)
    values.job = owned.job
    # Child jobs are made and dropped: their ids are never stored.
    children = ChildJobs(results, GraphCache(results).get, lambda: "0", vault)
    events: list[EngineEvent] = [JobStarted()]
    while events:
        turn = await run_turn(
            owned.job,
            events,
            reported={},
            scopes=owned.scopes,
            values=owned.values,
            now=now,
            reuse=owned.reuse,
        )
        values.add(turn)
        _, events = await children.start(owned, turn)
        due = [node for node in turn.changed if _needs_only_time(node)]
        now = max([now, *(node.wake_at or now for node in due)])
        events += [TimerFired(node.id) for node in due]
        events += [BacklogDue()] if owned.job.backlog else []
    return owned.job


def _needs_only_time(node: Node) -> bool:
    """Return whether a node continues when time passes: a wait, or a fan-out that creates more children."""
    is_wait = (
        isinstance(node.spec, WaitSpec) and node.spec.signal is None and node.status is NodeStatus.WAITING
    )
    return node.wake_at is not None and (is_wait or isinstance(node, FanOut))


def _without_limits(graph: Graph) -> Graph:
    """Return the graph without limits on parallel children, deadline, and early end on failure."""
    specs = {node_id: _unlimited(spec) for node_id, spec in graph.specs.items()}
    return replace(graph, specs=specs, on_failure=OnFailure.CONTINUE, deadline_seconds=None)


def _unlimited(spec: Spec) -> Spec:
    if not isinstance(spec, FanOutSpec):
        return spec
    child = _unlimited(spec.child)
    return replace(spec, max_parallel=None, fail_fast=False, child=child)  # type: ignore[arg-type]


class _DryRunValues:
    """The values of a dry run, in memory. A reused output is loaded from the source job when it is needed."""

    def __init__(self, results: ReusableResults) -> None:
        self.job: Job | None = None
        self._results = results
        self._outputs: dict[str, Any] = {}
        self._sources: dict[str, list[JsonValue]] = {}

    def add(self, turn: TurnResult) -> None:
        self._outputs.update(turn.outputs)
        self._sources.update(turn.sources)

    async def load_outputs(self, _job_id: str, node_ids: Collection[str]) -> Mapping[str, JsonValue]:
        return {node_id: await self._output(node_id) for node_id in node_ids if node_id in self._outputs}

    async def load(self, _job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, JsonValue]:
        """Return the values of fan-outs that exist."""
        values: dict[ValueKey, JsonValue] = {}
        for key in keys:
            if key.kind is ValueKind.ITEMS:
                if key.node in self._sources:
                    values[key] = self._sources[key.node]
            else:
                values[key] = await self._child_outputs(key.node)
        return values

    async def resolve_value(self, value: JsonText) -> Any:
        return await self._results.resolve_value(value)

    async def blob_bytes(
        self, _job_id: str, _node_ids: Collection[str], _reported: Collection[JsonText] = ()
    ) -> int:
        return 0

    async def _child_outputs(self, fan_out_id: str) -> list[JsonValue]:
        fan_out = None if self.job is None else self.job.nodes[fan_out_id]
        children = fan_out.children[: fan_out.expanded] if isinstance(fan_out, FanOut) else []
        return [
            await self._child_outputs(child.id) if isinstance(child, FanOut) else await self._output(child.id)
            for child in children
        ]

    async def _output(self, node_id: str) -> JsonValue:
        value = self._outputs.get(node_id)
        return await self.resolve_value(value) if isinstance(value, JsonText) else value
