"""Cancel of single nodes: each fails for good, and its job goes on.

A cancelled node is FAILED with error kind `cancelled`, so that every rule of a failed node applies to it. One
that is in flight is asked to stop, and fails when its report arrives: until then its `error` has the request
(ADR 0034).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.decisions import AcceptCancel, Stop
from dagmaster.engine.fanout import stop_children
from dagmaster.engine.groups import is_group_start, members
from dagmaster.engine.model import FanOut, is_dormant
from dagmaster.engine.status import NOT_STARTED_NODE, JobStatus, NodeStatus
from dagmaster.engine.step import failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dagmaster.engine.model import Job, Node
    from dagmaster.engine.step import Step
    from dagmaster.json_types import JsonObject


def cancel_nodes(step: Step, named: Iterable[str], by: str) -> None:
    """Cancel the named nodes that can be cancelled; ignore the event if none can.

    Which ones is decided before the first one is cancelled: its failure may end the job.
    """
    job = step.job
    if job.status is not JobStatus.RUNNING:
        step.ignore(f"the job is {job.status}")
        return
    reasons: dict[str, str] = {}
    chosen: dict[Node, None] = {}
    for node_id in dict.fromkeys(named):
        targets = list(_targets(job, node_id))
        open_targets = [node for node in targets if _reason_against(job, node) is None]
        chosen |= dict.fromkeys(open_targets)
        if not open_targets:
            reasons[node_id] = (
                _reason_against(job, targets[0]) or "" if targets else f"no node {node_id!r} in this job"
            )
    if not chosen:
        step.ignore(next(iter(reasons.values()), "no node was named"), next(iter(reasons), None))
        return
    step.out.append(AcceptCancel(tuple(node.id for node in chosen), len(reasons)))
    # A child before its fan-out, which would cancel it.
    for node in sorted(chosen, key=lambda node: -len(node.index_path())):
        _cancel(step, node, failure("cancelled", f"cancelled by {by or 'an unknown sender'}", by=by))


def is_stopping(job: Job, node: Node) -> bool:
    """Return whether a node in flight was asked to stop with its job or with its fan-out."""
    if job.stopping:
        return True
    fan = node.parent
    while fan is not None:
        if fan.stopped:
            return True
        fan = fan.parent
    return False


def _targets(job: Job, node_id: str) -> Iterator[Node]:
    """Yield the nodes that a name stands for: of a group its members at any depth, since it only joins them.

    A node that no author wrote, which joins what a group waits for, has no name.
    """
    node = job.nodes.get(node_id)
    if node is None or is_dormant(node) or is_group_start(node_id):
        return
    inner = members(node.spec)
    if not inner:
        yield node
    for member in inner:
        yield from _targets(job, member)


def _reason_against(job: Job, node: Node) -> str | None:
    if node.is_terminal:
        return f"node {node.id} is {node.status}; only an unfinished node can be cancelled"
    if node.status not in NOT_STARTED_NODE and (node.stopped or is_stopping(job, node)):
        return f"node {node.id} is being stopped already"
    return None


def _cancel(step: Step, node: Node, error: JsonObject) -> None:
    job = step.job
    node.stopped = True
    if isinstance(node, FanOut) and node.status is NodeStatus.RUNNING:
        node.error = error
        stop_children(step, node)
    elif node.status in NOT_STARTED_NODE:
        job.backlog.discard(node.id)
        if node.parent is not None and node.status is NodeStatus.PENDING:
            # It counts as active, as if it had been admitted: it frees a slot when it settles.
            node.parent.active += 1
        step.fail(node, error)
    else:
        node.error = error
        job.changed.append(node)
        step.out.append(Stop(node.id, node.attempt))
