"""A turn as one statement: the parts that have rows, over arrays."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.model import FanOut
from dagmaster.engine.status import JobStatus
from dagmaster.store.postgres.named_queries import Query, compiled, of_one_row, parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.engine.model import Node
    from dagmaster.ports.turn_records import TurnCommit

Rows = list[tuple[Any, ...]]

# The parameters of each part, in the order of its rows.
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "jobs": (
        "job_ids", "epochs", "event_seqs", "statuses", "runs", "endings", "stoppings", "deadlines_passed", "deadlines",
        "cancels", "signals", "job_results", "result_refs", "job_errors", "finishes", "overs", "releases", "befores",
    ),
    "pushed": (
        "pushed_ids", "pushed_job_ids", "pushed_nodes", "pushed_attempts", "pushed_statuses", "pushed_permanents",
        "pushed_outputs", "pushed_refs", "pushed_errors", "pushed_claims", "pushed_reports", "pushed_versions",
    ),
    "results": ("result_ids", "result_job_ids"),
    "forgotten": ("forgotten_job_ids", "forgotten_ids"),
    "commands": ("command_ids",),
    # As of nodes, and where it hangs, which never changes.
    "new_nodes": (
        "new_job_ids", "new_ids", "new_statuses", "new_skip_reasons", "new_attempts", "new_task_ids", "new_tries",
        "new_losts", "new_sources", "new_totals", "new_expandeds", "new_stoppeds", "new_upstreams", "new_branches",
        "new_wakes", "new_finishes", "new_outputs", "new_output_refs", "new_errors", "new_starts", "new_prints",
        "new_versions", "new_parents", "new_indexes",
    ),
    "nodes": (
        "node_job_ids", "node_ids", "node_statuses", "node_skip_reasons", "node_attempts", "node_task_ids",
        "node_tries", "node_losts", "node_sources", "node_totals", "node_expandeds", "node_stoppeds",
        "node_upstreams", "node_branches", "node_wakes", "node_finishes", "node_outputs", "node_output_refs",
        "node_errors", "node_starts", "node_prints", "node_versions",
    ),
    "tasks": (
        "task_ids", "task_job_ids", "task_nodes", "task_attempts", "task_queues", "task_handlers", "task_params",
        "task_secrets", "task_timeouts", "task_stops",
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
        "event_job_ids", "event_numbers", "event_types", "event_bys", "event_nodes", "event_attempts", "event_data",
    ),
}  # fmt: skip
_TELLS: Final = {
    "tasks": "tell_queues",
    "stops": "tell_stops",
    "children": "tell_children",
    "cancelled_children": "tell_cancelled",
    "parents": "tell_parents",
}


@cache
def statement(present: tuple[str, ...], *, watched: bool, single: bool = False) -> Query:
    """Put the parts together; `single`: each has one row, but for the events. A test prepares each of them."""
    texts = parts("turn")
    if single:
        texts = {name: text if name == "events" else of_one_row(text) for name, text in texts.items()}
    tells = [texts[_TELLS[name]] for name in present if name in _TELLS]
    if watched:
        tells.append(texts["tell_watchers"])
    first = texts["pushed"] if "pushed" in present else texts["nothing_pushed"]
    heads = ",\n".join([first, *(texts[name] for name in present if name != "pushed")])
    selects = ",\n".join(["SELECT (SELECT string_agg(id::text, ',') FROM owned) AS written", *tells])
    return compiled("turn", f"WITH {heads}\n{selects}")


def statement_of(turns: Sequence[TurnCommit], *, owner_id: int, by: str, now: float) -> tuple[Query, dict[str, Any]]:
    """Return the statement that writes these turns, and its arguments."""
    rows: dict[str, Rows] = {name: [] for name in _COLUMNS}
    for turn in turns:
        _collect(turn, rows)
    given: dict[str, Any] = {"owner_id": owner_id, "by": by, "now": datetime.fromtimestamp(now, UTC)}
    # Whoever locks several rows of the queue does so in one order, so that nobody waits in a ring.
    rows["withdrawals"].sort()
    rows["stops"].sort()
    present = tuple(name for name, found in rows.items() if found)
    # Readers wait for the end of a job, and for the effect of a command.
    watched = [int(turn.job.id) for turn in turns if turn.finished is not None or turn.commands]
    # All or nothing: for each part by itself there would be too many statements to prepare.
    single = all(len(rows[name]) == 1 for name in present if name != "events")
    for name in present:
        columns = rows[name][0] if single and name != "events" else map(list, zip(*rows[name], strict=True))
        given.update(zip(_COLUMNS[name], columns, strict=True))
    if single:
        given["queues"], given["watched"] = given.get("task_queues"), int(turns[0].job.id)
    else:
        given["queues"], given["watched"] = list(dict.fromkeys(given.get("task_queues", ()))), watched
    return statement(present, watched=bool(watched), single=single), given


def _collect(turn: TurnCommit, rows: dict[str, Rows]) -> None:
    job, job_id = turn.job, int(turn.job.id)
    rows["jobs"].append(_job_row(turn, job_id))
    rows["results"] += [(each, job_id) for each in turn.results]
    rows["pushed"] += [each.content for each in turn.notified_results]
    rows["forgotten"] += [(job_id, each) for each in turn.reopened]
    rows["commands"] += [(each,) for each in turn.commands]
    rows["new_nodes"] += [
        (*_node_row(turn, job_id, node), None if node.parent is None else node.parent.id, node.index)
        for node in turn.added
    ]
    rows["nodes"] += [_node_row(turn, job_id, node) for node in turn.changed]
    rows["tasks"] += [
        (
            int(t.task_id), job_id, t.node_id, t.attempt, t.queue, t.handler, t.params, t.secrets, t.timeout_seconds,
            t.task_id in turn.stopped_at_dispatch,
        )
        for t in turn.tasks
    ]  # fmt: skip
    rows["withdrawals"] += [(int(each.task_id), each.status, each.error) for each in turn.withdrawals]
    rows["stops"] += [(int(each),) for each in turn.stops]
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
    first = turn.event_seq - len(turn.events) + 1
    rows["events"] += [
        (job_id, first + place, e.type, e.by, e.node, e.attempt, e.data) for place, e in enumerate(turn.events)
    ]


def _job_row(turn: TurnCommit, job_id: int) -> tuple[Any, ...]:
    job, finished = turn.job, turn.finished
    result = turn.result
    error = None if finished is None or finished.error is None else json.dumps(finished.error)
    is_over = job.status not in (JobStatus.PENDING, JobStatus.RUNNING)
    return (
        job_id, turn.epoch, turn.event_seq, job.status, job.run, job.ending, job.stopping, job.deadline_passed,
        job.deadline_at, job.cancel_requested, json.dumps(job.signals) if job.signals else "{}",
        None if result is None else result.text, None if result is None else result.ref, error, finished is not None,
        is_over, is_over or turn.release, turn.event_seq - len(turn.events),
    )  # fmt: skip


def _node_row(turn: TurnCommit, job_id: int, node: Node) -> tuple[Any, ...]:
    total, expanded, stopped = _fan_out(node)
    node_id = node.id
    output, task_id = turn.outputs.get(node_id), turn.task_ids.get(node_id)
    return (
        job_id, node_id, node.status, node.skip_reason, node.attempt, None if task_id is None else int(task_id),
        node.failed_attempts, node.lost_attempts, turn.sources.get(node_id), total, expanded, stopped, node.upstream,
        node.branch, node.wake_at, node.finished_seq,
        None if output is None else output.text, None if output is None else output.ref,
        None if node.error is None else json.dumps(node.error), turn.started.get(node_id), node.fingerprint,
        node.handler_version,
    )  # fmt: skip


def _fan_out(node: Node) -> tuple[int | None, int, bool]:
    return (node.total, node.expanded, node.stopped) if isinstance(node, FanOut) else (None, 0, False)
