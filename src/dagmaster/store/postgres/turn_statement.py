"""Builds one statement that commits turns: the parts that have rows, over arrays."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.model import FanOut
from dagmaster.engine.status import JobStatus
from dagmaster.ports.turn_records import CONTENT
from dagmaster.store.postgres.job_columns import child_row
from dagmaster.store.postgres.named_queries import (
    Query,
    array_parameters,
    compile_query,
    for_rows,
    parts,
    value_arguments,
    value_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from dagmaster.engine.decisions import FinishJob
    from dagmaster.engine.model import Node
    from dagmaster.ports.audit_events import AuditEvent
    from dagmaster.ports.job_records import NewJob, ParentNode
    from dagmaster.ports.tasks import NewTask
    from dagmaster.ports.turn_records import TaskResult, TurnCommit, Withdrawal
    from dagmaster.store.postgres.named_queries import Params

Row = dict[str, Any]
"""The columns of a row that a part of turn.sql gets."""
Rows = dict[str, list[Row]]
MAX_EVENT_VALUES: Final = 2
"""A turn of a chain has two events. For more, arrays: each number is one more statement of every kind of
turn."""

# In the order in which a statement has them.
PARTS: Final = (
    "jobs", "finished", "notified", "results", "reopened", "commands", "new_nodes", "nodes", "batches",
    "adders", "tasks", "withdrawals", "stops", "children", "cancelled_children", "parents", "events",
)  # fmt: skip
_NOTIFIES: Final = {
    "tasks": "notify_queues",
    "stops": "notify_stops",
    "children": "notify_children",
    "cancelled_children": "notify_cancelled",
    "parents": "notify_parents",
}

_VARIANT: Final = re.compile(r"\{(\w+)\}")


@cache
def statement(
    present: tuple[str, ...],
    *,
    has_readers: bool,
    is_watched: bool = False,
    single: bool = False,
    events: int = 0,
) -> Query:
    """Combine parts into a statement. A test prepares each part.

    With `single`, each part has one row but the events, which have `events` rows, or any number with 0.
    """
    variant = parts("turn_one" if single else "turn_many")
    counts = {"events": events} if single else dict.fromkeys(parts("turn"), 0)
    texts = {
        name: for_rows(_VARIANT.sub(lambda match: variant[match[1]], text), counts.get(name, 1))
        for name, text in parts("turn").items()
    }
    notifies = [texts[_NOTIFIES[name]] for name in present if name in _NOTIFIES]
    if has_readers:
        notifies.append(texts["notify_readers"])
    if is_watched:
        notifies.append(texts["notify_feeds"])
    first = texts["notified"] if "notified" in present else texts["nothing_notified"]
    heads = ",\n".join([first, *(texts[name] for name in present if name != "notified")])
    selects = ",\n".join(["SELECT (SELECT string_agg(id::text, ',') FROM owned) AS written", *notifies])
    return compile_query("turn", f"WITH {heads}\n{selects}")


def statement_of(
    turns: Sequence[TurnCommit], *, owner_id: int, by: str, now: float, watched: Container[str] = ()
) -> tuple[Query, Params]:
    """Return the statement that commits these turns, and its params.

    It notifies of every turn of a watched job.
    """
    rows: Rows = defaultdict(list)
    for turn in turns:
        _collect(turn, rows)
    present = tuple(filter(rows.__contains__, PARTS))
    # For all parts or none: chosen part by part, there would be too many statements to prepare.
    single = all(len(rows[name]) == 1 for name in present if name != "events")
    events = len(rows.get("events", ()))
    if not single or events > MAX_EVENT_VALUES:
        events = 0
    # Every statement locks rows of the queue in the same order, so that no two deadlock.
    for name in ("withdrawals", "stops"):
        rows.get(name, []).sort(key=_task_id)
    _add_notifies(turns, watched, rows)
    rejections = {key: error for turn in turns for key, error in turn.rejections.items()}
    params: dict[str, Any] = {
        "owner_id": owner_id,
        "by": by,
        "now": datetime.fromtimestamp(now, UTC),
        "rejections": json.dumps(rejections) if rejections else "{}",
    }
    query = statement(
        present,
        has_readers="notify_readers" in rows,
        is_watched="notify_feeds" in rows,
        single=single,
        events=events,
    )
    return query, _with_rows(query, params, rows, are_values=single, events=events)


def _with_rows(query: Query, params: dict[str, Any], rows: Rows, *, are_values: bool, events: int) -> Params:
    """Add rows: as values, as arrays, or as values and the `events` as arrays, if there are too many."""
    if are_values and (events or "events" not in rows):
        return value_arguments(query, params, rows)
    for name, part in rows.items():
        if are_values and name != "events":
            value_parameters(name, part, params)
        else:
            array_parameters(name, part, params)
    return params


def _task_id(row: Row) -> int:
    number: int = row["task_id"]
    return number


def _add_notifies(turns: Sequence[TurnCommit], watched: Container[str], rows: Rows) -> None:
    """Wake readers at the end of a job and after a command, feeds after every turn of a watched job."""
    for turn in turns:
        if turn.finished is not None or turn.commands:
            rows["notify_readers"].append({"id": int(turn.job.id)})
        if turn.job.id in watched:
            rows["notify_feeds"].append({"id": int(turn.job.id)})
    if "tasks" in rows:
        queues = dict.fromkeys([task["queue"] for task in rows["tasks"]])
        rows["notify_queues"] = [{"queue": queue} for queue in queues]


def _collect(turn: TurnCommit, rows: Rows) -> None:
    job_id, finished = int(turn.job.id), turn.finished
    rows["jobs"].append(_job_row(turn, job_id))
    for (part, _, row_of), items in zip(_LISTS, _lists_of(turn), strict=True):
        if items:
            rows[part] += [row_of(turn, job_id, item) for item in items]
    if finished is not None:
        # For the metrics.
        rows["finished"].append({"job_id": job_id, "run": turn.job.run})
        if turn.parent is not None:
            rows["parents"].append(_parent_row(turn, job_id, turn.parent, finished))
    seq = turn.event_seq - len(turn.events)
    for event in turn.events:
        seq += 1
        rows["events"].append(_event_row(job_id, seq, event))


def _job_row(turn: TurnCommit, job_id: int) -> Row:
    job, finished, result = turn.job, turn.finished, turn.result
    is_finished = job.status not in (JobStatus.PENDING, JobStatus.RUNNING)
    return {
        "job_id": job_id,
        "epoch": turn.epoch,
        "event_seq": turn.event_seq,
        "status": job.status,
        "run": job.run,
        "ending": job.ending,
        "stopping": job.stopping,
        "deadline_passed": job.deadline_passed,
        "deadline_at": job.deadline_at,
        "cancel_requested": job.cancel_requested,
        "signals": json.dumps(job.signals) if job.signals else "{}",
        "result": None if result is None else result.text,
        "result_ref": None if result is None else result.ref,
        "error": None if finished is None or finished.error is None else json.dumps(finished.error),
        "finishes": finished is not None,
        "is_finished": is_finished,
        "is_released": is_finished or turn.release,
        "seq_before": turn.event_seq - len(turn.events),
    }


def _node_row(turn: TurnCommit, job_id: int, node: Node) -> Row:
    node_id = node.id
    total, expanded = (node.total, node.expanded) if isinstance(node, FanOut) else (None, 0)
    output, task_id = turn.outputs.get(node_id), turn.task_ids.get(node_id)
    return {
        "job_id": job_id,
        "node_id": node_id,
        "status": node.status,
        "skip_reason": node.skip_reason,
        "attempt": node.attempt,
        "task_id": None if task_id is None else int(task_id),
        "failed_attempts": node.failed_attempts,
        "lost_attempts": node.lost_attempts,
        "shared_losses": node.shared_losses or None,
        "source": turn.sources.get(node_id),
        "source_count": total,
        "expanded_count": expanded,
        "stopped": node.stopped,
        "upstream_node_id": node.upstream,
        "branch": node.branch,
        "wake_at": node.wake_at,
        "finished_seq": node.finished_seq,
        "output": None if output is None else output.text,
        "output_ref": None if output is None else output.ref,
        "error": None if node.error is None else json.dumps(node.error),
        "started_at": turn.started.get(node_id),
        "fingerprint": node.fingerprint,
        "handler_version": node.handler_version,
    }


def _new_node_row(turn: TurnCommit, job_id: int, node: Node) -> Row:
    """Return a node with its parent and index, which never change."""
    row = _node_row(turn, job_id, node)
    row["parent_node_id"] = None if node.parent is None else node.parent.id
    row["fan_out_index"] = node.index
    return row


def _batch_row(turn: TurnCommit, job_id: int, number: int) -> Row:
    decision = turn.batches[number]
    is_accepted = isinstance(decision, int)
    return {
        "job_id": job_id,
        "number": number,
        "accepted_order": decision if is_accepted else None,
        "rejection": None if is_accepted else decision,
    }


def _task_row(turn: TurnCommit, job_id: int, task: NewTask) -> Row:
    return {
        "task_id": int(task.task_id),
        "job_id": job_id,
        "node_id": task.node_id,
        "attempt": task.attempt,
        "queue": task.queue,
        "priority": turn.priority,
        "handler": task.handler,
        "params": task.params,
        "secrets": task.secrets,
        "timeout_seconds": task.timeout_seconds,
        "isolation": int(task.isolation) or None,
        "is_stopped": task.task_id in turn.stopped_at_dispatch,
    }


def _parent_row(turn: TurnCommit, job_id: int, parent: ParentNode, finished: FinishJob) -> Row:
    body = {
        "node": parent.node_id,
        "attempt": parent.attempt,
        "status": turn.job.status.value,
        "result": finished.result,
        "error": finished.error,
        "job_id": turn.job.id,
    }
    return {"job_id": job_id, "parent_job_id": int(parent.job_id), "body": json.dumps(body)}


def _event_row(job_id: int, seq: int, event: AuditEvent) -> Row:
    return {
        "job_id": job_id,
        "seq": seq,
        "type": event.type,
        "by": event.by,
        "node_id": event.node,
        "attempt": event.attempt,
        "data": event.data,
    }


def _result_row(_turn: TurnCommit, job_id: int, result_id: int) -> Row:
    return {"id": result_id, "job_id": job_id}


def _command_row(_turn: TurnCommit, _job_id: int, command_id: int) -> Row:
    return {"id": command_id}


def _notified_row(_turn: TurnCommit, _job_id: int, result: TaskResult) -> Row:
    return dict(zip(CONTENT, result.content, strict=True))


def _reopened_row(_turn: TurnCommit, job_id: int, node_id: str) -> Row:
    return {"job_id": job_id, "node_id": node_id, "is_superseded": False}


def _superseded_row(_turn: TurnCommit, job_id: int, node_id: str) -> Row:
    return {"job_id": job_id, "node_id": node_id, "is_superseded": True}


def _adder_row(_turn: TurnCommit, job_id: int, node_id: str) -> Row:
    return {"job_id": job_id, "node_id": node_id}


def _withdrawal_row(_turn: TurnCommit, _job_id: int, task: Withdrawal) -> Row:
    return {"task_id": int(task.task_id), "status": task.status, "error": task.error}


def _stop_row(_turn: TurnCommit, _job_id: int, task_id: str) -> Row:
    return {"task_id": int(task_id)}


def _child_row(_turn: TurnCommit, _job_id: int, child: NewJob) -> Row:
    return child_row(child)


def _cancelled_row(_turn: TurnCommit, job_id: int, attempt: tuple[str, int]) -> Row:
    return {"job_id": job_id, "node_id": attempt[0], "attempt": attempt[1]}


# Parts, the attributes of a turn that they have a row for each item of, and the row.
_LISTS: Final[tuple[tuple[str, str, Callable[[TurnCommit, int, Any], Row]], ...]] = (
    ("notified", "notified_results", _notified_row),
    ("results", "results", _result_row),
    ("reopened", "reopened", _reopened_row),
    ("reopened", "superseded", _superseded_row),
    ("commands", "commands", _command_row),
    ("new_nodes", "added", _new_node_row),
    ("nodes", "changed", _node_row),
    ("batches", "batches", _batch_row),
    ("adders", "adders", _adder_row),
    ("tasks", "tasks", _task_row),
    ("withdrawals", "withdrawals", _withdrawal_row),
    ("stops", "stops", _stop_row),
    ("children", "children", _child_row),
    ("cancelled_children", "cancelled_children", _cancelled_row),
)
_lists_of = attrgetter(*(attribute for _, attribute, _ in _LISTS))
