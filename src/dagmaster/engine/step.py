"""One step of the engine: the primitive moves, and the two lists that carry a step on.

A move writes the node, says the decision, and queues the node as settled. Nothing here decides.
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


def failure(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """Give an error as it is stored and shown: a kind for programs, a message for people."""
    return {"kind": kind, "message": message, **details}


def loaded(scope: Mapping[str, Any], node_id: str, what: str) -> Any:
    """Give what was loaded of a node; one that was opened again in the meantime has nothing to load."""
    value = scope.get("nodes", {}).get(node_id, {})
    if what not in value:
        path = f"nodes.{node_id}.{what}"
        raise EvaluationFailed(f"`{path}` is missing", path=path)
    return value[what]


class Step:
    """What one call of `advance` works on."""

    __slots__ = ("job", "now", "out", "ready", "settled", "sweep")

    def __init__(self, job: Job, now: float, out: list[Decision]) -> None:
        self.job = job
        self.now = now
        self.out = out
        self.settled: list[Node] = []
        self.ready: list[Node] = []
        self.sweep = False

    def move(self, node: Node, move: Move) -> None:
        """Take a node to its next status, which the table must allow."""
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
        """COMPLETED, with an output. What failed on the way is told by the attempts, not by the node."""
        node.error = None
        self._settle(node, Move.COMPLETE)
        self.out.append(Complete(node.id, output, reused))

    def fail(self, node: Node, error: dict[str, Any]) -> None:
        """FAILED for good. A failure that the job does not allow ends it, as its `on_failure` says."""
        node.error = error
        self._settle(node, Move.FAIL)
        self.out.append(Fail(node.id, error))
        job = self.job
        if fails_job(node):
            job.failed += 1
            if job.graph.on_failure is not OnFailure.CONTINUE:
                self.end(stop=job.graph.on_failure is OnFailure.CANCEL_RUNNING)

    def skip(self, node: Node, reason: SkipReason) -> None:
        """SKIPPED, and why."""
        node.skip_reason = reason
        self._settle(node, Move.SKIP)
        self.out.append(Skip(node.id, reason))
        for child in _left_behind(node):
            self.skip(child, reason)

    def cancel(self, node: Node, error: dict[str, Any] | None = None) -> None:
        """CANCELLED."""
        node.error = error
        self._settle(node, Move.CANCEL)
        self.out.append(Cancel(node.id))
        for child in _left_behind(node):
            self.cancel(child)

    def end(self, *, stop: bool) -> None:
        """Let nothing new start, and if told so stop what runs. The rest of the job is swept within this step."""
        job = self.job
        if not job.ending or (stop and not job.stopping):
            self.sweep = True
        job.ending = True
        job.stopping = job.stopping or stop

    def wait_until(self, node: Node, at: float) -> None:
        """Set the node's one timer."""
        node.wake_at = at
        self.job.changed.append(node)
        self.out.append(WaitUntil(node.id, at))

    def ignore(self, reason: str, node: str | None = None) -> None:
        """Say that the happening changes nothing."""
        self.out.append(Ignore(reason, node))


def _left_behind(node: Node) -> list[Node]:
    """Give the children that a new run opened, of a fan-out that is over before it started again."""
    if not isinstance(node, FanOut) or node.open == 0:
        return []
    node.shut()
    return [child for child in node.children[: node.expanded] if not child.is_terminal]
