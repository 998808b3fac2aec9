"""How a job ends: `cancel_remaining` when it must end early, `finish_if_done` when all nodes are finished."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine import fanout
from dagmaster.engine.decisions import FinishJob, Need, Stop, Withdraw
from dagmaster.engine.events import TaskReleased
from dagmaster.engine.groups import last_nodes
from dagmaster.engine.json_size import check_size
from dagmaster.engine.model import FanOut, Job, Node, fails_job, is_dormant
from dagmaster.engine.status import NOT_STARTED_NODE, NodeStatus, SkipReason
from dagmaster.engine.step import Step, failure, loaded
from dagmaster.engine.transitions import JOB_MOVES, Move
from dagmaster.errors import EvaluationFailed
from dagmaster.text_format import error_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.json_types import JsonObject, JsonValue

IN_FLIGHT: Final = frozenset({NodeStatus.DISPATCHED, NodeStatus.RUNNING})
MAX_LAST_NODES: Final = 100
"""Of how many last nodes the outputs are the result of a job whose graph was built in code; of more, it has
none."""
MAX_RESULT_BYTES: Final = 32 * 1024 * 1024
"""How large these outputs may be together: nothing asked for them, and the owner has to read them."""


def cancel_remaining(step: Step) -> None:
    """Cancel or skip every node that has not started, once, when a job is ending."""
    job = step.job
    job.backlog.replace(())
    for node in job.walk():
        if node.status in NOT_STARTED_NODE:
            end_before_start(step, node)
        elif isinstance(node, FanOut):
            node.close_admission()
            job.changed.append(node)
        elif node.status in IN_FLIGHT:
            if job.stopping:
                step.out.append(Stop(node.id, node.attempt))
            elif node.status is NodeStatus.DISPATCHED:
                step.out.append(Withdraw(node.id, node.attempt, TaskReleased(node.id, node.attempt)))
    for node in job.walk():
        if isinstance(node, FanOut):
            fanout.close_if_done(step, node)


def end_before_start(step: Step, node: Node) -> None:
    """Cancel or skip a node of an ending job that has not started."""
    if step.job.cancel_requested:
        step.cancel(node)
    else:
        step.skip(node, SkipReason.JOB_FAILED)


def finish_if_done(step: Step) -> None:
    """Finish a job whose nodes are all finished. A completed job computes its result first."""
    job = step.job
    if job.cancel_requested:
        finish(step, Move.CANCEL)
    elif job.deadline_passed:
        message = f"the job exceeded its deadline of {job.graph.deadline_seconds:g} s"
        finish(step, Move.FAIL, error=failure("deadline", message))
    elif job.failed:
        first = min(
            (node for node in job.nodes.values() if fails_job(node)), key=lambda node: node.finished_seq or 0
        )
        message = f"node {first.id} failed: {error_text(first.error or {})}"
        finish(step, Move.FAIL, error=failure("node_failed", message, node=first.id, cause=first.error))
    else:
        refs = _result_refs(job)
        if refs:
            step.out.append(Need(None, refs, None if _has_author(job) else MAX_RESULT_BYTES))
        else:
            compute_result(step, {})


def _has_author(job: Job) -> bool:
    """Return whether the definition says what the result is. A graph in code does not."""
    return job.graph.outputs is not None or bool(job.graph.result_nodes)


def _result_refs(job: Job) -> tuple[tuple[str | int, ...], ...]:
    if job.graph.outputs is not None:
        return job.graph.outputs.refs
    completed = (
        node_id for node_id in _result_nodes(job) or () if job.nodes[node_id].status is NodeStatus.COMPLETED
    )
    return tuple(("nodes", node_id, "output") for node_id in completed)


def _result_nodes(job: Job) -> tuple[str, ...] | None:
    """Return the nodes whose outputs are the result; None if there are too many.

    A graph that was built in code has no nodes itself: its result is that of the nodes that nothing waits
    for.
    """
    graph = job.graph
    if graph.result_nodes:
        return graph.result_nodes
    live = (
        node_id for node_id in last_nodes(graph.specs, graph.wiring) if not is_dormant(job.nodes[node_id])
    )
    last = tuple(islice(live, MAX_LAST_NODES + 1))
    return last if len(last) <= MAX_LAST_NODES else None


def compute_result(step: Step, scope: Mapping[str, JsonValue]) -> None:
    try:
        result = _result(step.job, scope)
    except EvaluationFailed as error:
        finish(step, Move.FAIL, error=failure("expression", f"outputs: {error}", path=error.path))
    else:
        finish(step, Move.COMPLETE, result=result)


def fail_result(step: Step, error: JsonObject) -> None:
    """Fail the job because its result cannot be computed; complete it if no author asked for one."""
    if _has_author(step.job):
        finish(step, Move.FAIL, error=error)
    else:
        finish(step, Move.COMPLETE)


def _result(job: Job, scope: Mapping[str, Any]) -> Any:
    if job.graph.outputs is not None:
        result: Any = job.graph.outputs.resolve(scope)
    else:
        nodes = _result_nodes(job)
        if nodes is None:
            return None
        result = {str(ref[1]): loaded(scope, str(ref[1]), "output") for ref in _result_refs(job)}
        if len(nodes) == 1:
            # Its size was checked when it was an output.
            return next(iter(result.values()), None)
    try:
        check_size(result, "the result")
    except EvaluationFailed:
        if _has_author(job):
            raise
        # No author asked for it: the outputs are there, one by one.
        return None
    return result


def finish(step: Step, move: Move, *, result: JsonValue = None, error: JsonObject | None = None) -> None:
    job = step.job
    job.status = JOB_MOVES[job.status][move]
    job.deadline_at = None
    step.out.append(FinishJob(job.status, result, error))
