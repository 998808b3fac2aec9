"""How each kind of node starts, and what it decides once its values are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.engine import approvals_and_waits, fanout
from dagmaster.engine.aggregation import aggregate
from dagmaster.engine.decisions import Dispatch, Need, StartChildJob
from dagmaster.engine.expressions.conditions import condition_holds
from dagmaster.engine.gates import SATISFIED
from dagmaster.engine.graph import (
    Aggregation,
    ApprovalSpec,
    ConditionalSpec,
    EndSpec,
    FanInSpec,
    FanOutSpec,
    GateKind,
    GroupSpec,
    Leaf,
    StartSpec,
    TaskSpec,
    WaitSpec,
    WorkflowSpec,
)
from dagmaster.engine.groups import all_members
from dagmaster.engine.json_size import check_size, preview
from dagmaster.engine.model import FanOut, Job, Node, leaf_outcome
from dagmaster.engine.status import Isolation, NodeStatus, isolation_after
from dagmaster.engine.step import Step, failure, loaded
from dagmaster.engine.transitions import Move
from dagmaster.errors import EvaluationFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagmaster.json_types import JsonValue


def start(step: Step, node: Node) -> None:
    if node.status is NodeStatus.PENDING:
        step.move(node, Move.READY)
        if node.parent is None and node.spec.requires is not None:
            node.upstream = _upstream(step.job, node)
    spec = node.spec
    if isinstance(spec, TaskSpec):
        _dispatch(step, node, spec)
    elif isinstance(spec, StartSpec | EndSpec | GroupSpec):
        step.complete(node, {})
    elif isinstance(spec, WorkflowSpec):
        step.move(node, Move.START)
        node.attempt += 1
        step.out.append(StartChildJob(node.id, node.attempt, spec))
    elif isinstance(spec, ApprovalSpec):
        approvals_and_waits.request_approval(step, node, spec)
    elif isinstance(spec, WaitSpec) and spec.signal is not None:
        approvals_and_waits.wait_for_signal(step, node, spec)
    elif isinstance(node, FanOut) and node.total is not None:
        fanout.reopen(step, node)
    else:
        request_values(step, node)


def _dispatch(step: Step, node: Node, spec: TaskSpec) -> None:
    step.move(node, Move.DISPATCH)
    node.attempt += 1
    node.wake_at = None
    step.out.append(Dispatch(node.id, node.attempt, spec))
    seconds = spec.dispatch_timeout_seconds
    # An exclusive task waits for a worker without other tasks: that is no failure of the queue.
    if seconds is not None and isolation_after(node.shared_losses) is not Isolation.EXCLUSIVE:
        step.wait_until(node, step.now + seconds)


def request_values(step: Step, node: Node) -> None:
    """Request the values that a decision needs; decide at once if it needs none."""
    need = need_of(step.job, node)
    if need.refs:
        step.out.append(need)
    else:
        decide(step, node, {})


def need_of(job: Job, node: Node) -> Need:
    return Need(node.id, _refs(job, node))


def _refs(job: Job, node: Node) -> tuple[tuple[str | int, ...], ...]:
    spec = node.spec
    if isinstance(spec, ConditionalSpec):
        return spec.refs
    if isinstance(spec, FanOutSpec):
        return spec.source.refs
    if isinstance(spec, WaitSpec):
        template = spec.seconds if spec.seconds is not None else spec.until
        return () if template is None else template.refs
    if isinstance(spec, FanInSpec):
        if spec.over is not None:
            return (("nodes", spec.over, "outputs"), ("nodes", spec.over, "failed"))
        completed = (
            source for source in _sources(job, spec) if job.nodes[source].status is NodeStatus.COMPLETED
        )
        return tuple(("nodes", source, "output") for source in completed)
    return ()


def decide(step: Step, node: Node, scope: Mapping[str, JsonValue]) -> None:
    spec = node.spec
    if isinstance(spec, ConditionalSpec):
        _take_branch(step, node, spec, scope)
    elif isinstance(node, FanOut):
        fanout.freeze(step, node, scope)
    elif isinstance(spec, WaitSpec):
        approvals_and_waits.wait_for_time(step, node, spec, scope)
    elif isinstance(spec, FanInSpec):
        _fan_in(step, node, spec, scope)
    else:
        raise TypeError(f"nothing decides about a node of kind {spec.kind}")


def _take_branch(step: Step, node: Node, spec: ConditionalSpec, scope: Mapping[str, JsonValue]) -> None:
    try:
        value = None if spec.condition_field is None else spec.condition_field.resolve(scope)
        check_size(value, "condition_field")
        bound = {**scope, "value": value}
        taken = next(
            (b for b in spec.branches if b.condition is None or condition_holds(b.condition, bound)), None
        )
    except EvaluationFailed as error:
        step.fail(node, failure("expression", str(error), path=error.path))
        return
    if taken is None:
        step.fail(
            node, failure("no_branch", f"no branch matches value {preview(value)}, and there is no default")
        )
        return
    node.branch = taken.name
    target = taken.next[0] if len(taken.next) == 1 else list(taken.next) or None
    step.complete(node, {"branch_taken": target, "branch": taken.name, "value": value})


def _fan_in(step: Step, node: Node, spec: FanInSpec, scope: Mapping[str, JsonValue]) -> None:
    try:
        output = aggregate(spec.aggregation, *_fan_in_inputs(step.job, spec, scope))
        check_size(output, f"the result of {spec.aggregation}")
    except EvaluationFailed as error:
        step.fail(node, failure("expression", str(error), path=error.path))
    except OverflowError:
        step.fail(node, failure("aggregation", f"{spec.aggregation}: the numbers are too large to add"))
    else:
        step.complete(node, output)


def _sources(job: Job, spec: FanInSpec) -> Iterable[str]:
    """Return the nodes that a fan-in aggregates: of a group, its members."""
    specs = job.graph.specs
    if GroupSpec not in {type(specs[source]) for source in spec.sources}:
        return spec.sources
    return dict.fromkeys(member for source in spec.sources for member in all_members(job.graph.specs, source))


def _fan_in_inputs(job: Job, spec: FanInSpec, scope: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    if spec.over is None:
        # Only loaded outputs count: more sources may have completed since (an `any_of` starts with the
        # first).
        nodes = scope.get("nodes", {})
        if spec.aggregation is Aggregation.COLLECT_ALL:
            return [nodes.get(source, {}).get("output") for source in _sources(job, spec)], []
        values = [nodes[source] for source in _sources(job, spec) if source in nodes]
        return [one["output"] for one in values if "output" in one], []
    failed = loaded(scope, spec.over, "failed")
    if spec.aggregation is Aggregation.COLLECT_ALL:
        return loaded(scope, spec.over, "outputs"), failed
    failed_indexes = {item["index"] for item in failed}
    outputs = loaded(scope, spec.over, "outputs")
    return [output for index, output in enumerate(outputs) if index not in failed_indexes], failed


def _upstream(job: Job, node: Node) -> str | None:
    """Return the satisfied leaf that finished first, `upstream` in expressions; None without one."""
    leaves, gates = job.leaves(node.id), job.gates(node.id)
    if not leaves or (gates[0].kind is GateKind.ALL and len(leaves) > 1):
        return None
    counts = job.counts[node.id]

    def is_satisfied(leaf: Leaf, gate: int) -> bool:
        while gate >= 0 and counts[4 * gate] == SATISFIED:
            gate = gates[gate].parent
        return gate < 0 and leaf_outcome(job.nodes[leaf.node], leaf.branch) == SATISFIED

    satisfied = [job.nodes[leaf.node] for leaf, gate in leaves if is_satisfied(leaf, gate)]
    return min(satisfied, key=lambda source: source.finished_seq or 0).id if satisfied else None
