"""Reasons of finished nodes. Pure: the facts are arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode
from dagmaster.engine.gates import BROKEN, NOT_TAKEN
from dagmaster.engine.graph import ApprovalSpec, ConditionalSpec, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.engine.groups import is_group_start, members, written_name
from dagmaster.engine.json_size import preview
from dagmaster.engine.model import FanOut, fails_job, leaf_outcome
from dagmaster.engine.status import NodeStatus, SkipReason
from dagmaster.text_format import age, format_count, format_error, format_list, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.engine.diagnosis.context import DiagnosisContext
    from dagmaster.engine.graph import Branch
    from dagmaster.engine.model import Job, Node
    from dagmaster.json_types import JsonObject, JsonValue

_BY_KIND: Final = {
    "rejected": ReasonCode.REJECTED,
    "approval_timeout": ReasonCode.NO_ANSWER,
    "signal_timeout": ReasonCode.NO_SIGNAL,
    "expression": ReasonCode.UNRESOLVED,
    "no_branch": ReasonCode.UNRESOLVED,
    "invalid_source": ReasonCode.UNRESOLVED,
    "children_failed": ReasonCode.CHILDREN_FAILED,
    "child_job": ReasonCode.CHILD_JOB_FAILED,
}
_CHILD_JOB_KINDS: Final = frozenset({"child_job", "node_failed"})
"""Errors of a workflow node and of its child job: the failure of a node of that is their cause."""
_NAMED: Final = 20


def explain_finished(job: Job, node: Node, context: DiagnosisContext) -> Reason:
    if node.status is NodeStatus.COMPLETED:
        return _completed(node, context)
    if node.status is NodeStatus.FAILED:
        return _failed(node, context)
    if node.status is NodeStatus.CANCELLED:
        return _cancelled(job, node, context)
    return _skipped(job, node, context)


# ── Completed ──


def _completed(node: Node, context: DiagnosisContext) -> Reason:
    last = context.attempts.get(node.id)
    data: JsonObject = {"attempt": node.attempt or None}
    detail = _how_completed(node, context)
    if last is not None and last.attempt == node.attempt:
        data |= {"where": last.where, "seconds": last.seconds, "at": format_rfc3339(last.at)}
        where = f" on worker {last.where}" if last.where else ""
        took = "" if last.seconds is None else f" in {_format_duration(last.seconds)}"
        again = f", attempt {node.attempt}" if node.attempt > 1 else ""
        detail = f"{where}{took}{again}"
    return Reason(
        code=ReasonCode.COMPLETED, sentence=f"completed{detail}", group_sentence="completed", data=data
    )


def _how_completed(node: Node, context: DiagnosisContext) -> str:
    if isinstance(node, FanOut):
        return _how_all_completed(node)
    spec, output = node.spec, context.outputs.get(node.id)
    match spec:
        case ConditionalSpec():
            return f": took branch {node.branch}{_format_condition(spec, output)}"
        case ApprovalSpec() if isinstance(output, dict):
            return f": approved by {output.get('approved_by') or 'timeout'}"
        case WorkflowSpec() if node.id in context.child_jobs:
            return f": child job {context.child_jobs[node.id].id} completed"
        case WaitSpec(signal=None):
            return ": the wait ended"
        case WaitSpec(signal=signal):
            return f": signal {signal} arrived, or it timed out"
    group = members(spec)
    return f": all {format_count(len(group), 'member')}" if group else ""


def _how_all_completed(fan: FanOut) -> str:
    total = fan.total or 0
    if not fan.failed:
        return f": all {format_count(total, 'child', 'children')}"
    return f": {fan.completed:,} of {total:,} children, {format_count(fan.failed, 'tolerated failure')}"


def _format_condition(spec: ConditionalSpec, output: JsonValue) -> str:
    if spec.condition_field is None:
        return ""
    value = output.get("value") if isinstance(output, dict) else None
    return f" (value = {preview(value)})"


def _format_duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    fractional_below = 10
    return f"{seconds:.1f} s" if seconds < fractional_below else age(seconds)


# ── Failed ──


def _failed(node: Node, context: DiagnosisContext) -> Reason:
    error, spec = node.error or {}, node.spec
    if node.cancel_request is not None:
        return _cancelled_alone(node.cancel_request)
    kind = str(error.get("kind", "error"))
    code = _code(node, kind)
    message = _details(error) or format_error(error) or "no reason was given"
    data: JsonObject = {"error": error, "attempt": node.attempt or None}
    because: tuple[str, ...] = ()
    if isinstance(spec, TaskSpec):
        policy = spec.retry
        data |= {"failed_attempts": node.failed_attempts, "max_attempts": policy.max_attempts}
        data |= {"lost": node.lost_attempts, "max_lost": policy.max_lost}
        if code is ReasonCode.LOST:
            message = f"lost with its worker {_times(node.lost_attempts)} (max_lost {policy.max_lost})"
        elif code in (ReasonCode.FAILED, ReasonCode.DISPATCH_TIMEOUT):
            message += _format_budget(node.failed_attempts, policy.max_attempts)
    elif isinstance(node, FanOut):
        failed = [child.id for child in node.children[: node.expanded] if child.status is NodeStatus.FAILED]
        because = tuple(failed[:_NAMED])
        data |= {"failed": node.failed, "total": node.total}
    elif isinstance(spec, WorkflowSpec) and node.id in context.child_jobs:
        child = context.child_jobs[node.id]
        data |= {"job_id": child.id, "status": child.status}
        message = f"child job {child.id}: {message}"
    return Reason(
        code=code,
        sentence=f"failed: {message}",
        group_sentence=f"failed: {_format_common(error, message)}",
        data=data,
        because=because,
    )


def _cancelled_alone(error: JsonObject) -> Reason:
    cause, message = error.get("cause"), error.get("message", "cancelled")
    end = f"; it ended with: {format_error(cause)}" if isinstance(cause, dict) else ""
    return Reason(
        code=ReasonCode.NODE_CANCELLED,
        sentence=f"was {message}{end}",
        group_sentence=f"were {message}",
        data={"error": error, "by": error.get("by")},
    )


def _code(node: Node, kind: str) -> ReasonCode:
    """Return the reason code of an error.

    The kinds of the engine count only where the engine can set them.
    """
    spec = node.spec
    if not isinstance(spec, TaskSpec):
        return _BY_KIND.get(kind, ReasonCode.FAILED)
    if kind == "lost" and node.lost_attempts > 0:
        return ReasonCode.LOST
    if kind == "dispatch_timeout" and spec.dispatch_timeout_seconds is not None:
        return ReasonCode.DISPATCH_TIMEOUT
    return ReasonCode.UNRESOLVED if kind == "expression" and node.failed_attempts == 0 else ReasonCode.FAILED


def _details(error: JsonObject) -> str:
    """Return what to do about a missing handler, here or in a child job; "" for another error."""
    cause: Any = error
    while isinstance(cause, dict) and cause.get("kind") in _CHILD_JOB_KINDS:
        cause = cause.get("cause")
    # The errors of handlers may have their own details.
    details = (
        cause.get("details") if isinstance(cause, dict) and cause.get("kind") == "unknown_handler" else None
    )
    return details if isinstance(details, str) else ""


def _format_common(error: JsonObject, message: str) -> str:
    """Format what several failures have in common: their kind, or the exception."""
    kind, name = str(error.get("kind", "error")), str(error.get("type", ""))
    if kind == "error":
        return name or message
    return kind.replace("_", " ")


def _format_budget(failed_attempts: int, limit: int) -> str:
    if failed_attempts >= limit:
        return (
            f" (attempt {failed_attempts} of {limit}, no retries left)"
            if limit > 1
            else " (no retries configured)"
        )
    return f" (attempt {failed_attempts} of {limit}, not retried)" if failed_attempts else " (not retried)"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# ── Cancelled ──


def _cancelled(job: Job, node: Node, context: DiagnosisContext) -> Reason:
    fan = node.parent
    while fan is not None and not fan.stopped:
        fan = fan.parent
    if fan is not None:
        cancel = fan.cancel_request
        cause = (
            f"too many children of {fan.id} failed"
            if cancel is None
            else f"{fan.id} was {cancel.get('message')}"
        )
        because = (fan.id,) if fan.is_terminal else ()
        return _was_cancelled(ReasonCode.FAN_OUT_STOPPED, cause, because)
    if job.cancel_requested:
        return _was_cancelled(ReasonCode.CANCELLED, f"the job was cancelled{format_canceller(context)}")
    if job.deadline_passed:
        return _was_cancelled(ReasonCode.CANCELLED, "the job exceeded its deadline")
    first = first_failure(job)
    if first is not None and first is not node and job.ending:
        return _was_cancelled(ReasonCode.CANCELLED, f"{first.id} failed", (first.id,))
    return _was_cancelled(ReasonCode.CANCELLED, "its job was cancelled, in this run or an earlier one")


def _was_cancelled(code: ReasonCode, cause: str, because: tuple[str, ...] = ()) -> Reason:
    text = f"cancelled: {cause}"
    return Reason(code=code, sentence=f"was {text}", group_sentence=f"were {text}", because=because)


def format_canceller(context: DiagnosisContext) -> str:
    by = "" if context.cancelled_by is None else f" by {context.cancelled_by}"
    return by + ("" if context.cancelled_at is None else f" {age(context.now - context.cancelled_at)} ago")


def first_failure(job: Job) -> Node | None:
    failed = [node for node in job.nodes.values() if fails_job(node)]
    return min(failed, key=lambda node: node.finished_seq or 0, default=None)


# ── Skipped ──


def _skipped(job: Job, node: Node, context: DiagnosisContext) -> Reason:
    match node.skip_reason:
        case SkipReason.SUPERSEDED:
            if node.parent is None and node.spec.added_by is not None:
                cause = f"{node.spec.added_by} added it in an earlier run, and ran again"
                return _was_skipped(ReasonCode.SUPERSEDED, cause, (node.spec.added_by,))
            return _was_skipped(
                ReasonCode.SUPERSEDED, "an earlier run created it, from a list that was replaced"
            )
        case SkipReason.NOT_TAKEN:
            return _not_taken(job, node, context)
        case SkipReason.UPSTREAM_FAILED:
            return _upstream_failed(job, node)
    first = first_failure(job)
    if first is None or job.deadline_passed:
        cause = "the job exceeded its deadline" if job.deadline_passed else "the job was ending"
        return _was_skipped(ReasonCode.ENDED_EARLY, cause)
    return _was_skipped(ReasonCode.ENDED_EARLY, f"{first.id} failed, and the job ended", (first.id,))


def _was_skipped(
    code: ReasonCode, cause: str, because: tuple[str, ...] = (), data: JsonObject | None = None
) -> Reason:
    text = f"skipped: {cause}"
    return Reason(
        code=code, sentence=f"was {text}", group_sentence=f"were {text}", because=because, data=data or {}
    )


def _upstream_failed(job: Job, node: Node) -> Reason:
    broken = _leaves(job, node, BROKEN)
    failed = [name for name in broken if job.nodes[name].status is NodeStatus.FAILED]
    named = failed or broken
    top = node.top
    if not named and top is not node:
        return _was_skipped(ReasonCode.UPSTREAM_FAILED, f"{top.id} was skipped", (top.id,))
    verb = "failed" if failed else "did not run"
    cause = f"{format_list(named)} {verb}" if named else "an upstream node failed"
    return _was_skipped(ReasonCode.UPSTREAM_FAILED, cause, tuple(named[:_NAMED]))


def _leaves(job: Job, node: Node, outcome: int) -> list[str]:
    """Return the upstream nodes that have this outcome for a node, each once."""
    leaves = (leaf for leaf, _ in job.leaves(node.id) if job.leaf_outcome(leaf) == outcome)
    names = (job.stand_ins.get(leaf.node, leaf.node) for leaf in leaves)
    return [name for upstream in dict.fromkeys(names) for name in _without_start(job, upstream, outcome)]


def _without_start(job: Job, name: str, outcome: int) -> list[str]:
    """Return what settled the start of a group, instead of the start: no author wrote that node."""
    return (
        (_leaves(job, job.nodes[name], outcome) or [written_name(name)]) if is_group_start(name) else [name]
    )


def _not_taken(job: Job, node: Node, context: DiagnosisContext) -> Reason:
    for leaf, _ in job.leaves(node.id):
        source = job.nodes[leaf.node]
        if is_group_start(source.id) and source.skip_reason is SkipReason.NOT_TAKEN:
            return _not_taken(job, source, context)
        if (
            leaf.branch is not None
            and isinstance(source.spec, ConditionalSpec)
            and leaf_outcome(source, leaf.branch) == NOT_TAKEN
            and source.status is NodeStatus.COMPLETED
        ):
            return _other_branch(job, source, source.spec, leaf.branch, context)
    skipped = _leaves(job, node, NOT_TAKEN)
    if not skipped and node.parent is not None:
        skipped = [node.top.id]
    verb = "was skipped" if len(skipped) == 1 else "were skipped"
    cause = f"{format_list(skipped)} {verb}" if skipped else "no branch led to it"
    return _was_skipped(ReasonCode.UPSTREAM_SKIPPED, cause, tuple(skipped[:_NAMED]))


def _other_branch(
    job: Job, source: Node, spec: ConditionalSpec, name: str, context: DiagnosisContext
) -> Reason:
    """Explain a branch that was not taken by the values that the condition read."""
    names = [branch.name for branch in spec.branches]
    branch = spec.branches[names.index(name)]
    taken = source.branch or ""
    data: JsonObject = {"conditional": source.id, "branch": name, "taken": taken}
    output = context.outputs.get(source.id)
    has_value = spec.condition_field is not None and isinstance(output, dict)
    value = output.get("value") if has_value and isinstance(output, dict) else None
    if has_value:
        data["value"] = value
    parts = [f"value = {preview(value)}"] if has_value else []
    condition = _condition_source(job, source, branch)
    if branch.condition is None:
        parts.append(f"{source.id} took branch {taken}, so the default {name} was not needed")
        condition = None
    elif taken in names and names.index(taken) < names.index(name):
        parts.append(f"{source.id} took branch {taken} before evaluating {name}")
    else:
        values = [f"{path} = {preview(value)}" for path, value in _values_read(branch, context)]
        parts += [*values, f"branch {name} ({condition}) was false; {source.id} took {taken}"]
    data["condition"] = condition
    return _was_skipped(ReasonCode.BRANCH_NOT_TAKEN, ", ".join(parts), data=data)


def _condition_source(job: Job, source: Node, branch: Branch) -> str | None:
    nodes = job.graph.definition.get("nodes", {})
    branches = nodes.get(source.id, {}).get("branches", []) if isinstance(nodes, dict) else []
    names = [definition.get("name") for definition in branches]
    if branch.name in names and branches[names.index(branch.name)].get("condition") is not None:
        return str(branches[names.index(branch.name)]["condition"])
    return None if branch.condition is None else branch.condition.text


def _values_read(branch: Branch, context: DiagnosisContext) -> Iterator[tuple[str, JsonValue]]:
    """Yield the paths that the condition read besides `value`, each with its value."""
    for use in () if branch.condition is None else branch.condition.uses:
        root, *keys = use.keys
        value: Any = context.inputs
        if root == "nodes" and len(keys) > 1 and keys[1] == "output":
            value, keys = context.outputs.get(str(keys[0])), keys[2:]
        elif root != "inputs":
            continue
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            yield ".".join(map(str, use.keys)), value
