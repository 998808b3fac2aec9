"""Fan-outs: freeze the source, create children in batches, admit up to `max_parallel`, close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.decisions import Expand, Stop
from dagmaster.engine.expressions.json_values import json_type
from dagmaster.engine.json_size import check_size, preview
from dagmaster.engine.model import FanOut, Node
from dagmaster.engine.status import NodeStatus, SkipReason
from dagmaster.engine.step import Step, failure
from dagmaster.engine.transitions import NODE_MOVES, Move
from dagmaster.errors import EvaluationFailed
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.json_types import JsonObject, JsonValue

# Children created in one step, so that one huge fan-out never stalls other jobs.
EXPAND_BATCH: Final = 5_000
# Children of one job, over all levels.
MAX_CHILDREN: Final = 1_000_000
# Failed children listed in the error of a fan-out.
NAMED_FAILURES: Final = 20


def freeze(step: Step, fan: FanOut, scope: Mapping[str, JsonValue]) -> None:
    """Resolve the source once, and start to expand."""
    try:
        source = fan.spec.source.resolve(scope)
        check_size(source, "the list")
    except EvaluationFailed as error:
        step.fail(fan, failure("expression", f"source: {error}", path=error.path))
        return
    if not isinstance(source, list):
        message = f"source must be a list, not {json_type(source)}: {preview(source)}"
        step.fail(fan, failure("invalid_source", message))
        return
    dormant = len(fan.children)
    if step.job.children_made + max(len(source) - dormant, 0) > MAX_CHILDREN:
        message = (
            f"source has {format_count(len(source), 'item')}: a job has at most {MAX_CHILDREN:,} children"
        )
        step.fail(fan, failure("too_many_children", message))
        return
    fan.total = len(source)
    if not source:
        step.out.append(Expand(fan.id, 0, 0, 0, source))
        step.complete(fan, {"fan_out_count": 0})
        return
    step.move(fan, Move.START)
    expand(step, fan, source)


def expand(step: Step, fan: FanOut, source: list[JsonValue] | None = None) -> None:
    """Create the next batch of children. If more follow, set a timer that is due now: it survives a crash."""
    job, first, total = step.job, fan.expanded, fan.total or 0
    batch = min(EXPAND_BATCH, total - first)
    for index in range(first, first + batch):
        if index < len(fan.children):
            child = fan.children[index]
            step.move(child, Move.REOPEN)
            _reset_child(child)
        else:
            child = job.new_child(fan)
            job.changed.append(child)
    fan.expanded += batch
    fan.open += batch
    job.open += batch
    fan.wake_at = None
    job.changed.append(fan)
    step.out.append(Expand(fan.id, first, batch, total, source))
    admit(step, fan)
    if fan.expanded < total:
        step.wait_until(fan, step.now)


def reopen(step: Step, fan: FanOut) -> None:
    """Continue a fan-out whose source was frozen in an earlier run."""
    step.move(fan, Move.START)
    # It is stopped if too many of its children were cancelled before it started.
    if fan.expanded < (fan.total or 0) and not fan.stopped:
        expand(step, fan)
    else:
        admit(step, fan)
    close_if_done(step, fan)


def admit(step: Step, fan: FanOut) -> None:
    """Admit children in index order, up to `max_parallel`."""
    limit = fan.spec.max_parallel or fan.expanded
    children, cursor, active = fan.children, fan.cursor, fan.active
    while active < limit and cursor < fan.expanded:
        child = children[cursor]
        cursor += 1
        if child.status is NodeStatus.PENDING:
            active += 1
            step.ready.append(child)
    fan.cursor, fan.active = cursor, active


def child_settled(step: Step, fan: FanOut, child: Node) -> None:
    """Count a settled child; admit the next one, or close the fan-out."""
    fan.open -= 1
    fan.active -= 1
    if child.status is NodeStatus.COMPLETED:
        fan.completed += 1
    elif child.status is NodeStatus.FAILED:
        fan.failed += 1
        if fan.spec.fail_fast and not fan.stopped and not fan.tolerates_failures():
            stop_children(step, fan)
    if fan.open == 0:
        close_if_done(step, fan)
    elif (
        fan.cursor < fan.expanded
        and fan.status is NodeStatus.RUNNING
        and not (step.job.ending or fan.stopped)
    ):
        # A child of a fan-out that has not started again may also settle: it was cancelled.
        admit(step, fan)


def stop_children(step: Step, fan: FanOut) -> None:
    """Admit no further child, and stop those that run."""
    fan.stopped = True
    fan.close_admission()
    step.job.changed.append(fan)
    for child in fan.children[: fan.expanded]:
        halt(step, child)
    close_if_done(step, fan)


def halt(step: Step, node: Node) -> None:
    """Cancel a node that has not started; ask a started one to stop."""
    if node.status in (NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING):
        step.cancel(node)
    elif isinstance(node, FanOut):
        if node.status is NodeStatus.RUNNING and not node.stopped:
            stop_children(step, node)
    elif not node.is_terminal:
        step.out.append(Stop(node.id, node.attempt))


def close_if_done(step: Step, fan: FanOut) -> None:
    """Close a fan-out that has no open children and will have none."""
    if fan.open or fan.status is not NodeStatus.RUNNING:
        return
    total = fan.total or 0
    ended_early = fan.stopped or step.job.ending
    if fan.expanded < total and not ended_early:
        return
    error = None if fan.tolerates_failures() else _children_failed(fan)
    is_complete = fan.completed + fan.failed >= total and error is None
    if fan.cancel_request is not None and not is_complete:
        step.fail_cancelled(fan, error)
    elif error is not None:
        step.fail(fan, error)
    elif not is_complete:
        step.cancel(fan)
    else:
        step.complete(fan, {"fan_out_count": total})


def _children_failed(fan: FanOut) -> JsonObject:
    failed = [child for child in fan.children[: fan.expanded] if child.status is NodeStatus.FAILED][
        :NAMED_FAILURES
    ]
    named = ", ".join(child.id for child in failed)
    more = "" if fan.failed <= NAMED_FAILURES else f" and {fan.failed - NAMED_FAILURES} more"
    return failure(
        "children_failed",
        f"{fan.failed} of {fan.total} children failed: {named}{more}",
        failed=[{"index": child.index, "error": child.error} for child in failed],
    )


def _reset_child(child: Node) -> None:
    """Reset a dormant child that is reused for a new item."""
    reset(child)
    if isinstance(child, FanOut):
        supersede(child)


def reset(node: Node) -> None:
    """Clear the state of a node's last run. `attempt` is never reset; the retry budgets are."""
    node.skip_reason = None
    node.error = None
    node.wake_at = None
    node.finished_seq = None
    node.failed_attempts = 0
    node.lost_attempts = 0
    node.shared_losses = 0
    node.upstream = None
    node.branch = None
    node.fingerprint = None
    node.handler_version = None
    node.stopped = False


def supersede(fan: FanOut) -> list[Node]:
    """Make all children dormant before the source is resolved again; return the children that changed."""
    changed: list[Node] = []
    for child in fan.children:
        reset(child)
        child.status = NODE_MOVES[child.status][Move.SUPERSEDE]
        child.skip_reason = SkipReason.SUPERSEDED
        changed.append(child)
        if isinstance(child, FanOut):
            changed += supersede(child)
    fan.total = None
    fan.expanded = fan.open = fan.active = fan.completed = fan.failed = fan.cursor = 0
    return changed
