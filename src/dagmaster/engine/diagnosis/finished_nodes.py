"""Why a node that is over ended as it did. Pure: the facts are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode
from dagmaster.engine.gates import BROKEN, NOT_TAKEN
from dagmaster.engine.graph import ApprovalSpec, ConditionalSpec, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.engine.json_size import shown
from dagmaster.engine.model import FanOut, fails_job, leaf_outcome
from dagmaster.engine.status import NodeStatus, SkipReason
from dagmaster.text_format import age, counted, format_error, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.engine.diagnosis.context import DiagnosisContext
    from dagmaster.engine.graph import Branch
    from dagmaster.engine.model import Job, Node

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
_NAMED: Final = 20


def over(job: Job, node: Node, around: DiagnosisContext) -> Reason:
    """Why a node that is over ended as it did."""
    if node.status is NodeStatus.COMPLETED:
        return _completed(node, around)
    if node.status is NodeStatus.FAILED:
        return _failed(node, around)
    if node.status is NodeStatus.CANCELLED:
        return _cancelled(job, node, around)
    return _skipped(job, node, around)


# ── Completed ──


def _completed(node: Node, around: DiagnosisContext) -> Reason:
    last = around.attempts.get(node.id)
    data: dict[str, Any] = {"attempt": node.attempt or None}
    said = _how(node, around)
    if last is not None and last.attempt == node.attempt:
        data |= {"where": last.where, "seconds": last.seconds, "at": rfc3339(last.at)}
        where = f" on worker {last.where}" if last.where else ""
        took = "" if last.seconds is None else f" in {_short(last.seconds)}"
        again = f", attempt {node.attempt}" if node.attempt > 1 else ""
        said = f"{where}{took}{again}"
    return Reason(code=ReasonCode.COMPLETED, sentence=f"completed{said}", together="completed", data=data)


def _how(node: Node, around: DiagnosisContext) -> str:
    """How a node completed that is no task."""
    spec, output = node.spec, around.outputs.get(node.id)
    if isinstance(spec, ConditionalSpec):
        value = output.get("value") if isinstance(output, dict) else None
        why = "" if spec.condition_field is None else f", for value = {shown(value)}"
        return f" and took branch {node.branch}{why}"
    if isinstance(spec, ApprovalSpec) and isinstance(output, dict):
        return f": approved by {output.get('approved_by') or 'nobody, its time was over'}"
    if isinstance(node, FanOut) and node.failed:
        return f": {node.completed:,} of {node.total or 0:,} children; {node.failed:,} failures are tolerated"
    if isinstance(node, FanOut):
        return f": all {counted(node.total or 0, 'child', 'children')}"
    if isinstance(spec, WorkflowSpec) and node.id in around.child_jobs:
        return f": child job {around.child_jobs[node.id].id} did"
    if isinstance(spec, WaitSpec):
        return ": its time came" if spec.signal is None else f": signal {spec.signal} came, or its time was over"
    return ""


def _short(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    few = 10
    return f"{seconds:.1f} s" if seconds < few else age(seconds)


# ── Failed ──


def _failed(node: Node, around: DiagnosisContext) -> Reason:
    error, spec = node.error or {}, node.spec
    kind = str(error.get("kind", "error"))
    code = _code(node, kind)
    said = format_error(error) or "no reason was given"
    data: dict[str, Any] = {"error": error, "attempt": node.attempt or None}
    because: tuple[str, ...] = ()
    if isinstance(spec, TaskSpec):
        policy = spec.retry
        data |= {"tries": node.failed_attempts, "max_attempts": policy.max_attempts}
        data |= {"lost": node.lost_attempts, "max_lost": policy.max_lost}
        if code is ReasonCode.LOST:
            said = f"lost with its worker {_times(node.lost_attempts)} (max_lost {policy.max_lost})"
        elif code in (ReasonCode.FAILED, ReasonCode.DISPATCH_TIMEOUT):
            said += _budget(node.failed_attempts, policy.max_attempts)
    elif isinstance(node, FanOut):
        failed = [child.id for child in node.children[: node.expanded] if child.status is NodeStatus.FAILED]
        because = tuple(failed[:_NAMED])
        data |= {"failed": node.failed, "total": node.total}
    elif isinstance(spec, WorkflowSpec) and node.id in around.child_jobs:
        child = around.child_jobs[node.id]
        data |= {"job_id": child.id, "status": child.status}
        said = f"child job {child.id}: {said}"
    return Reason(
        code=code, sentence=f"failed: {said}", together=f"failed: {_common(error, said)}", data=data, because=because
    )


def _code(node: Node, kind: str) -> ReasonCode:
    """What the engine says is known by its kind; a handler may choose the same word for something else."""
    spec = node.spec
    if not isinstance(spec, TaskSpec):
        return _BY_KIND.get(kind, ReasonCode.FAILED)
    if kind == "lost" and node.lost_attempts > 0:
        return ReasonCode.LOST
    if kind == "dispatch_timeout" and spec.dispatch_timeout_seconds is not None:
        return ReasonCode.DISPATCH_TIMEOUT
    return ReasonCode.UNRESOLVED if kind == "expression" and node.failed_attempts == 0 else ReasonCode.FAILED


def _common(error: dict[str, Any], said: str) -> str:
    """What is said of several failures at once: their kind, or the exception."""
    kind, name = str(error.get("kind", "error")), str(error.get("type", ""))
    if kind == "error":
        return name or said
    return kind.replace("_", " ")


def _budget(tries: int, most: int) -> str:
    if tries >= most:
        return f" (try {tries} of {most}, the budget is used up)" if most > 1 else " (the only try)"
    return f" (try {tries} of {most}; it is not tried again)" if tries else " (it is not tried again)"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# ── Cancelled ──


def _cancelled(job: Job, node: Node, around: DiagnosisContext) -> Reason:
    fan = node.parent
    while fan is not None and not fan.stopped:
        fan = fan.parent
    if fan is not None:
        said = f"too many children of {fan.id} had failed"
        because = (fan.id,) if fan.is_terminal else ()
        return _was_stopped(ReasonCode.FAN_OUT_STOPPED, said, because)
    if job.cancel_requested:
        return _was_stopped(ReasonCode.CANCELLED, f"the job was cancelled{by_whom(around)}")
    if job.deadline_passed:
        return _was_stopped(ReasonCode.CANCELLED, "the job's deadline was over")
    first = first_failure(job)
    if first is not None and first is not node and job.ending:
        return _was_stopped(ReasonCode.CANCELLED, f"{first.id} had failed", (first.id,))
    return _was_stopped(ReasonCode.CANCELLED, "its job was, in this run or an earlier one")


def _was_stopped(code: ReasonCode, why: str, because: tuple[str, ...] = ()) -> Reason:
    said = f"stopped: {why}"
    return Reason(code=code, sentence=f"was {said}", together=f"were {said}", because=because)


def by_whom(around: DiagnosisContext) -> str:
    """Who asked for the job to stop, and when."""
    who = "" if around.cancelled_by is None else f" by {around.cancelled_by}"
    return who + ("" if around.cancelled_at is None else f" {age(around.now - around.cancelled_at)} ago")


def first_failure(job: Job) -> Node | None:
    """The node that failed the job: the first of those that do."""
    failed = [node for node in job.nodes.values() if fails_job(node)]
    return min(failed, key=lambda node: node.finished_seq or 0, default=None)


# ── Skipped ──


def _skipped(job: Job, node: Node, around: DiagnosisContext) -> Reason:
    match node.skip_reason:
        case SkipReason.SUPERSEDED:
            return _was_skipped(ReasonCode.SUPERSEDED, "an earlier run made it, from a list that is gone")
        case SkipReason.NOT_TAKEN:
            return _not_taken(job, node, around)
        case SkipReason.UPSTREAM_FAILED:
            return _upstream_failed(job, node)
    first = first_failure(job)
    if first is None or job.deadline_passed:
        said = "the job's deadline was over" if job.deadline_passed else "the job was ending"
        return _was_skipped(ReasonCode.ENDED_EARLY, said)
    return _was_skipped(ReasonCode.ENDED_EARLY, f"{first.id} had failed, and the job ended", (first.id,))


def _was_skipped(
    code: ReasonCode, why: str, because: tuple[str, ...] = (), data: dict[str, Any] | None = None
) -> Reason:
    said = f"skipped: {why}"
    return Reason(code=code, sentence=said, together=said, because=because, data=data or {})


def _upstream_failed(job: Job, node: Node) -> Reason:
    broken = _leaves(job, node, BROKEN)
    failed = [name for name in broken if job.nodes[name].status is NodeStatus.FAILED]
    named = failed or broken
    top = node.top
    if not named and top is not node:
        return _was_skipped(ReasonCode.UPSTREAM_FAILED, f"{top.id} was", (top.id,))
    verb = "failed" if failed else "did not run"
    said = f"{listed(named)} {verb}" if named else "a node before it failed"
    return _was_skipped(ReasonCode.UPSTREAM_FAILED, said, tuple(named[:_NAMED]))


def _leaves(job: Job, node: Node, outcome: int) -> list[str]:
    """The nodes before this one that mean such an outcome to it, each once."""
    found = (leaf.node for leaf, _ in job.leaves(node.id) if leaf_outcome(job.nodes[leaf.node], leaf.branch) == outcome)
    return list(dict.fromkeys(found))


def _not_taken(job: Job, node: Node, around: DiagnosisContext) -> Reason:
    for leaf, _ in job.leaves(node.id):
        source = job.nodes[leaf.node]
        if (
            leaf.branch is not None
            and isinstance(source.spec, ConditionalSpec)
            and leaf_outcome(source, leaf.branch) == NOT_TAKEN
            and source.status is NodeStatus.COMPLETED
        ):
            return _other_branch(job, source, source.spec, leaf.branch, around)
    skipped = _leaves(job, node, NOT_TAKEN)
    if not skipped and node.parent is not None:
        skipped = [node.top.id]
    verb = "was skipped" if len(skipped) == 1 else "were skipped"
    said = f"{listed(skipped)} {verb}" if skipped else "no branch led to it"
    return _was_skipped(ReasonCode.UPSTREAM_SKIPPED, said, tuple(skipped[:_NAMED]))


def _other_branch(job: Job, source: Node, spec: ConditionalSpec, wanted: str, around: DiagnosisContext) -> Reason:
    """A conditional took another branch. Its value is stored with it; what else its condition read is looked up."""
    names = [branch.name for branch in spec.branches]
    branch = spec.branches[names.index(wanted)]
    taken = source.branch or ""
    data: dict[str, Any] = {"conditional": source.id, "branch": wanted, "taken": taken}
    output = around.outputs.get(source.id)
    has_value = spec.condition_field is not None and isinstance(output, dict)
    value = output.get("value") if has_value and isinstance(output, dict) else None
    if has_value:
        data["value"] = value
    said = [f"value = {shown(value)}"] if has_value else []
    condition = _written(job, source, branch)
    if branch.condition is None:
        said.append(f"{source.id} took branch {taken}, so the default {wanted} was not needed")
        condition = None
    elif names.index(taken) < names.index(wanted) if taken in names else False:
        said.append(f"{source.id} took branch {taken} before it came to {wanted}")
    else:
        read = [f"{path} = {shown(found)}" for path, found in _read(branch, around)]
        said += [*read, f"branch {wanted} ({condition}) was false; {source.id} took {taken}"]
    data["condition"] = condition
    return _was_skipped(ReasonCode.BRANCH_NOT_TAKEN, ", ".join(said), data=data)


def _written(job: Job, source: Node, branch: Branch) -> str | None:
    """The condition as its author wrote it."""
    nodes = job.graph.definition.get("nodes", {})
    written = nodes.get(source.id, {}).get("branches", []) if isinstance(nodes, dict) else []
    names = [each.get("name") for each in written]
    if branch.name in names and written[names.index(branch.name)].get("condition") is not None:
        return str(written[names.index(branch.name)]["condition"])
    return None if branch.condition is None else branch.condition.text


def _read(branch: Branch, around: DiagnosisContext) -> Iterator[tuple[str, Any]]:
    """What the condition read beside `value`, and what that was."""
    for use in () if branch.condition is None else branch.condition.uses:
        root, *keys = use.keys
        found: Any = around.inputs
        if root == "nodes" and len(keys) > 1 and keys[1] == "output":
            found, keys = around.outputs.get(str(keys[0])), keys[2:]
        elif root != "inputs":
            continue
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            yield ".".join(map(str, use.keys)), found
