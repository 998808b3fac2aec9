"""Child jobs: a workflow node starts another job, or fails with the reason why it cannot."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from dagmaster.authoring.check_budget import QUICK_STEPS, CheckBudget, CheckStopped
from dagmaster.authoring.inputs import accept_values, check_types
from dagmaster.engine.events import ChildJobFinished, DispatchRejected, EngineEvent
from dagmaster.engine.expressions.secret_parts import SecretInput, fill_secrets, has_secrets, secret_names
from dagmaster.engine.status import JobStatus
from dagmaster.engine.step import failure
from dagmaster.errors import (
    DagmasterError,
    DatabaseUnavailable,
    SecretsKeyMissing,
    SecretsKeyWrong,
    SecretUnreadable,
)
from dagmaster.ports.job_records import NewJob, ParentNode
from dagmaster.ports.secret_vault import InputOwner, identity_of, seal_inputs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dagmaster.engine.graph import Graph, WorkflowSpec
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.orchestrator.owned_job import OwnedJob
    from dagmaster.orchestrator.turn import ChildJobRequest, TurnResult
    from dagmaster.ports.reusable_results import ReusableResults, SourceNode
    from dagmaster.ports.secret_vault import SecretVault

MAX_DEPTH: Final = 8


class ChildJobs:
    """Finds the workflows of child jobs and creates the jobs."""

    def __init__(
        self,
        store: ReusableResults,
        graph: Callable[[str], Awaitable[Graph]],
        new_id: Callable[[], str],
        vault: SecretVault,
    ) -> None:
        self._store = store
        self._vault = vault
        self._graph = graph
        self._new_id = new_id

    async def start(self, owned: OwnedJob, result: TurnResult) -> tuple[list[NewJob], list[EngineEvent]]:
        """Create the child jobs of a turn; return them, and the events of rejected and reused ones."""
        created: list[NewJob] = []
        events: list[EngineEvent] = []
        stopped = {(stop.node, stop.attempt) for stop in result.stops}
        reusable: dict[str, SourceNode] = {}
        unfinished = await self._unfinished_children(owned, result.child_jobs)
        for request in result.child_jobs:
            node, attempt = request.node, request.attempt
            if (node, attempt) in stopped:
                # Started and stopped in one turn: it is never created.
                error = failure("cancelled", "the child job was stopped before it started")
                events.append(ChildJobFinished(node, attempt, JobStatus.CANCELLED, None, error))
                continue
            child = await self._create(owned, request, unfinished)
            if isinstance(child, NewJob):
                created.append(child)
                self._find_reusable(owned, node, child, reusable)
            else:
                events.append(DispatchRejected(node, attempt, child))
        result.child_jobs.clear()
        reused = await owned.reuse.fetch(reusable)
        reused_nodes = {event.node for event in reused}
        created = [
            child for child in created if child.parent is None or child.parent.node_id not in reused_nodes
        ]
        return created, [*events, *reused]

    def _find_reusable(
        self, owned: OwnedJob, node_id: str, child: NewJob, reusable: dict[str, SourceNode]
    ) -> None:
        node = owned.job.nodes[node_id]
        inputs = {name: identity_of(value) for name, value in json.loads(child.inputs).items()}
        node.fingerprint = owned.reuse.child_job_fingerprint(node, child.content_hash, json.dumps(inputs))
        source = owned.reuse.find(node)
        if source is not None:
            reusable[node_id] = source

    async def _unfinished_children(
        self, owned: OwnedJob, requests: Sequence[ChildJobRequest]
    ) -> Mapping[str, str]:
        """Return the earlier, unsuccessful child jobs of nodes: the new child jobs reuse their results."""
        retried = {(owned.job.id, request.node) for request in requests if request.attempt > 1}
        resumed = [
            owned.reuse.source_node(owned.job.nodes[request.node])
            for request in requests
            if request.attempt == 1
        ]
        nodes = retried | {node for node in resumed if node is not None}
        children = await self._store.unfinished_children(nodes) if nodes else {}
        return {node_id: child for (_, node_id), child in children.items()}

    async def _create(
        self, owned: OwnedJob, request: ChildJobRequest, unfinished: Mapping[str, str]
    ) -> NewJob | JsonObject:
        spec = request.workflow
        if owned.new.depth + 1 >= MAX_DEPTH:
            return failure("too_deep", f"child jobs nest at most {MAX_DEPTH} deep")
        try:
            graph = await self._find(owned, spec)
            if graph is None:
                version = f" version {spec.version}" if spec.version is not None else ""
                return failure("unknown_workflow", f"no workflow {spec.workflow_id!r}{version} was found")
            exposed = [name for name, value in request.inputs.items() if _is_exposed(graph, name, value)]
            if exposed:
                message = (
                    f"secret values reach {', '.join(exposed)} of workflow {spec.workflow_id!r}, which"
                    " would show them: declare these inputs `secret: true` there"
                )
                return failure("invalid_inputs", message)
            try:
                inputs = await self._accept(owned, graph, request.inputs)
                # What is sealed is bound to its job: the child gets the same values under another seal.
                child_id = self._new_id()
                stored = await self._seal(child_id, graph, inputs)
            except (SecretsKeyMissing, SecretsKeyWrong, SecretUnreadable) as problem:
                return failure(problem.code, str(problem))
            except DatabaseUnavailable:
                raise
            except DagmasterError as problem:
                return failure("invalid_inputs", str(problem))
        except DatabaseUnavailable:
            raise
        except DagmasterError as problem:
            return failure("invalid_workflow", f"workflow {spec.workflow_id!r} cannot run: {problem}")
        return NewJob(
            id=child_id,
            workflow_id=graph.workflow_id,
            version=graph.version,
            content_hash=graph.content_hash,
            inputs=json.dumps(stored),
            parent=ParentNode(owned.job.id, request.node, request.attempt),
            depth=owned.new.depth + 1,
            resumed_from=unfinished.get(request.node),
        )

    async def _accept(self, owned: OwnedJob, graph: Graph, inputs: JsonObject) -> JsonObject:
        secrets = {name: value for name, value in inputs.items() if has_secrets(value)}
        others = {name: value for name, value in inputs.items() if name not in secrets}
        return await _accept_inputs(graph, others, self._filled(owned, secrets))

    def _filled(self, owned: OwnedJob, inputs: JsonObject) -> JsonObject:
        """Return secret inputs of a child with their values, to check their types; they are sealed again."""

        def open_input(secret: SecretInput) -> JsonValue:
            value: JsonValue = self._vault.open(owned.job.id, secret.name, secret.stored)
            return value

        filled: JsonObject = fill_secrets(inputs, _refuse_name, open_input)
        return filled

    async def _seal(self, child_id: str, graph: Graph, inputs: JsonObject) -> JsonObject:
        owner = InputOwner(job_id=child_id, workflow_id=graph.workflow_id)
        return await seal_inputs(self._vault, owner, secret_names(graph.inputs), inputs)

    async def _find(self, owned: OwnedJob, spec: WorkflowSpec) -> Graph | None:
        submitted = owned.workflows.get(spec.workflow_id)
        if submitted is not None:
            graph = await self._graph(submitted)
            if spec.version in (None, graph.version):
                return graph
        published = await self._store.find_workflow(spec.workflow_id, spec.version, owned.new.tenant)
        return None if published is None else await self._graph(published.content_hash)


async def _accept_inputs(
    graph: Graph, values: Mapping[str, JsonValue], secrets: Mapping[str, JsonValue]
) -> JsonObject:
    """Check inputs; in a thread if that takes long, because leases are renewed on the event loop.

    Of secrets that the parent passes only the types are checked: which of sixteen children with a pattern for
    one digit failed would tell the digit.
    """
    check_types(graph.inputs, secrets)
    definitions = {name: definition for name, definition in graph.inputs.items() if name not in secrets}
    try:
        inputs = accept_values(definitions, values, CheckBudget(QUICK_STEPS))
    except CheckStopped:
        inputs = await asyncio.to_thread(accept_values, definitions, values)
    return {**inputs, **secrets}


def _is_exposed(graph: Graph, name: str, value: JsonValue) -> bool:
    """Return whether a value with a secret reaches an input that is not secret."""
    return has_secrets(value) and not (graph.inputs.get(name) or {}).get("secret")


def _refuse_name(name: str) -> str:
    raise SecretUnreadable(f"secrets.{name} is for the params of tasks")
