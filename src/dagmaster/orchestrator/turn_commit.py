"""Turn the result of a turn into the rows to commit."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagmaster.engine.decisions import AddNodes, Ignore
from dagmaster.engine.events import (
    NodesAdded,
    TaskFailed,
)
from dagmaster.engine.graph import TaskSpec, WorkflowSpec
from dagmaster.engine.status import AttemptStatus, NodeStatus, isolation_after
from dagmaster.ports.json_text import MAX_INLINE, JsonText
from dagmaster.ports.output_names import OutputName
from dagmaster.ports.tasks import NewTask
from dagmaster.ports.turn_records import TurnCommit, Withdrawal

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.json_types import JsonValue
    from dagmaster.orchestrator.owned_job import OwnedJob
    from dagmaster.orchestrator.turn import ResolvedTask, TurnResult
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.output_blobs import OutputBlobs


async def to_commit(
    owned: OwnedJob, result: TurnResult, *, ids: Ids, blobs: OutputBlobs, now: float
) -> TurnCommit:
    """Return the commit of a turn. The caller adds results, commands, child jobs and audit events."""
    commit = TurnCommit(
        owned.job,
        owned.epoch,
        owned.event_seq,
        owned.new.priority,
        parent=owned.new.parent,
        finished=result.finished,
    )
    stored = owned.stored
    for node in result.changed:
        if node.id in stored:
            commit.changed.append(node)
        else:
            stored.add(node.id)
            commit.added.append(node)
            if not isinstance(node.spec, TaskSpec):
                # No worker reports a start: it starts now.
                commit.started[node.id] = now
    for reopen in result.reopens:
        commit.reopened += reopen.nodes
        commit.superseded += reopen.superseded
        commit.adders += reopen.adders
    tasks = owned.tasks
    for task in result.tasks:
        # The same turn may have stopped it again.
        if owned.job.nodes[task.node].attempt == task.attempt:
            task_id = ids.new()
            commit.task_ids[task.node] = tasks[task.node] = task_id
            commit.tasks.append(_task(owned, task, task_id))
    _cancel_in_flight(owned, result, commit)
    nodes = owned.job.nodes
    for node_id, output in result.outputs.items():
        if nodes[node_id].status is not NodeStatus.COMPLETED:
            # The same turn reopened the node, and may have dispatched its next attempt.
            continue
        commit.outputs[node_id] = (
            output if isinstance(output, JsonText) else await _store_value(owned, node_id, output, blobs)
        )
        tasks.pop(node_id, None)
    _decide_batches(owned, result, commit)
    for node_id, source in result.sources.items():
        commit.sources[node_id] = json.dumps(source)
    if result.finished is not None and result.finished.result is not None:
        commit.result = await _store_value(owned, "result", result.finished.result, blobs)
    return commit


def _decide_batches(owned: OwnedJob, result: TurnResult, commit: TurnCommit) -> None:
    """Accept batches of added nodes, and reject the other ones of the turn's commands."""
    for decision in result.decisions if owned.job.owns_graph else ():
        if isinstance(decision, AddNodes):
            owned.last_batch_order += 1
            commit.batches |= dict.fromkeys(decision.batches, owned.last_batch_order)
    for start, event in result.events:
        if type(event) is NodesAdded:
            ignored = result.decisions[start] if start < len(result.decisions) else None
            reason = ignored.reason if isinstance(ignored, Ignore) else ""
            for number in event.batch.numbers:
                commit.batches.setdefault(number, reason)


def _cancel_in_flight(owned: OwnedJob, result: TurnResult, commit: TurnCommit) -> None:
    """Withdraw queued tasks, and stop running tasks and child jobs."""
    tasks = owned.tasks
    for withdrawal in result.withdrawals:
        task_id = tasks.get(withdrawal.node, "")
        if task_id:
            then = withdrawal.then
            failed = isinstance(then, TaskFailed)
            error = json.dumps(then.error) if isinstance(then, TaskFailed) else None
            commit.withdrawals.append(
                Withdrawal(task_id, AttemptStatus.FAILED if failed else AttemptStatus.RELEASED, error)
            )
    for stop in result.stops:
        if isinstance(owned.job.nodes[stop.node].spec, WorkflowSpec):
            commit.cancelled_children.append((stop.node, stop.attempt))
        elif stop.node in commit.task_ids:
            # Dispatched and stopped in one turn: no worker gets it. A stop of the attempt before has no task
            # left.
            if stop.attempt == owned.job.nodes[stop.node].attempt:
                commit.stopped_at_dispatch.add(tasks[stop.node])
        elif stop.node in tasks:
            commit.stops.append(tasks[stop.node])


def _task(owned: OwnedJob, task: ResolvedTask, task_id: str) -> NewTask:
    spec, secrets = task.task, None
    if task.places or owned.secret_inputs or owned.clear_secrets:
        secrets = _references(
            task.places, owned.secret_inputs, spec.code_fingerprint, hide=owned.clear_secrets
        )
    elif spec.code_fingerprint is not None or spec.graph_task_id is not None:
        secrets = _code_alone(spec.code_fingerprint)
    if secrets is not None and spec.graph_task_id is not None:
        # As text: most tasks of a graph in code have the rest in common.
        secrets = f'{secrets[:-1]}, "graph_task_id": {spec.graph_task_id:d}}}'
    return NewTask(
        task_id,
        owned.job.id,
        task.node,
        spec.handler,
        task.attempt,
        task.text,
        secrets,
        spec.timeout_seconds,
        queue=owned.new.queue or spec.queue,
        isolation=isolation_after(owned.job.nodes[task.node].shared_losses),
    )


def _references(places: Any, inputs: Any, code_fingerprint: str | None, *, hide: Collection[str] = ()) -> str:
    """Return what a worker fills in and redacts: all secret inputs of the job, as they are stored.

    `hide`: the texts of those that are not encrypted.
    """
    code = {} if code_fingerprint is None else {"code_fingerprint": code_fingerprint}
    sealed = {"inputs": inputs} if inputs else {}
    return json.dumps({"places": places, "hide": list(hide)} | sealed | code)


@lru_cache(maxsize=1_000)
def _code_alone(code_fingerprint: str | None) -> str:
    """Return what most tasks of a graph in code have in common."""
    return _references([], {}, code_fingerprint)


async def _store_value(owned: OwnedJob, path: str, value: JsonValue, blobs: OutputBlobs) -> JsonText:
    """Return a value of the engine for its row: as text or, if it is long, as a reference to a new blob."""
    text = json.dumps(value)
    if len(text) <= MAX_INLINE:
        return JsonText(text)
    name = str(OutputName(str(owned.job.id), path, owned.epoch, owned.event_seq))
    await blobs.write(name, text.encode())
    return JsonText(ref=name)
