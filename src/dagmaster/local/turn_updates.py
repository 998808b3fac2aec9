"""What a committed turn changed, in plain values: the displays of a local run need no engine objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.application.node_lookup import describe_action
from dagmaster.engine.decisions import (
    Cancel,
    Complete,
    Dispatch,
    Expand,
    Fail,
    RequestApproval,
    Skip,
    WaitUntil,
)
from dagmaster.engine.graph import WaitSpec
from dagmaster.engine.groups import is_group_start
from dagmaster.engine.model import FanOut
from dagmaster.engine.status import NodeStatus
from dagmaster.records.nodes import NodeOutcomeRecord
from dagmaster.text_format import format_count, format_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.engine.decisions import Decision
    from dagmaster.engine.model import Job, Node
    from dagmaster.engine.status import JobStatus
    from dagmaster.orchestrator.turn import TurnResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildProgress:
    """How many children of a fan-out have which status. `stopped`: skipped or cancelled."""

    total: int
    completed: int = 0
    failed: int = 0
    stopped: int = 0
    in_flight: int = 0
    """Dispatched, claimed or running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUpdate(NodeOutcomeRecord):
    """A node after a turn. `waits_for_signal`: the signal that would move it."""

    action: str
    children: ChildProgress | None
    waits_for_signal: str | None


class TurnUpdate:
    """A committed turn of a job.

    Everything is computed when it is asked for: a quiet run asks for nothing.
    """

    __slots__ = ("_job", "_result")

    def __init__(self, job: Job, result: TurnResult) -> None:
        self._job = job
        self._result = result

    @property
    def job_id(self) -> str:
        """Return the job of this turn: that of the run, or a child job of it."""
        return self._job.id

    @property
    def workflow_id(self) -> str:
        return self._job.graph.workflow_id

    @property
    def version(self) -> int:
        return self._job.graph.version

    @property
    def status(self) -> JobStatus:
        return self._job.status

    def nodes(self) -> Iterator[NodeUpdate]:
        """Yield the nodes of the workflow that changed; children of fan-outs only count in their fan-out."""
        for node in self._result.changed:
            if node.parent is None and not is_group_start(node.id):
                yield _node_update(node)

    def messages(self) -> Iterator[str]:
        """Yield a sentence for each decision that a person wants to see."""
        for decision in self._result.decisions:
            node_id = getattr(decision, "node", None)
            node = self._job.nodes.get(node_id) if isinstance(node_id, str) else None
            message = None if node is None else _describe(decision, node)
            if node is not None and message and not is_group_start(node.id):
                yield f"{node.id}: {message}"


def _node_update(node: Node) -> NodeUpdate:
    spec = node.spec
    is_waiting = node.status is NodeStatus.WAITING and isinstance(spec, WaitSpec)
    return NodeUpdate(
        node_id=node.id,
        status=node.status,
        action=describe_action(spec),
        attempt=node.attempt,
        branch=node.branch,
        skip_reason=node.skip_reason,
        error=node.error,
        children=_child_progress(node) if isinstance(node, FanOut) else None,
        waits_for_signal=getattr(spec, "signal", None) if is_waiting else None,
    )


def _child_progress(fan_out: FanOut) -> ChildProgress:
    stopped = fan_out.expanded - fan_out.open - fan_out.completed - fan_out.failed
    return ChildProgress(
        total=fan_out.total or 0,
        completed=fan_out.completed,
        failed=fan_out.failed,
        stopped=max(stopped, 0),
        in_flight=max(fan_out.active, 0),
    )


def _describe(decision: Decision, node: Node) -> str | None:
    """Describe a decision; None if it is of no interest, such as success of one child among many."""
    match decision:
        case Fail():
            return f"FAILED: {format_error(decision.error)}"
        case WaitUntil() if node.error and node.status is NodeStatus.READY:
            return f"attempt {node.attempt} failed: {format_error(node.error)}; waiting to retry"
        case _:
            return None if node.parent is not None else _describe_success(decision, node)


def _describe_success(decision: Decision, node: Node) -> str | None:
    match decision:
        case Dispatch():
            attempt = f" (attempt {decision.attempt})" if decision.attempt > 1 else ""
            return f"dispatched to {decision.task.handler}{attempt}"
        case Complete():
            return "COMPLETED" + (f", branch {node.branch}" if node.branch else "")
        case Skip():
            return f"SKIPPED ({decision.reason})"
        case Cancel():
            return "CANCELLED"
        case Expand() if decision.first == 0:
            return format_count(decision.total, "child", "children")
        case RequestApproval():
            return "waits for an approval"
        case _:
            return None
