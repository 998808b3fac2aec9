"""Drive one job through the engine: answer its needs from a dict of outputs, keep rows like a store.

No handler runs, and time passes only when a test moves it. `Driver.rebuild` returns the job as a crash would
leave it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.advance import advance
from dagmaster.engine.decisions import REPORTED, AddNodes, Complete, Decision, Expand, FinishJob, Need
from dagmaster.engine.events import (
    Approved,
    BacklogDue,
    CancelRequested,
    ChildJobFinished,
    DispatchRejected,
    EngineEvent,
    ItemsReinjected,
    JobStarted,
    NodeCancelRequested,
    NodesAdded,
    Rejected,
    ResumeRequested,
    RetryRequested,
    SignalReceived,
    TaskFailed,
    TaskLost,
    TaskReleased,
    TaskSucceeded,
    TimerFired,
    ValuesLoaded,
)
from dagmaster.engine.growth import NodeBatch, grow_graph
from dagmaster.engine.model import FanOut, Job, Node, row_of
from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.engine.stored_rows import JobRow, NodeRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STATUS: Final = NodeRow._fields.index("status")
_SKIP_REASON: Final = NodeRow._fields.index("skip_reason")
_FINGERPRINT: Final = NodeRow._fields.index("fingerprint")


class Driver:
    """A job, a clock that the test moves, and all decisions so far."""

    def __init__(self, job: Job, *, now: float = 0.0) -> None:
        self.job = job
        self.graph = job.graph
        self.batches: list[NodeBatch] = []
        self.now = now
        self.decisions: list[Decision] = []
        self.outputs: dict[str, Any] = {}
        self.items: dict[str, list[Any]] = {}
        self.stored: dict[str, NodeRow] = {node.id: row_of(node) for node in job.nodes.values()}

    # ── One event ──

    def apply(self, event: EngineEvent, *, output: Any = None) -> list[Decision]:
        """Apply an event, start what is ready, answer every need that follows; return all decisions."""
        decided = self.step(event, output=output)
        while self.job.backlog:
            decided += self.step(BacklogDue())
        answered = 0
        while answered < len(decided):
            decision = decided[answered]
            answered += 1
            if isinstance(decision, Need):
                decided += self.step(self.answer(decision))
        return decided

    def step(self, event: EngineEvent, *, output: Any = None) -> list[Decision]:
        """Apply an event without answering needs; return the decisions."""
        decided = advance(self.job, event, self.now)
        self.decisions += decided
        for decision in decided:
            if isinstance(decision, AddNodes):
                self._store_batch(event, decision.nodes)
            elif isinstance(decision, Complete):
                self.outputs[decision.node] = output if decision.output is REPORTED else decision.output
            elif isinstance(decision, Expand) and decision.source is not None:
                self.items[decision.node] = decision.source
        for node in self.job.drain_changed():
            self.stored[node.id] = row_of(node)
        return decided

    def _store_batch(self, event: EngineEvent, nodes: Iterable[str]) -> None:
        batch = event.batch if isinstance(event, NodesAdded) else getattr(event, "added", None)
        assert isinstance(batch, NodeBatch)  # noqa: S101 - nothing else adds nodes
        self.batches.append(batch)
        self.stored |= {node_id: NodeRow(node_id, NodeStatus.PENDING) for node_id in nodes}

    def answer(self, need: Need) -> ValuesLoaded:
        """Return exactly the values that a need refers to."""
        scope = self.scope(need.node)
        values: dict[str, Any] = {}
        for ref in need.refs:
            _copy(scope, values, ref)
        return ValuesLoaded(need.node, values)

    def scope(self, node_id: str | None) -> Mapping[str, Any]:
        """Return the scope of the expressions of a node."""
        nodes = {node.id: self._facts(node) for node in self.job.nodes.values() if node.parent is None}
        scope: dict[str, Any] = {"inputs": {}, "nodes": nodes}
        node = None if node_id is None else self.job.nodes[node_id]
        if node is not None and node.upstream is not None:
            scope["upstream"] = nodes[node.upstream]
        return scope if node is None else scope | self._item(node)

    def _facts(self, node: Node) -> dict[str, Any]:
        facts: dict[str, Any] = {"status": node.status.value, "error": node.error}
        if node.status is NodeStatus.COMPLETED:
            facts["output"] = self.outputs[node.id]
        if isinstance(node, FanOut) and node.status is NodeStatus.COMPLETED:
            facts["outputs"] = self._outputs(node)
            failed = [child for child in node.children[: node.expanded] if child.status is NodeStatus.FAILED]
            facts["failed"] = [{"index": child.index, "error": child.error} for child in failed]
        return facts

    def _outputs(self, fan: FanOut) -> list[Any]:
        outputs: list[Any] = []
        for child in fan.children[: fan.expanded]:
            completed = child.status is NodeStatus.COMPLETED
            output = self._outputs(child) if isinstance(child, FanOut) else self.outputs.get(child.id)
            outputs.append(output if completed else None)
        return outputs

    def _item(self, node: Node) -> dict[str, Any]:
        if node.parent is None:
            return {}
        own = {"item": self.items[node.parent.id][node.index], "index": node.index}
        outer = self._item(node.parent)
        return own | {"outer": outer} if outer else own

    # ── Stored rows ──

    def rows(self) -> dict[str, NodeRow]:
        """Return the current rows of all nodes."""
        return {node.id: row_of(node) for node in self.job.nodes.values()}

    def rebuild(self) -> Job:
        """Rebuild the job from its stored rows, after a round trip through JSON, in another order."""
        rows = through_json(list(self.stored.values()))
        graph = grow_graph(self.graph, self.batches) if self.batches else self.graph
        return Job.rebuild(graph, _job_through_json(self.job.row()), reversed(rows))

    # ── Verbs ──

    def start(self) -> list[Decision]:
        """Claim the job."""
        return self.apply(JobStarted())

    def succeed(self, *node_ids: str, output: Any = None) -> list[Decision]:
        """Report the current attempts of nodes as succeeded."""
        decided: list[Decision] = []
        for node_id in node_ids:
            decided += self.apply(TaskSucceeded(node_id, self.job.nodes[node_id].attempt), output=output)
        return decided

    def fail(self, *node_ids: str, permanent: bool = False, message: str = "boom") -> list[Decision]:
        """Report the current attempts of nodes as failed."""
        decided: list[Decision] = []
        for node_id in node_ids:
            error = {"kind": "error", "message": message}
            decided += self.apply(TaskFailed(node_id, self.job.nodes[node_id].attempt, error, permanent))
        return decided

    def lose(self, node_id: str, *, alone: bool = True) -> list[Decision]:
        """Report the current attempt of a node as lost: its worker died. `alone`: it held no other task."""
        return self.apply(TaskLost(node_id, self.job.nodes[node_id].attempt, alone=alone))

    def release(self, node_id: str) -> list[Decision]:
        """Report the current attempt of a node as released: its worker drains."""
        return self.apply(TaskReleased(node_id, self.job.nodes[node_id].attempt))

    def reject_dispatch(self, node_id: str) -> list[Decision]:
        """Report that no worker can run the task of a node."""
        error = {"kind": "rejected", "message": "no such handler"}
        return self.apply(DispatchRejected(node_id, self.job.nodes[node_id].attempt, error))

    def fire_timer(self, node_id: str | None = None) -> list[Decision]:
        """Move the clock to the timer of a node, or of the deadline, and fire it."""
        at = self.job.deadline_at if node_id is None else self.job.nodes[node_id].wake_at
        self.now = max(self.now, at or 0.0)
        return self.apply(TimerFired(node_id))

    def approve(self, node_id: str, by: str = "ada") -> list[Decision]:
        """Approve a node."""
        return self.apply(Approved(node_id, by, "2026-01-01T00:00:00Z"))

    def reject(self, node_id: str, by: str = "ada", comment: str = "") -> list[Decision]:
        """Reject a node."""
        return self.apply(Rejected(node_id, by, "2026-01-01T00:00:00Z", comment))

    def signal(self, name: str, payload: Any = None) -> list[Decision]:
        """Send a signal."""
        return self.apply(SignalReceived(name, payload))

    def finish_child_job(self, node_id: str, status: str = "COMPLETED", result: Any = None) -> list[Decision]:
        """Finish the child job of a node."""
        return self.apply(
            ChildJobFinished(node_id, self.job.nodes[node_id].attempt, JobStatus(status), result)
        )

    def cancel(self) -> list[Decision]:
        """Request the cancellation of the job."""
        return self.apply(CancelRequested())

    def cancel_nodes(self, *node_ids: str, by: str = "ada") -> list[Decision]:
        """Request the cancellation of nodes."""
        return self.apply(NodeCancelRequested(node_ids, by))

    def resume(self, *node_ids: str) -> list[Decision]:
        """Resume the job, from these nodes."""
        return self.apply(ResumeRequested(node_ids))

    def retry(self, *node_ids: str) -> list[Decision]:
        """Retry nodes."""
        return self.apply(RetryRequested(node_ids))

    def reinject(self, node_id: str, *indexes: int) -> list[Decision]:
        """Reinject repaired items into a fan-out."""
        return self.apply(ItemsReinjected(node_id, indexes))

    def succeed_all(self, output: Any = None) -> list[Decision]:
        """Report every dispatched node as succeeded, until none is left."""
        decided: list[Decision] = []
        while node_ids := self.dispatched():
            decided += self.succeed(*node_ids, output=output)
        return decided

    # ── Questions ──

    def status(self, node_id: str) -> str:
        """Return the status of a node, with the reason if it was skipped: `SKIPPED not_taken`."""
        node = self.job.nodes[node_id]
        return node.status.value if node.skip_reason is None else f"{node.status} {node.skip_reason}"

    def statuses(self) -> dict[str, str]:
        """Return the statuses of all nodes."""
        return {node_id: self.status(node_id) for node_id in self.job.nodes}

    def dispatched(self) -> list[str]:
        """Return the nodes whose task is dispatched."""
        return [node.id for node in self.job.nodes.values() if node.status is NodeStatus.DISPATCHED]

    @property
    def result(self) -> Any:
        """Return the result of the job."""
        return next(
            decision.result for decision in reversed(self.decisions) if isinstance(decision, FinishJob)
        )

    @property
    def error(self) -> dict[str, Any]:
        """Return the error of the job; empty without an error."""
        errors = (decision.error for decision in reversed(self.decisions) if isinstance(decision, FinishJob))
        return next(errors, None) or {}


def _copy(source: Mapping[str, Any], target: dict[str, Any], ref: tuple[str | int, ...]) -> None:
    key = str(ref[0])
    if key not in source:
        return
    if len(ref) == 1:
        target[key] = source[key]
    else:
        _copy(source[key], target.setdefault(key, {}), ref[1:])


def through_json(rows: list[NodeRow]) -> list[NodeRow]:
    """Return rows as a store would return them."""
    decoded = json.loads(json.dumps(rows, default=bytes.hex))
    for values, row in zip(decoded, rows, strict=True):
        values[_STATUS] = NodeStatus(values[_STATUS])
        values[_SKIP_REASON] = None if values[_SKIP_REASON] is None else SkipReason(values[_SKIP_REASON])
        # A fingerprint is kept as bytes.
        values[_FINGERPRINT] = row.fingerprint
    return [NodeRow._make(values) for values in decoded]


def _job_through_json(row: JobRow) -> JobRow:
    return replace(row, signals=json.loads(json.dumps(dict(row.signals))))
