"""One turn of an orchestrator on one job: happenings in, everything that is to be written out.

Load, advance, resolve, save: the engine decides, this carries. Needs are answered for all nodes at once, so that a turn
costs a few loads however many nodes it touches.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from dagmaster.engine.expressions.templates import detach_secrets
from dagmaster.engine.model import FanOut
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import BlobNotFound, EvaluationFailed
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.node_values import ValueKey, ValueKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import ApprovalSpec, TaskSpec, WorkflowSpec
    from dagmaster.engine.model import Job, Node
    from dagmaster.orchestrator.expression_scopes import ExpressionScopes
    from dagmaster.orchestrator.result_reuse import ResultReuse
    from dagmaster.ports.node_values import Values
    from dagmaster.ports.reusable_results import SourceNode


@dataclass(slots=True)
class ResolvedTask:
    """A task that is ready for a worker. Secrets in `params` are still names."""

    node: str
    attempt: int
    task: TaskSpec
    params: dict[str, Any]
    # As they are stored, where they are to be: the params without secrets, and the places of those.
    text: str = ""
    places: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class ChildJobRequest:
    """A child job to start."""

    node: str
    attempt: int
    workflow: WorkflowSpec
    inputs: dict[str, Any]


@dataclass(slots=True)
class ApprovalRequest:
    """People to ask."""

    node: str
    approval: ApprovalSpec
    message: str


@dataclass(slots=True)
class TurnResult:
    """What a turn decided, ready to be written."""

    changed: list[Node] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    # What happened, each with the number of decisions that were made before it.
    happened: list[tuple[int, EngineEvent]] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, list[Any]] = field(default_factory=dict)
    tasks: list[ResolvedTask] = field(default_factory=list)
    child_jobs: list[ChildJobRequest] = field(default_factory=list)
    approvals: list[ApprovalRequest] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    withdrawals: list[Withdraw] = field(default_factory=list)
    finished: FinishJob | None = None
    # Nodes that have the result of another job: nothing was started for them.
    reused: set[str] = field(default_factory=set)

    @property
    def is_reopened(self) -> bool:
        """Whether the job was opened again in this turn."""
        return any(isinstance(each, Reopen) for each in self.decisions)

    def then(self, more: TurnResult) -> TurnResult:
        """Add what was decided after it, in the same turn."""
        done = len(self.decisions)
        changed = list(dict.fromkeys([*self.changed, *more.changed]))
        return TurnResult(
            changed=changed,
            decisions=self.decisions + more.decisions,
            happened=self.happened + [(done + place, happening) for place, happening in more.happened],
            outputs={**self.outputs, **more.outputs},
            sources={**self.sources, **more.sources},
            tasks=self.tasks + more.tasks,
            child_jobs=more.child_jobs,
            approvals=self.approvals + more.approvals,
            stops=self.stops + more.stops,
            withdrawals=self.withdrawals + more.withdrawals,
            finished=more.finished if more.is_reopened else more.finished or self.finished,
            reused=self.reused | more.reused,
        )


async def run_turn(
    job: Job,
    happenings: Iterable[EngineEvent],
    *,
    reported: Mapping[tuple[str, int], Any],
    scopes: ExpressionScopes,
    values: Values,
    now: float,
    recall: ResultReuse | None = None,
) -> TurnResult:
    """Apply happenings to a job and work out everything that follows from them.

    `reported` has the output of each attempt that succeeded: it becomes the node's only if the engine says so. It is
    `JsonText` where it was read from a store, and then stays text unless an expression asks for it. `recall` makes
    fingerprints, and finds results that need not be made again; without it there is neither.
    """
    turn = _Turn(job, reported, scopes, values, now, recall)
    for happening in happenings:
        turn.writes.happened.append((len(turn.writes.decisions), happening))
        turn.take(advance(job, happening, now))
    await turn.settle()
    return turn.writes


async def recover(
    job: Job, *, scopes: ExpressionScopes, values: Values, now: float, recall: ResultReuse | None = None
) -> TurnResult:
    """Answer what a job that was just loaded still waits for."""
    turn = _Turn(job, {}, scopes, values, now, recall)
    turn.take(pending_needs(job))
    await turn.settle()
    return turn.writes


class _Turn:
    """The state of one turn."""

    def __init__(  # noqa: PLR0917 - what a turn is taken with
        self,
        job: Job,
        reported: Mapping[tuple[str, int], Any],
        scopes: ExpressionScopes,
        values: Values,
        now: float,
        recall: ResultReuse | None,
    ) -> None:
        self.job = job
        self.reported = reported
        self.scopes = scopes
        self.values = values
        self.now = now
        self.recall = recall
        self.writes = TurnResult()
        self.needs: deque[Need] = deque()
        self.unresolved: list[Dispatch | StartChildJob | RequestApproval] = []
        # What the past has a result for, and what is to be started if that is gone.
        self.recalled: dict[str, tuple[SourceNode, ResolvedTask | ApprovalRequest]] = {}

    def take(self, decisions: list[Decision]) -> None:
        """Sort decisions into what is written as it is and what needs values first."""
        writes = self.writes
        for decision in decisions:
            if isinstance(decision, Complete):
                self._complete(decision)
            elif isinstance(decision, Dispatch | StartChildJob | RequestApproval):
                self.unresolved.append(decision)
            elif isinstance(decision, Need):
                self.needs.append(decision)
            elif isinstance(decision, Expand):
                if decision.source is not None:
                    writes.sources[decision.node] = decision.source
            elif isinstance(decision, Stop):
                writes.stops.append(decision)
            elif isinstance(decision, Withdraw):
                writes.withdrawals.append(decision)
            elif isinstance(decision, FinishJob):
                writes.finished = decision
            elif isinstance(decision, Reopen):
                # It ended in this turn, and goes on in it.
                writes.finished = None
        writes.decisions += decisions

    def _complete(self, decision: Complete) -> None:
        """Keep an output; and say what it is the output of, where that was not known before it was there."""
        node, output = self.job.nodes[decision.node], decision.output
        if output is REPORTED:
            output = self.reported[node.id, node.attempt]
        self.writes.outputs[node.id] = output
        if decision.reused is not None:
            self.writes.reused.add(node.id)
        if self.recall is not None and node.fingerprint is None:
            node.fingerprint = self.recall.of_completed(node)

    async def settle(self) -> None:
        """Answer needs and resolve params until nothing is left to do."""
        while self.needs or self.unresolved:
            needs, self.needs = self.needs, deque()
            unresolved, self.unresolved = self.unresolved, []
            try:
                await self._load(needs, unresolved)
            except BlobNotFound:
                needs, unresolved = await self._load_one_by_one(needs, unresolved)
            for need in needs:
                node = None if need.node is None else self.job.nodes[need.node]
                scope = self.scopes.scope(node, need.refs)
                self.take(advance(self.job, ValuesLoaded(need.node, scope), self.now))
            for decision in unresolved:
                self._resolve(decision)
            if self.recalled:
                await self._use_again()
        self.writes.changed = self.job.drain_changed()
        self.scopes.forget()
        if self.recall is not None:
            self.recall.forget()

    async def _use_again(self) -> None:
        """Complete nodes with results of the past, all at once; what is gone meanwhile is started."""
        recalled, self.recalled = self.recalled, {}
        assert self.recall is not None  # noqa: S101 - for mypy; who recalls nothing finds nothing
        for happening in await self.recall.fetch({node: past for node, (past, _) in recalled.items()}):
            del recalled[happening.node]
            self.take(advance(self.job, happening, self.now))
        for _, request in recalled.values():
            self._start(request)

    def _start(self, request: ResolvedTask | ApprovalRequest) -> None:
        if isinstance(request, ResolvedTask):
            self.writes.tasks.append(request)
        else:
            self.writes.approvals.append(request)

    async def _load_one_by_one(
        self, needs: Iterable[Need], unresolved: list[Dispatch | StartChildJob | RequestApproval]
    ) -> tuple[deque[Need], list[Dispatch | StartChildJob | RequestApproval]]:
        """A value is gone for good: who needs it fails, and the others go on."""
        sound: tuple[deque[Need], list[Dispatch | StartChildJob | RequestApproval]] = (deque(), [])
        for need in needs:
            try:
                await self._load([need], [])
                sound[0].append(need)
            except BlobNotFound as error:
                self.take(advance(self.job, ResolutionFailed(need.node, "", str(error)), self.now))
        for decision in unresolved:
            try:
                await self._load([], [decision])
                sound[1].append(decision)
            except BlobNotFound as error:
                self.take(advance(self.job, ResolutionFailed(decision.node, "", str(error)), self.now))
        return sound

    async def _load(self, needs: Iterable[Need], unresolved: list[Dispatch | StartChildJob | RequestApproval]) -> None:
        nodes = self.job.nodes
        wanted = {
            key
            for need in needs
            for key in self.scopes.wanted(None if need.node is None else nodes[need.node], need.refs)
        }
        for decision in unresolved:
            wanted.update(self.scopes.wanted(nodes[decision.node], _template(decision).refs))
        # What this very turn decided is in no store yet.
        fresh = {ValueKind.OUTPUT: self.writes.outputs, ValueKind.ITEMS: self.writes.sources, ValueKind.OUTPUTS: {}}
        here = {key: await self._opened(fresh[key.kind][key.node]) for key in wanted if key.node in fresh[key.kind]}
        self.scopes.loaded.update(here)
        missing = wanted - here.keys()
        if missing:
            self.scopes.loaded.update(await self.values.load(self.job.id, missing))
        await self._add_fresh_outputs(missing)

    async def _add_fresh_outputs(self, keys: Iterable[ValueKey]) -> None:
        """Complete the outputs of fan-outs with those of children that ended in this turn."""
        for key in keys:
            fan = self.job.nodes[key.node]
            if key.kind is ValueKind.OUTPUTS and isinstance(fan, FanOut):
                stored = self.scopes.loaded.get(key, [])
                below = f"{fan.id}__"
                outputs = self.writes.outputs
                fresh = {each: await self._opened(outputs[each]) for each in outputs if each.startswith(below)}
                self.scopes.loaded[key] = _outputs(fan, stored, fresh)

    async def _opened(self, value: Any) -> Any:
        return await self.values.resolve_value(value) if isinstance(value, JsonText) else value

    def _resolve(self, decision: Dispatch | StartChildJob | RequestApproval) -> None:
        node = self.job.nodes[decision.node]
        if node.status not in (NodeStatus.DISPATCHED, NodeStatus.RUNNING, NodeStatus.WAITING):
            return
        template = _template(decision)
        try:
            value = template.resolve({} if template.is_constant else self.scopes.scope(node, template.refs))
        except EvaluationFailed as error:
            self.take(advance(self.job, ResolutionFailed(decision.node, error.path, str(error)), self.now))
            return
        if isinstance(decision, StartChildJob):
            # Its fingerprint is known when its workflow was found: see `children`.
            child = ChildJobRequest(decision.node, decision.attempt, decision.workflow, value)
            self.writes.child_jobs.append(child)
            return
        request: ResolvedTask | ApprovalRequest
        if isinstance(decision, Dispatch):
            request = ResolvedTask(decision.node, decision.attempt, decision.task, value)
        else:
            request = ApprovalRequest(decision.node, decision.approval, str(value))
        past = None if self.recall is None else _looked_up(self.recall, node, request)
        if past is None:
            self._start(request)
        else:
            self.recalled[decision.node] = (past, request)


def _looked_up(recall: ResultReuse, node: Node, request: ResolvedTask | ApprovalRequest) -> SourceNode | None:
    """Give what is about to start its fingerprint, and the result that the past has for it."""
    if isinstance(request, ResolvedTask):
        params, spec = request.params, request.task
        if names_secrets(spec.params):
            params, request.places = detach_secrets(params)
        request.text = json.dumps(params)
        node.fingerprint = recall.of_task(node, spec, request.text, request.places)
    else:
        node.fingerprint = recall.of_approval(node, request.approval, request.message)
    return recall.find(node)


def names_secrets(template: Template) -> bool:
    """Whether a template has a secret in it."""
    return any(use.keys[:1] == ("secrets",) for _, use in template.uses)


def _outputs(fan: FanOut, stored: list[Any], fresh: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for child in fan.children[: fan.expanded]:
        before = stored[child.index] if child.index < len(stored) else None
        if child.status is not NodeStatus.COMPLETED:
            found.append(None)
        elif isinstance(child, FanOut):
            found.append(_outputs(child, before or [], fresh))
        else:
            found.append(fresh.get(child.id, before))
    return found


def _template(decision: Dispatch | StartChildJob | RequestApproval) -> Template:
    if isinstance(decision, Dispatch):
        return decision.task.params
    return decision.workflow.inputs if isinstance(decision, StartChildJob) else decision.approval.message
