"""One step of the engine: the primitive moves, and the two work lists that drive a step.

A move writes the node, appends the decision, and queues the node as settled. Nothing here decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.engine.decisions import Cancel, Complete, Decision, Fail, Ignore, Skip, WaitUntil
from dagmaster.engine.graph import OnFailure
from dagmaster.engine.model import FanOut, Job, Node, fails_job
from dagmaster.engine.transitions import NODE_MOVES, Move
from dagmaster.errors import EvaluationFailed, InvalidTransition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.events import ReusedFrom
    from dagmaster.engine.status import SkipReason
    from dagmaster.json_types import JsonObject


def failure(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """Return an error as it is stored and shown: a kind for programs, a message for people."""
    return {"kind": kind, "message": message, **details}


def loaded(scope: Mapping[str, Any], node_id: str, field: str) -> Any:
    """Return a loaded field of a node; raise `EvaluationFailed` if the node was reopened meanwhile."""
    value = scope.get("nodes", {}).get(node_id, {})
    if field not in value:
        path = f"nodes.{node_id}.{field}"
        raise EvaluationFailed(f"`{path}` is missing", path=path)
    return value[field]


class Step:
    """The working state of one call of `advance`."""

    __slots__ = ("job", "needs_cancel_remaining", "now", "out", "ready", "settled")

    def __init__(self, job: Job, now: float, out: list[Decision]) -> None:
        self.job = job
        self.now = now
        self.out = out
        self.settled: list[Node] = []
        self.ready: list[Node] = []
        self.needs_cancel_remaining = False

    def move(self, node: Node, move: Move) -> None:
        """Move a node to its next status; raise `InvalidTransition` if the table does not allow it."""
        status = NODE_MOVES[node.status].get(move)
        if status is None:
            raise InvalidTransition(f"node {node.id} is {node.status}: it cannot {move}")
        node.status = status
        self.job.changed.append(node)

    def _settle(self, node: Node, move: Move) -> None:
        self.move(node, move)
        job = self.job
        node.wake_at = None
        job.finish_seq += 1
        node.finished_seq = job.finish_seq
        job.open -= 1
        self.settled.append(node)

    def complete(self, node: Node, output: Any, reused: ReusedFrom | None = None) -> None:
        """Complete a node with an output.

        Earlier failures are recorded with the attempts, not with the node.
        """
        node.error = None
        self._settle(node, Move.COMPLETE)
        self.out.append(Complete(node.id, output, reused, node.attempt))

    def fail(self, node: Node, error: JsonObject) -> None:
        """Fail a node permanently. Unless the failure is allowed, it ends the job as `on_failure` says."""
        node.error = error
        self._settle(node, Move.FAIL)
        self.out.append(Fail(node.id, error))
        job = self.job
        if fails_job(node):
            job.failed += 1
            if job.graph.on_failure is not OnFailure.CONTINUE:
                self.end(stop=job.graph.on_failure is OnFailure.CANCEL_RUNNING)
        for child in _open_children(node):
            self.cancel(child)

    def fail_cancelled(self, node: Node, cause: JsonObject | None = None) -> None:
        """Fail a node whose cancel was requested.

        `cause`: how it ended, unless it just stopped when asked to.
        """
        error = node.error or {}
        is_plain = cause is None or cause.get("kind") == "cancelled"
        self.fail(node, error if is_plain else {**error, "cause": cause})

    def skip(self, node: Node, reason: SkipReason) -> None:
        node.skip_reason = reason
        self._settle(node, Move.SKIP)
        self.out.append(Skip(node.id, reason))
        for child in _open_children(node):
            self.skip(child, reason)

    def cancel(self, node: Node, error: JsonObject | None = None) -> None:
        node.error = error
        self._settle(node, Move.CANCEL)
        self.out.append(Cancel(node.id))
        for child in _open_children(node):
            self.cancel(child)

    def end(self, *, stop: bool) -> None:
        """Start nothing new, and with `stop` stop running tasks.

        The rest of the job is cancelled within this step.
        """
        job = self.job
        if not job.ending or (stop and not job.stopping):
            self.needs_cancel_remaining = True
        job.ending = True
        job.stopping = job.stopping or stop

    def wait_until(self, node: Node, at: float) -> None:
        node.wake_at = at
        self.job.changed.append(node)
        self.out.append(WaitUntil(node.id, at))

    def ignore(self, reason: str, node: str | None = None) -> None:
        """Record that the event changes nothing."""
        self.out.append(Ignore(reason, node))


def _open_children(node: Node) -> list[Node]:
    """Close a fan-out that ends before its new run started; return the children that were reopened."""
    if not isinstance(node, FanOut) or node.open == 0:
        return []
    node.close_admission()
    return [child for child in node.children[: node.expanded] if not child.is_terminal]
