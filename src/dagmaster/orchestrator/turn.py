"""One turn of an orchestrator on one job: events in, everything to commit out.

Load, advance, resolve: the engine decides, this module executes. Needs are answered for all nodes at once, so
that a turn costs a few loads however many nodes it touches.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.engine.advance import advance, pending_needs
from dagmaster.engine.decisions import (
    REPORTED,
    Complete,
    Decision,
    Dispatch,
    Expand,
    FinishJob,
    Need,
    Reopen,
    RequestApproval,
    StartChildJob,
    Stop,
    Withdraw,
)
from dagmaster.engine.events import EngineEvent, ResolutionFailed, ValuesLoaded
from dagmaster.engine.expressions.secret_parts import detach_secrets, fill_inputs
from dagmaster.engine.expressions.templates import JsonTemplate
from dagmaster.engine.model import FanOut
from dagmaster.engine.node_values import uses_secrets
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import BlobNotFound, EvaluationFailed
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.secret_vault import read_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import ApprovalSpec, TaskSpec, WorkflowSpec
    from dagmaster.engine.model import Job, Node
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.orchestrator.expression_scopes import ExpressionScopes
    from dagmaster.orchestrator.result_reuse import ResultReuse
    from dagmaster.ports.node_values import Values
    from dagmaster.ports.reusable_results import SourceNode


_STARTED: Final = frozenset({NodeStatus.DISPATCHED, NodeStatus.RUNNING, NodeStatus.WAITING})


@dataclass(slots=True)
class ResolvedTask:
    """A task ready for dispatch. Secrets in `params` are still names.

    With a `text` from the start, there are none.
    """

    node: str
    attempt: int
    task: TaskSpec
    params: JsonObject
    # The stored form, if the task is to be stored: the params without secrets, the places of the secrets,
    # and the stored values of the secret inputs among them.
    text: str = ""
    places: list[Any] = field(default_factory=list)
    secret_inputs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ChildJobRequest:
    """A child job to start."""

    node: str
    attempt: int
    workflow: WorkflowSpec
    inputs: JsonObject


@dataclass(slots=True)
class ApprovalRequest:
    """An approval to request."""

    node: str
    approval: ApprovalSpec
    message: str


@dataclass(slots=True)
class TurnResult:
    """The decisions of a turn, ready to be committed."""

    changed: list[Node] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    # The applied events, each with the number of decisions made before it.
    events: list[tuple[int, EngineEvent]] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, list[JsonValue]] = field(default_factory=dict)
    tasks: list[ResolvedTask] = field(default_factory=list)
    child_jobs: list[ChildJobRequest] = field(default_factory=list)
    approvals: list[ApprovalRequest] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    withdrawals: list[Withdraw] = field(default_factory=list)
    finished: FinishJob | None = None
    reopens: list[Reopen] = field(default_factory=list)
    # Nodes that reuse the result of another job: nothing was started for them.
    reused: set[str] = field(default_factory=set)

    def merge(self, more: TurnResult) -> TurnResult:
        """Return this result followed by a later one of the same turn."""
        if not (self.changed or self.decisions or self.events):
            return more
        done = len(self.decisions)
        changed = list(dict.fromkeys([*self.changed, *more.changed]))
        return TurnResult(
            changed=changed,
            decisions=self.decisions + more.decisions,
            events=self.events + [(done + index, event) for index, event in more.events],
            outputs={**self.outputs, **more.outputs},
            sources={**self.sources, **more.sources},
            tasks=self.tasks + more.tasks,
            child_jobs=more.child_jobs,
            approvals=self.approvals + more.approvals,
            stops=self.stops + more.stops,
            withdrawals=self.withdrawals + more.withdrawals,
            finished=more.finished if more.reopens else more.finished or self.finished,
            reopens=self.reopens + more.reopens,
            reused=self.reused | more.reused,
        )


class TurnObserver(Protocol):
    """An observer of turns. Called after the commit, in the loop: it must be quick."""

    def turn(self, job: Job, result: TurnResult) -> None:
        """Observe a committed turn."""


async def run_turn(
    job: Job,
    events: Iterable[EngineEvent],
    *,
    reported: Mapping[tuple[str, int], Any],
    scopes: ExpressionScopes,
    values: Values,
    now: float,
    reuse: ResultReuse | None = None,
) -> TurnResult:
    """Apply events to a job and resolve everything that follows from them.

    `reported` has the output of each successful attempt: it becomes the node's only if the engine accepts it.
    It is `JsonText` where it was read from a store, and stays text unless an expression needs it. `reuse`
    computes fingerprints and finds reusable results; without it there are neither.
    """
    turn = _Turn(job, now, reported=reported, scopes=scopes, values=values, reuse=reuse)
    for event in events:
        turn.result.events.append((len(turn.result.decisions), event))
        turn.collect(advance(job, event, now))
    await turn.resolve_all()
    return turn.result


async def recover(
    job: Job, *, scopes: ExpressionScopes, values: Values, now: float, reuse: ResultReuse | None = None
) -> TurnResult:
    """Answer the open needs of a job that was just loaded."""
    turn = _Turn(job, now, reported={}, scopes=scopes, values=values, reuse=reuse)
    turn.collect(pending_needs(job))
    await turn.resolve_all()
    return turn.result


class _Turn:
    """The state of one turn."""

    def __init__(
        self,
        job: Job,
        now: float,
        *,
        reported: Mapping[tuple[str, int], JsonValue],
        scopes: ExpressionScopes,
        values: Values,
        reuse: ResultReuse | None,
    ) -> None:
        self.job = job
        self.reported = reported
        self.scopes = scopes
        self.values = values
        self.now = now
        self.reuse = reuse
        self.result = TurnResult()
        self.needs: deque[Need] = deque()
        self.unresolved: list[Dispatch | StartChildJob | RequestApproval] = []
        # Reusable results by node, and the request to start instead if the result is gone.
        self.reusable: dict[str, tuple[SourceNode, ResolvedTask | ApprovalRequest]] = {}

    def collect(self, decisions: list[Decision]) -> None:
        """Sort decisions into those that are committed as they are and those that need values first."""
        result = self.result
        for decision in decisions:
            if isinstance(decision, Complete):
                self._complete(decision)
            elif isinstance(decision, Dispatch | StartChildJob | RequestApproval):
                self.unresolved.append(decision)
            elif isinstance(decision, Need):
                self.needs.append(decision)
            elif isinstance(decision, Expand):
                if decision.source is not None:
                    result.sources[decision.node] = decision.source
            elif isinstance(decision, Stop):
                result.stops.append(decision)
            elif isinstance(decision, Withdraw):
                result.withdrawals.append(decision)
            elif isinstance(decision, FinishJob):
                result.finished = decision
            elif isinstance(decision, Reopen):
                # The job finished and was reopened in the same turn.
                result.finished = None
                result.reopens.append(decision)
        result.decisions += decisions

    def _complete(self, decision: Complete) -> None:
        """Keep an output; compute the fingerprint of a node that the engine completed itself."""
        node, output = self.job.nodes[decision.node], decision.output
        if output is REPORTED:
            output = self.reported[node.id, node.attempt]
        self.result.outputs[node.id] = output
        if decision.reused is not None:
            self.result.reused.add(node.id)
        if self.reuse is not None and node.fingerprint is None:
            node.fingerprint = self.reuse.engine_fingerprint(node)

    async def resolve_all(self) -> None:
        """Answer needs and resolve params until nothing is left."""
        while self.needs or self.unresolved:
            needs, self.needs = self.needs, deque()
            needs = await self._without_too_large(needs)
            unresolved, self.unresolved = self.unresolved, []
            try:
                await self._load(needs, unresolved)
            except BlobNotFound:
                needs, unresolved = await self._load_one_by_one(needs, unresolved)
            for need in needs:
                node = None if need.node is None else self.job.nodes[need.node]
                scope = self.scopes.scope(node, need.refs)
                self.collect(advance(self.job, ValuesLoaded(need.node, scope), self.now))
            for decision in unresolved:
                self._resolve(decision)
            if self.reusable:
                await self._reuse_results()
        self.result.changed = self.job.drain_changed()
        self.scopes.clear()
        if self.reuse is not None:
            self.reuse.clear()

    async def _without_too_large(self, needs: deque[Need]) -> deque[Need]:
        """Return the needs that are answered; the others are for values that are larger than they may be."""
        if all(need.max_bytes is None for need in needs):
            return needs
        loadable: deque[Need] = deque()
        for need in needs:
            size = 0 if need.max_bytes is None else await self._blob_bytes([str(ref[1]) for ref in need.refs])
            if need.max_bytes is not None and size > need.max_bytes:
                message = f"the outputs have {size:,} bytes, and {need.max_bytes:,} are loaded at most"
                self.collect(advance(self.job, ResolutionFailed(need.node, "", message), self.now))
            else:
                loadable.append(need)
        return loadable

    async def _blob_bytes(self, node_ids: list[str]) -> int:
        fresh = self.result.outputs
        stored = [node_id for node_id in node_ids if node_id not in fresh]
        reported = [fresh[node_id] for node_id in node_ids if isinstance(fresh.get(node_id), JsonText)]
        return await self.values.blob_bytes(self.job.id, stored, reported)

    async def _reuse_results(self) -> None:
        """Complete nodes with reusable results, all in one read; start those whose result is gone."""
        reusable, self.reusable = self.reusable, {}
        assert self.reuse is not None  # noqa: S101 - for mypy; without reuse nothing is reusable
        for event in await self.reuse.fetch({node: source for node, (source, _) in reusable.items()}):
            del reusable[event.node]
            self.collect(advance(self.job, event, self.now))
        for _, request in reusable.values():
            self._start(request)

    def _start(self, request: ResolvedTask | ApprovalRequest) -> None:
        if isinstance(request, ResolvedTask):
            self.result.tasks.append(request)
        else:
            self.result.approvals.append(request)

    async def _load_one_by_one(
        self, needs: Iterable[Need], unresolved: list[Dispatch | StartChildJob | RequestApproval]
    ) -> tuple[deque[Need], list[Dispatch | StartChildJob | RequestApproval]]:
        """Fail the nodes that need a missing blob; return the needs and decisions that can be resolved."""
        loadable: tuple[deque[Need], list[Dispatch | StartChildJob | RequestApproval]] = (deque(), [])
        for need in needs:
            try:
                await self._load([need], [])
                loadable[0].append(need)
            except BlobNotFound as error:
                self.collect(advance(self.job, ResolutionFailed(need.node, "", str(error)), self.now))
        for decision in unresolved:
            try:
                await self._load([], [decision])
                loadable[1].append(decision)
            except BlobNotFound as error:
                self.collect(advance(self.job, ResolutionFailed(decision.node, "", str(error)), self.now))
        return loadable

    async def _load(
        self, needs: Iterable[Need], unresolved: list[Dispatch | StartChildJob | RequestApproval]
    ) -> None:
        nodes, scopes, values = self.job.nodes, self.scopes, self.values
        outputs: set[str] = set()
        keys: set[ValueKey] = set()
        for need in needs:
            scopes.add_needed(None if need.node is None else nodes[need.node], need.refs, outputs, keys)
        for decision in unresolved:
            scopes.add_needed(nodes[decision.node], _template(decision).refs, outputs, keys)
        outputs = {node_id for node_id in outputs if node_id not in scopes.outputs}
        keys = {key for key in keys if key not in scopes.loaded}
        # Outputs of this turn are not stored yet.
        fresh = outputs & self.result.outputs.keys()
        scopes.outputs.update(
            {node_id: await self._resolve_value(self.result.outputs[node_id]) for node_id in fresh}
        )
        outputs -= fresh
        if outputs:
            scopes.outputs.update(await values.load_outputs(self.job.id, outputs))
        sources = {key: self.result.sources[key.node] for key in keys if _is_fresh_source(key, self.result)}
        scopes.loaded.update(sources)
        keys -= sources.keys()
        if keys:
            scopes.loaded.update(await values.load(self.job.id, keys))
        await self._add_fresh_outputs(keys)

    async def _add_fresh_outputs(self, keys: Iterable[ValueKey]) -> None:
        """Add the outputs of children that completed in this turn to the outputs of fan-outs."""
        for key in [key for key in keys if key.kind is ValueKind.OUTPUTS]:
            fan = self.job.nodes[key.node]
            if isinstance(fan, FanOut):
                stored = self.scopes.loaded.get(key, [])
                below = f"{fan.id}__"
                outputs = self.result.outputs
                fresh = {
                    name: await self._resolve_value(outputs[name])
                    for name in outputs
                    if name.startswith(below)
                }
                self.scopes.loaded[key] = _outputs(fan, stored, fresh)

    async def _resolve_value(self, value: Any) -> Any:
        return await self.values.resolve_value(value) if isinstance(value, JsonText) else value

    def _resolve(self, decision: Dispatch | StartChildJob | RequestApproval) -> None:
        node = self.job.nodes[decision.node]
        if node.status not in _STARTED:
            return
        template = _template(decision)
        if isinstance(template, JsonTemplate) and isinstance(decision, Dispatch) and self.reuse is not None:
            self._start_or_reuse(
                node, ResolvedTask(decision.node, decision.attempt, decision.task, {}, template.text)
            )
            return
        if (secret := self.scopes.foreign_secret(template)) is not None:
            message = (
                f"secrets.{secret} is not of the tenant {self.scopes.tenant}, whose secrets have its name and"
                " two underscores before theirs"
            )
            self.collect(advance(self.job, ResolutionFailed(decision.node, "", message), self.now))
            return
        try:
            value = template.resolve({} if template.is_constant else self.scopes.scope(node, template.refs))
        except EvaluationFailed as error:
            self.collect(advance(self.job, ResolutionFailed(decision.node, error.path, str(error)), self.now))
            return
        if isinstance(decision, StartChildJob):
            # Its fingerprint depends on the graph of its workflow: see `child_jobs`.
            child = ChildJobRequest(decision.node, decision.attempt, decision.workflow, value)
            self.result.child_jobs.append(child)
            return
        request: ResolvedTask | ApprovalRequest
        if isinstance(decision, Dispatch):
            request = ResolvedTask(decision.node, decision.attempt, decision.task, value)
        else:
            request = ApprovalRequest(decision.node, decision.approval, str(value))
        self._start_or_reuse(node, request)

    def _start_or_reuse(self, node: Node, request: ResolvedTask | ApprovalRequest) -> None:
        source = (
            None
            if self.reuse is None
            else _find_reusable(self.reuse, node, request, self.scopes.secret_inputs)
        )
        if source is None:
            self._start(request)
        else:
            self.reusable[node.id] = (source, request)


def _is_fresh_source(key: ValueKey, result: TurnResult) -> bool:
    return key.kind is ValueKind.ITEMS and key.node in result.sources


def _find_reusable(
    reuse: ResultReuse, node: Node, request: ResolvedTask | ApprovalRequest, secret_inputs: frozenset[str]
) -> SourceNode | None:
    """Set the fingerprint of a node that is about to start; return a reusable result, if there is one."""
    if isinstance(request, ResolvedTask):
        params, spec = request.params, request.task
        if spec.params.uses and uses_secrets(spec.params, secret_inputs):
            # A value that is not encrypted, as an earlier version stored it, is filled in as that version
            # did.
            params = fill_inputs(params, lambda part: read_sealed(part.stored) is None)
            params, request.places, request.secret_inputs = detach_secrets(params)
        request.text = request.text or json.dumps(params)
        node.fingerprint = reuse.task_fingerprint(
            node, spec, request.text, request.places, request.secret_inputs
        )
    else:
        node.fingerprint = reuse.approval_fingerprint(node, request.approval, request.message)
    return reuse.find(node)


def _outputs(fan: FanOut, stored: list[Any], fresh: Mapping[str, Any]) -> list[Any]:
    outputs: list[JsonValue] = []
    for child in fan.children[: fan.expanded]:
        before = stored[child.index] if child.index < len(stored) else None
        if child.status is not NodeStatus.COMPLETED:
            outputs.append(None)
        elif isinstance(child, FanOut):
            outputs.append(_outputs(child, before or [], fresh))
        else:
            outputs.append(fresh.get(child.id, before))
    return outputs


def _template(decision: Dispatch | StartChildJob | RequestApproval) -> Template:
    if isinstance(decision, Dispatch):
        return decision.task.params
    return decision.workflow.inputs if isinstance(decision, StartChildJob) else decision.approval.message
