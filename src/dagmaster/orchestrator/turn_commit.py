"""From what a turn decided to what the store writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.engine.decisions import Fail, Reopen
from dagmaster.engine.events import ChildJobFinished, DispatchRejected, TaskFailed
from dagmaster.engine.graph import TaskSpec, WorkflowSpec
from dagmaster.ports.json_text import MAX_INLINE, JsonText
from dagmaster.ports.turn_records import NewTask, TurnCommit, Withdrawal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dagmaster.orchestrator.owned_job import OwnedJob
    from dagmaster.orchestrator.turn import ResolvedTask, TurnResult
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.output_blobs import OutputBlobs


async def to_commit(held: OwnedJob, writes: TurnResult, *, ids: Ids, blobs: OutputBlobs, now: float) -> TurnCommit:
    """Put a turn into the form in which it is stored. Events are added by who knows what happened."""
    turn = TurnCommit(held.job, held.epoch, held.event_seq, held.priority, parent=held.parent, finished=writes.finished)
    stored = held.stored
    for node in writes.changed:
        if node.id in stored:
            turn.changed.append(node)
        else:
            stored.add(node.id)
            turn.added.append(node)
            if not isinstance(node.spec, TaskSpec):
                # No worker says when it started: it is now.
                turn.started[node.id] = now
    turn.reopened = [node for each in writes.decisions if isinstance(each, Reopen) for node in each.nodes]
    tasks = held.tasks
    for task in writes.tasks:
        # In this very turn it may have been stopped again.
        if held.job.nodes[task.node].attempt == task.attempt:
            task_id = ids.new()
            turn.task_ids[task.node] = tasks[task.node] = task_id
            turn.tasks.append(_task(held, task, task_id))
    _cancel_in_flight(held, writes, turn)
    for node_id, output in writes.outputs.items():
        turn.outputs[node_id] = output if isinstance(output, JsonText) else await _stored(held, node_id, output, blobs)
        tasks.pop(node_id, None)
    for node_id, source in writes.sources.items():
        turn.sources[node_id] = json.dumps(source)
    if writes.finished is not None and writes.finished.result is not None:
        turn.result = await _stored(held, "result", writes.finished.result, blobs)
    return turn


def _cancel_in_flight(held: OwnedJob, writes: TurnResult, turn: TurnCommit) -> None:
    """Withdraw and stop what is out."""
    tasks = held.tasks
    for withdrawal in writes.withdrawals:
        task_id = tasks.get(withdrawal.node, "")
        if task_id:
            then = withdrawal.then
            failed = isinstance(then, TaskFailed)
            error = json.dumps(then.error) if isinstance(then, TaskFailed) else None
            turn.withdrawals.append(Withdrawal(task_id, "FAILED" if failed else "RELEASED", error))
    for stop in writes.stops:
        if isinstance(held.job.nodes[stop.node].spec, WorkflowSpec):
            turn.cancelled_children.append((stop.node, stop.attempt))
        elif stop.node in turn.task_ids:
            # Dispatched and stopped in one turn: no worker gets it.
            turn.stopped_at_dispatch.add(tasks[stop.node])
        elif stop.node in tasks:
            turn.stops.append(tasks[stop.node])


def redact_secret_inputs(held: OwnedJob, writes: TurnResult, redact: Callable[[Any, Collection[str]], Any]) -> None:
    """Redact the secret inputs in everything that the engine made of them: errors, messages, outputs, the result.

    Outputs and errors of handlers were redacted by their worker. Params, child inputs and frozen lists stay: ADR 0015.
    """
    if not held.secrets:
        return
    for node in writes.changed:
        if node.error is not None:
            node.error = redact(node.error, held.secrets)
    for node_id, output in writes.outputs.items():
        if not isinstance(output, JsonText):
            writes.outputs[node_id] = redact(output, held.secrets)
    for decision in writes.decisions:
        if isinstance(decision, Fail):
            decision.error = redact(decision.error, held.secrets)
            held.job.nodes[decision.node].error = decision.error
    for _, happening in writes.happened:
        if isinstance(happening, DispatchRejected | TaskFailed | ChildJobFinished) and happening.error is not None:
            happening.error = redact(happening.error, held.secrets)
    for request in writes.approvals:
        request.message = redact(request.message, held.secrets)
    if writes.finished is not None:
        writes.finished.error = redact(writes.finished.error, held.secrets)
        writes.finished.result = redact(writes.finished.result, held.secrets)


def _task(held: OwnedJob, task: ResolvedTask, task_id: str) -> NewTask:
    spec, secrets = task.task, None
    if task.places or held.secrets:
        secrets = json.dumps({"places": task.places, "hide": held.secrets})
    return NewTask(
        task_id, task.node, task.attempt, held.queue or spec.queue, spec.handler, task.text, secrets,
        spec.timeout_seconds,
    )  # fmt: skip


async def _stored(held: OwnedJob, what: str, value: Any, blobs: OutputBlobs) -> JsonText:
    """A value that the engine made: short ones stand in the row, long ones are blobs."""
    text = json.dumps(value)
    if len(text) <= MAX_INLINE:
        return JsonText(text)
    name = f"jobs/{held.job.id}/{what}/{held.epoch}-{held.event_seq}.json"
    await blobs.write(name, text.encode())
    return JsonText(ref=name)
