"""Builds one statement that commits turns: the parts that have rows, over arrays."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.model import FanOut
from dagmaster.engine.status import JobStatus
from dagmaster.store.postgres.named_queries import Query, compile_query, for_rows, parts, row_parameters

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from dagmaster.engine.model import Node
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.turn_records import TurnCommit

Rows = list[tuple[Any, ...]]
MAX_EVENT_VALUES: Final = 2
"""A turn of a chain has two events. For more, arrays: each number is one more statement of every kind of
turn."""

# The parameters of each part, in the order of its rows.
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "jobs": (
        "job_ids", "epochs", "event_seqs", "statuses", "runs", "endings", "stoppings", "deadlines_passed", "deadlines",
        "cancels", "signals", "job_results", "result_refs", "job_errors", "finishes", "finished_flags",
        "releases", "seqs_before",
    ),
    # Queued for the metrics.
    "finished": ("finished_job_ids", "finished_runs"),
    "notified": (
        "notified_ids", "notified_job_ids", "notified_nodes", "notified_attempts", "notified_statuses",
        "notified_permanents", "notified_outputs", "notified_refs", "notified_errors", "notified_starts",
        "notified_reports", "notified_versions",
    ),
    "results": ("result_ids", "result_job_ids"),
    "reopened": ("reopened_job_ids", "reopened_ids", "superseded"),
    "commands": ("command_ids",),
    # The columns of `nodes`, and the parent and index, which never change.
    "new_nodes": (
        "new_job_ids", "new_ids", "new_statuses", "new_skip_reasons", "new_attempts", "new_task_ids",
        "new_failed_attempts", "new_lost_attempts", "new_shared_losses", "new_sources", "new_source_counts",
        "new_expanded_counts", "new_stoppeds", "new_upstreams", "new_branches", "new_wakes", "new_finishes",
        "new_outputs", "new_output_refs", "new_errors", "new_starts", "new_fingerprints", "new_versions", "new_parents",
        "new_indexes",
    ),
    "nodes": (
        "node_job_ids", "node_ids", "node_statuses", "node_skip_reasons", "node_attempts", "node_task_ids",
        "node_failed_attempts", "node_lost_attempts", "node_shared_losses", "node_sources", "node_source_counts",
        "node_expanded_counts", "node_stoppeds", "node_upstreams", "node_branches", "node_wakes", "node_finishes",
        "node_outputs", "node_output_refs", "node_errors", "node_starts", "node_fingerprints", "node_versions",
    ),
    "batches": ("batch_job_ids", "batch_numbers", "batch_orders", "batch_rejections"),
    "adders": ("adder_job_ids", "adders"),
    "tasks": (
        "task_ids", "task_job_ids", "task_nodes", "task_attempts", "task_queues", "task_priorities", "task_handlers",
        "task_params", "task_secrets", "task_timeouts", "task_isolations", "task_stops",
    ),
    "withdrawals": ("withdrawn_ids", "withdrawn_statuses", "withdrawn_errors"),
    "stops": ("stop_ids",),
    "children": (
        "child_ids", "child_workflows", "child_versions", "child_hashes", "child_inputs", "child_parents",
        "child_parent_nodes", "child_parent_attempts", "child_resumed_froms",
    ),
    "cancelled_children": ("cancelled_parents", "cancelled_nodes", "cancelled_attempts"),
    "parents": ("parent_children", "parent_ids", "parent_bodies"),
    "events": (
        "event_job_ids", "event_seq_numbers", "event_types", "event_bys", "event_nodes", "event_attempts", "event_data",
    ),
}  # fmt: skip
_NOTIFIES: Final = {
    "tasks": "notify_queues",
    "stops": "notify_stops",
    "children": "notify_children",
    "cancelled_children": "notify_cancelled",
    "parents": "notify_parents",
}
# What `_for_one_job` replaces. The ids of rows of the turn are those of its job; ids that were read are
# compared.
_IS_OWNED: Final = re.compile(r"\(n\.\w+ IN \(SELECT id FROM owned\)\) IS TRUE")
_IS_OF_OWNED: Final = re.compile(r"\((\w\.job_id) IN \(SELECT id FROM owned\)\) IS TRUE")
_IS_REFUTED: Final = re.compile(r"\(n\.id IN \(SELECT job_id FROM refuted\)\) IS NOT TRUE")
_LOOK_UP: Final = re.compile(
    r"CROSS JOIN LATERAL \(SELECT f\.ctid AS row_id FROM \w+ f\s+WHERE (?P<condition>[^()]+) LIMIT 1\) f"
    r"(?P<between>.*?WHERE )(?P<changed>\w)\.ctid = f\.row_id",
    re.DOTALL,
)
_OUTER_LOOK_UP: Final = re.compile(
    r"LEFT JOIN LATERAL \(SELECT \* FROM (\w+ \w) WHERE ([^()]+) LIMIT 1\) \w ON true"
)


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
    texts = parts("turn")
    if single:
        texts = {
            name: _for_one_job(text, rows=events if name == "events" else 1) for name, text in texts.items()
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


def _for_one_job(text: str, *, rows: int) -> str:
    """Return a part for one job, and for this many rows; with 0, for any number of them.

    Its rows are found by keys that are constants: no plan of that depends on statistics. A turn of a chain
    takes 350 µs of the server's CPU, with look-ups and hashed subplans 540 (2026-11, PostgreSQL 18).
    """
    text = _IS_REFUTED.sub(
        "NOT EXISTS (SELECT FROM refuted)", _IS_OWNED.sub("EXISTS (SELECT FROM owned)", text)
    )
    text = _IS_OF_OWNED.sub(r"\1 = (SELECT id FROM owned)", text)
    if not rows:
        return text
    look_up = _LOOK_UP.search(text)
    if look_up is not None:
        changed = look_up["changed"]
        condition = look_up["condition"].replace("f.", f"{changed}.")
        text = _LOOK_UP.sub(rf"\g<between>{condition}", text)
    return for_rows(_OUTER_LOOK_UP.sub(r"LEFT JOIN \1 ON \2", text), rows)


def statement_of(
    turns: Sequence[TurnCommit], *, owner_id: int, by: str, now: float, watched: Container[str] = ()
) -> tuple[Query, JsonObject]:
    """Return the statement that commits these turns, and its params.

    It notifies of every turn of a watched job.
    """
    rows: dict[str, Rows] = {name: [] for name in _COLUMNS}
    for turn in turns:
        _collect(turn, rows)
    params: dict[str, Any] = {"owner_id": owner_id, "by": by, "now": datetime.fromtimestamp(now, UTC)}
    params["rejections"] = json.dumps(
        {key: error for turn in turns for key, error in turn.rejections.items()}
    )
    # Every statement locks rows of the queue in the same order, so that no two deadlock.
    rows["withdrawals"].sort()
    rows["stops"].sort()
    present = tuple(name for name, part in rows.items() if part)
    # Readers wait for the end of a job, and for the effect of a command; feeds for every turn of the jobs
    # they watch.
    read_job_ids = [int(turn.job.id) for turn in turns if turn.finished is not None or turn.commands]
    watched_job_ids = [int(turn.job.id) for turn in turns if turn.job.id in watched]
    # For all parts or none: chosen part by part, there would be too many statements to prepare.
    single = all(len(rows[name]) == 1 for name in present if name != "events")
    events = len(rows["events"]) if single and len(rows["events"]) <= MAX_EVENT_VALUES else 0
    for name in present:
        if single and (events or name != "events"):
            params.update(row_parameters(_COLUMNS[name], rows[name]))
        else:
            params.update(zip(_COLUMNS[name], map(list, zip(*rows[name], strict=True)), strict=True))
    if single:
        params["queues"] = params.get("task_queues")
        params["read_job_ids"] = params["watched_job_ids"] = int(turns[0].job.id)
    else:
        params["queues"] = list(dict.fromkeys(params.get("task_queues", ())))
        params["read_job_ids"], params["watched_job_ids"] = read_job_ids, watched_job_ids
    query = statement(
        present,
        has_readers=bool(read_job_ids),
        is_watched=bool(watched_job_ids),
        single=single,
        events=events,
    )
    return query, params


def _collect(turn: TurnCommit, rows: dict[str, Rows]) -> None:
    job, job_id = turn.job, int(turn.job.id)
    rows["jobs"].append(_job_row(turn, job_id))
    rows["finished"] += [(job_id, job.run)] if turn.finished is not None else []
    rows["results"] += [(result_id, job_id) for result_id in turn.results]
    rows["notified"] += [result.content for result in turn.notified_results]
    rows["reopened"] += [(job_id, node_id, False) for node_id in turn.reopened]
    rows["reopened"] += [(job_id, node_id, True) for node_id in turn.superseded]
    rows["adders"] += [(job_id, node_id) for node_id in turn.adders]
    rows["commands"] += [(command_id,) for command_id in turn.commands]
    rows["new_nodes"] += [
        (*_node_row(turn, job_id, node), None if node.parent is None else node.parent.id, node.index)
        for node in turn.added
    ]
    rows["nodes"] += [_node_row(turn, job_id, node) for node in turn.changed]
    rows["batches"] += [
        (job_id, number, *((order, None) if isinstance(order, int) else (None, order)))
        for number, order in turn.batches.items()
    ]
    rows["tasks"] += [
        (
            int(t.task_id), job_id, t.node_id, t.attempt, t.queue, turn.priority, t.handler, t.params, t.secrets,
            t.timeout_seconds, int(t.isolation) or None, t.task_id in turn.stopped_at_dispatch,
        )
        for t in turn.tasks
    ]  # fmt: skip
    rows["withdrawals"] += [(int(task.task_id), task.status, task.error) for task in turn.withdrawals]
    rows["stops"] += [(int(task_id),) for task_id in turn.stops]
    rows["children"] += [
        (
            int(c.id), c.workflow_id, c.version, c.content_hash, c.inputs, job_id, c.parent.node_id, c.parent.attempt,
            None if c.resumed_from is None else int(c.resumed_from),
        )
        for c in turn.children
        if c.parent is not None
    ]  # fmt: skip
    rows["cancelled_children"] += [(job_id, node_id, attempt) for node_id, attempt in turn.cancelled_children]
    if turn.finished is not None and turn.parent is not None:
        parent = turn.parent
        body = {
            "node": parent.node_id,
            "attempt": parent.attempt,
            "status": job.status.value,
            "result": turn.finished.result,
            "error": turn.finished.error,
            "job_id": job.id,
        }
        rows["parents"].append((job_id, int(parent.job_id), json.dumps(body)))
    first_seq = turn.event_seq - len(turn.events) + 1
    rows["events"] += [
        (job_id, first_seq + offset, e.type, e.by, e.node, e.attempt, e.data)
        for offset, e in enumerate(turn.events)
    ]


def _job_row(turn: TurnCommit, job_id: int) -> tuple[Any, ...]:
    job, finished = turn.job, turn.finished
    result = turn.result
    error = None if finished is None or finished.error is None else json.dumps(finished.error)
    is_finished = job.status not in (JobStatus.PENDING, JobStatus.RUNNING)
    return (
        job_id, turn.epoch, turn.event_seq, job.status, job.run, job.ending, job.stopping, job.deadline_passed,
        job.deadline_at, job.cancel_requested, json.dumps(job.signals) if job.signals else "{}",
        None if result is None else result.text, None if result is None else result.ref, error, finished is not None,
        is_finished, is_finished or turn.release, turn.event_seq - len(turn.events),
    )  # fmt: skip


def _node_row(turn: TurnCommit, job_id: int, node: Node) -> tuple[Any, ...]:
    total, expanded = (node.total, node.expanded) if isinstance(node, FanOut) else (None, 0)
    node_id = node.id
    output, task_id = turn.outputs.get(node_id), turn.task_ids.get(node_id)
    return (
        job_id, node_id, node.status, node.skip_reason, node.attempt, None if task_id is None else int(task_id),
        node.failed_attempts, node.lost_attempts, node.shared_losses or None, turn.sources.get(node_id), total,
        expanded, node.stopped, node.upstream, node.branch, node.wake_at, node.finished_seq,
        None if output is None else output.text, None if output is None else output.ref,
        None if node.error is None else json.dumps(node.error), turn.started.get(node_id), node.fingerprint,
        node.handler_version,
    )  # fmt: skip
