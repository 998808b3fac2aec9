"""Child jobs: a workflow node starts another job, or is told why it cannot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.inputs import accept_inputs
from dagmaster.engine.events import ChildJobFinished, DispatchRejected, EngineEvent
from dagmaster.engine.step import failure
from dagmaster.errors import DagmasterError, DatabaseUnavailable
from dagmaster.ports.job_records import NewJob, ParentNode
from dagmaster.redaction import redactor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dagmaster.engine.graph import Graph, WorkflowSpec
    from dagmaster.orchestrator.owned_job import OwnedJob
    from dagmaster.orchestrator.turn import ChildJobRequest, TurnResult
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.reusable_results import SourceNode

MAX_DEPTH: Final = 8
MIN_SECRET_LENGTH: Final = 4
"""Characters of the shortest secret that a child job is refused for."""


class ChildJobs:
    """Finds the workflows of child jobs and makes the jobs."""

    def __init__(self, store: OrchestratorStore, graph: Callable[[str], Awaitable[Graph]]) -> None:
        self._store = store
        self._graph = graph

    async def start(self, held: OwnedJob, writes: TurnResult) -> tuple[list[NewJob], list[EngineEvent]]:
        """Make the child jobs of a turn, and say what happened to those that cannot be, or need not."""
        made: list[NewJob] = []
        happened: list[EngineEvent] = []
        stopped = {(stop.node, stop.attempt) for stop in writes.stops}
        recalled: dict[str, SourceNode] = {}
        before = await self._before(held, writes.child_jobs)
        for request in writes.child_jobs:
            node, attempt = request.node, request.attempt
            if (node, attempt) in stopped:
                # It was started and stopped in one turn: it never was.
                error = failure("cancelled", "the child job was stopped before it started")
                happened.append(ChildJobFinished(node, attempt, "CANCELLED", None, error))
                continue
            child = await self._make(held, request, before)
            if isinstance(child, NewJob):
                made.append(child)
                self._look_up(held, node, child, recalled)
            else:
                happened.append(DispatchRejected(node, attempt, child))
        writes.child_jobs.clear()
        reused = await held.recall.fetch(recalled)
        again = {each.node for each in reused}
        made = [child for child in made if child.parent is None or child.parent.node_id not in again]
        return made, [*happened, *reused]

    def _look_up(self, held: OwnedJob, node_id: str, child: NewJob, recalled: dict[str, SourceNode]) -> None:
        node = held.job.nodes[node_id]
        node.fingerprint = held.recall.of_child_job(node, child.content_hash, child.inputs)
        found = held.recall.find(node)
        if found is not None:
            recalled[node_id] = found

    async def _before(self, held: OwnedJob, requests: Sequence[ChildJobRequest]) -> Mapping[str, str]:
        """The child jobs that nodes had before and that did not work out. What is done in them stays done."""
        again = {(held.job.id, request.node) for request in requests if request.attempt > 1}
        first = [held.recall.place_before(held.job.nodes[each.node]) for each in requests if each.attempt == 1]
        asked = again | {place for place in first if place is not None}
        found = await self._store.unfinished_children(asked) if asked else {}
        return {node_id: child for (_, node_id), child in found.items()}

    async def _make(
        self, held: OwnedJob, request: ChildJobRequest, before: Mapping[str, str]
    ) -> NewJob | dict[str, Any]:
        wanted = request.workflow
        if held.depth + 1 >= MAX_DEPTH:
            return failure("too_deep", f"child jobs nest at most {MAX_DEPTH} deep")
        try:
            graph = await self._find(held, wanted)
            if graph is None:
                version = f" version {wanted.version}" if wanted.version is not None else ""
                return failure("unknown_workflow", f"no workflow {wanted.workflow_id!r}{version} was found")
            try:
                inputs = accept_inputs(graph, request.inputs)
            except DagmasterError as problem:
                return failure("invalid_inputs", str(problem))
            exposed = _exposed_inputs(held, graph, inputs)
            if exposed:
                message = (
                    f"secret values reach {', '.join(exposed)} of workflow {wanted.workflow_id!r}, which would show"
                    " them: declare these inputs `secret: true` there"
                )
                return failure("invalid_inputs", message)
        except DatabaseUnavailable:
            raise
        except DagmasterError as problem:
            return failure("invalid_workflow", f"workflow {wanted.workflow_id!r} cannot run: {problem}")
        return NewJob(
            id=self._store.ids.new(),
            workflow_id=graph.workflow_id,
            version=graph.version,
            content_hash=graph.content_hash,
            inputs=json.dumps(inputs),
            parent=ParentNode(held.job.id, request.node, request.attempt),
            depth=held.depth + 1,
            resumed_from=before.get(request.node),
        )

    async def _find(self, held: OwnedJob, wanted: WorkflowSpec) -> Graph | None:
        brought = held.workflows.get(wanted.workflow_id)
        if brought is not None:
            graph = await self._graph(brought)
            if wanted.version in (None, graph.version):
                return graph
        found = await self._store.find_workflow(wanted.workflow_id, wanted.version)
        return None if found is None else await self._graph(found.content_hash)


def _exposed_inputs(held: OwnedJob, graph: Graph, inputs: Mapping[str, Any]) -> list[str]:
    """Return the inputs of a child that are not secret and contain a secret input of the parent.

    Short texts occur in any value, so they do not count: refusing them would fail jobs that expose nothing.
    """
    secrets = [secret for secret in held.secrets if len(secret) >= MIN_SECRET_LENGTH]
    if not secrets:
        return []
    redact = redactor(secrets)
    return [name for name, value in inputs.items() if not graph.inputs[name].get("secret") and redact(value) != value]
