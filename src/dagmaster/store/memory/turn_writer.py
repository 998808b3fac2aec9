"""Writes turns into a `MemoryDatabase`: the same parts as `store/postgres/sql/turn.sql`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.engine.model import row_of
from dagmaster.engine.status import AttemptStatus, JobStatus, NodeStatus
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_columns import Use, column_names
from dagmaster.store.memory.added_nodes import decide_batches, supersede_batches
from dagmaster.store.memory.database import OPEN_JOB, StoredNode, StoredTask, add_event

if TYPE_CHECKING:
    from dagmaster.engine.model import Node
    from dagmaster.ports.job_records import NewJob
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.turn_records import TurnCommit
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob


def write_turn(database: MemoryDatabase, turn: TurnCommit, owner_id: str, by: str, now: float) -> bool:
    """Commit the turn of one job; return False, and change nothing, if the turn is not current."""
    job = database.jobs.get(turn.job.id)
    if job is None or not _is_current(database, job, turn, owner_id):
        return False
    # A turn does not withdraw or stop what it dispatches or starts itself: as in SQL, its parts see the rows
    # before it.
    _check(job, turn)
    _delete_processed(database, turn)
    _withdraw(database, turn, now)
    _stop(database, turn, now)
    _cancel_children(database, turn, by, now)
    _drop_checkpoints(database, job, turn)
    supersede_batches(job, turn.adders)
    _write_nodes(job, turn, now)
    decide_batches(job, turn.batches)
    _dispatch(database, job, turn, now)
    _add_children(database, job, turn, by, now)
    for event in turn.events:
        add_event(
            job, now, event.type.value, event.by or by, node=event.node, attempt=event.attempt,
            data=event.data
        )  # fmt: skip
    _write_job(job, turn, now)
    if turn.finished is not None:
        database.metric_pending[turn.job.id, turn.job.run] = None
    _notify_parent(database, turn, by, now)
    if turn.finished is not None or turn.commands:
        database.notify(f"job {turn.job.id}")
    database.notify(f"turn {turn.job.id}")
    return True


def _is_current(database: MemoryDatabase, job: StoredJob, turn: TurnCommit, owner_id: str) -> bool:
    """Return whether owner, epoch, events and notified results are what the turn started from."""
    if job.owner_id != owner_id or job.epoch != turn.epoch:
        return False
    if turn.event_seq != len(job.events) + len(turn.events):
        return False
    return all(result.content == _stored_content(database, result.id) for result in turn.notified_results)


def _stored_content(database: MemoryDatabase, number: int) -> tuple[Any, ...] | None:
    stored = database.results.get(number)
    # Checkpoints and added nodes are not in notifications: the result has to be read.
    is_partial = stored is not None and (stored.result.checkpoints or stored.result.batches)
    return None if stored is None or is_partial else stored.result.content


def _check(job: StoredJob, turn: TurnCommit) -> None:
    """Raise `ValueError` for a turn that a constraint of PostgreSQL would reject."""
    existing = [node.id for node in turn.added if node.id in job.nodes]
    missing = [node.id for node in turn.changed if node.id not in job.nodes]
    if existing or missing:
        raise ValueError(f"job {turn.job.id}: nodes {existing} have a row already, nodes {missing} have none")


def _delete_processed(database: MemoryDatabase, turn: TurnCommit) -> None:
    for number in turn.results:
        stored = database.results.get(number)
        if stored is not None and stored.result.job_id == turn.job.id:
            del database.results[number]
            error = turn.rejections.get(number)
            if error is not None:
                stored.result = replace(stored.result, status=AttemptStatus.FAILED, error=json.dumps(error))
            result = stored.result
            database.attempts.setdefault((result.job_id, result.node_id, result.attempt), stored)
    for number in turn.commands:
        command = database.inbox.get(number)
        if command is not None and command.job_id == turn.job.id:
            del database.inbox[number]


def _withdraw(database: MemoryDatabase, turn: TurnCommit, now: float) -> None:
    for withdrawal in turn.withdrawals:
        task = database.queue.get(withdrawal.task_id)
        if task is not None and task.worker_id is None and task.job_id == turn.job.id:
            database.finish_task(task, withdrawal.status, now, error=withdrawal.error)


def _stop(database: MemoryDatabase, turn: TurnCommit, now: float) -> None:
    for task_id in turn.stops:
        task = database.queue.get(task_id)
        if task is not None and task.job_id == turn.job.id:
            task.stop_requested_at = now
            if task.worker_id is not None:
                database.notify(f"worker {task.worker_id}")


def _cancel_children(database: MemoryDatabase, turn: TurnCommit, by: str, now: float) -> None:
    parents = {(turn.job.id, node, attempt) for node, attempt in turn.cancelled_children}
    for job_id, child in database.jobs.items():
        if child.new.parent is not None and child.new.parent in parents:
            database.add_command(job_id, CommandKind.CANCEL, "{}", by, now)


def _write_nodes(job: StoredJob, turn: TurnCommit, now: float) -> None:
    for node in turn.added:
        job.nodes[node.id] = StoredNode(row_of(node))
    for node in (*turn.added, *turn.changed):
        _write_node(job.nodes[node.id], node, turn, now)


def _write_node(record: StoredNode, node: Node, turn: TurnCommit, now: float) -> None:
    before = record.row
    record.updated_at = now
    # The engine keeps changing its node: a copy is stored.
    row = record.row = row_of(node)._replace(error=_copy(node.error))
    record.task_id = turn.task_ids.get(node.id, record.task_id)
    record.source = turn.sources.get(node.id, record.source)
    if row.status is not NodeStatus.COMPLETED:
        record.output = None
    elif node.id in turn.outputs:
        record.output = _copied(turn.outputs[node.id])
    if node.id in turn.started:
        record.started_at = turn.started[node.id]
    elif row.attempt != before.attempt:
        record.started_at = None
    if row.finished_seq is None:
        record.finished_at = None
    elif record.finished_at is None or row.finished_seq != before.finished_seq:
        record.finished_at = now


def _drop_checkpoints(database: MemoryDatabase, job: StoredJob, turn: TurnCommit) -> None:
    """Drop the checkpoints of completed work, and of nodes that are created again as something else."""
    completed = [
        node_id
        for node_id in turn.reopened
        if node_id in job.nodes and job.nodes[node_id].row.status is NodeStatus.COMPLETED
    ]
    for node_id in (*completed, *turn.superseded):
        database.checkpoints.pop((turn.job.id, node_id), None)


def _dispatch(database: MemoryDatabase, job: StoredJob, turn: TurnCommit, now: float) -> None:
    for task in turn.tasks:
        database.enqueue(
            StoredTask(
                **task.values(),
                priority=job.new.priority,
                dispatched_at=now,
                stop_requested_at=now if task.task_id in turn.stopped_at_dispatch else None,
            )
        )
    for queue in dict.fromkeys(task.queue for task in turn.tasks):
        database.notify("tasks", queue)


def _add_children(database: MemoryDatabase, job: StoredJob, turn: TurnCommit, by: str, now: float) -> None:
    for child in turn.children:
        database.add_job(_of_parent(job.new, child), now, by)
    if turn.children:
        database.notify("jobs")


def _of_parent(parent: NewJob, child: NewJob) -> NewJob:
    inherited = {name: getattr(parent, name) for name in column_names(Use.INHERIT)}
    return replace(child, **inherited, depth=parent.depth + 1)


def _write_job(job: StoredJob, turn: TurnCommit, now: float) -> None:
    row = turn.job.row()
    job.row = replace(row, signals=_copy(row.signals))
    job.updated_at = now
    job.cancel_requested_at = (job.cancel_requested_at or now) if row.cancel_requested else None
    if row.status in OPEN_JOB:
        job.result, job.error, job.finished_at = None, None, None
    elif turn.finished is not None:
        job.result, job.error, job.finished_at = _copied(turn.result), _copy(turn.finished.error), now
    if job.started_at is None and row.status is not JobStatus.PENDING:
        job.started_at = now
    if turn.release or not job.is_open:
        job.owner_id = None


def _notify_parent(database: MemoryDatabase, turn: TurnCommit, by: str, now: float) -> None:
    parent, finished = turn.parent, turn.finished
    if parent is None or finished is None:
        return
    body = {
        "node": parent.node_id,
        "attempt": parent.attempt,
        "status": turn.job.status.value,
        "result": finished.result,
        "error": finished.error,
        "job_id": turn.job.id,
    }
    database.add_command(parent.job_id, CommandKind.CHILD_FINISHED, json.dumps(body), by, now)


def _copy(value: Any) -> Any:
    return None if value is None else json.loads(json.dumps(value))


def _copied(value: JsonText | None) -> JsonText | None:
    return None if value is None else replace(value)
