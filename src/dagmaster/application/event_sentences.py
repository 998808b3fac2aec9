"""One sentence for each audit event, and its status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.groups import is_group_start, written_name
from dagmaster.ports.audit_events import EventType
from dagmaster.text_format import format_count, format_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.ports.audit_events import StoredEvent


def event_sentence(event: StoredEvent) -> str:
    if event.node_id is not None and is_group_start(event.node_id):
        event = replace(event, node_id=f"the start of {written_name(event.node_id)}")
    format_event = _SENTENCES.get(event.type)
    if format_event is None:
        # A newer version wrote it.
        return f"{event.node_id or 'the job'}: {event.type}"
    return format_event(event)


def event_status(event: StoredEvent) -> str:
    """Return whether an event is a success, a failure, a warning, or only info.

    The source systems have the same.
    """
    if event.type in _ENDS_OF_JOBS:
        return _STATUSES_OF_JOBS.get(str(event.data.get("status")), "info")
    return _STATUSES.get(event.type, "info")


def _error(event: StoredEvent) -> str:
    error = event.data.get("error")
    return format_error(error) if isinstance(error, dict) else "no reason is known"


def _next_attempt(event: StoredEvent) -> str:
    at = event.data.get("retry_at")
    return f"; next attempt at {str(at)[11:19]}" if at else ""


def _comment(event: StoredEvent) -> str:
    comment = event.data.get("comment")
    return f": {comment}" if comment else ""


def _waiting(event: StoredEvent) -> str:
    signal = event.data.get("signal")
    return f"{event.node_id} waits " + (
        f"until {event.data.get('until')}" if signal is None else f"for signal {signal}"
    )


def _expanded(event: StoredEvent) -> str:
    first, count, total = (int(event.data.get(name, 0)) for name in ("first", "count", "total"))
    if count == total:
        return f"{event.node_id} has {format_count(total, 'child', 'children')}"
    return f"{event.node_id} has children {first:,} to {first + count - 1:,} of {total:,}"


def _job_finished(event: StoredEvent) -> str:
    error = event.data.get("error")
    reason = f": {format_error(error)}" if isinstance(error, dict) else ""
    return f"the job finished: {event.data.get('status')}{reason}"


def _completed(event: StoredEvent) -> str:
    branch, reused = event.data.get("branch"), event.data.get("reused_from")
    if isinstance(reused, dict):
        return f"{event.node_id} reuses the result of {reused.get('node')} of job {reused.get('job_id')}"
    return f"{event.node_id} completed" + (f" and took branch {branch}" if branch else "")


def _claimed(event: StoredEvent) -> str:
    after, before, where = (event.data.get(key) for key in ("after", "before", "where"))
    claimed = f"claimed by {f'orchestrator {where}' if where else event.by}"
    if after == "died":
        return f"{claimed}; its owner {before} died"
    return claimed + (f"; its owner {before} released it" if after else "")


def _submitted(event: StoredEvent) -> str:
    resumed = event.data.get("resumed_from")
    return f"submitted by {event.by}" + (f", resumed from job {resumed}" if resumed else "")


_ISOLATIONS: Final = {
    "process": ", to run in a separate child process",
    "exclusive": ", to run alone on it",
}


def _dispatched(event: StoredEvent) -> str:
    attempt = f", attempt {event.attempt}" if (event.attempt or 0) > 1 else ""
    return (
        f"{event.node_id} waits for a worker{attempt}{_ISOLATIONS.get(str(event.data.get('isolation')), '')}"
    )


def _checkpoint_saved(event: StoredEvent) -> str:
    omitted = event.data.get("omitted")
    before = f", after {format_count(omitted, 'other')}" if omitted else ""
    name, seconds = event.data.get("checkpoint_name"), event.data.get("after_seconds")
    return f"{event.node_id}: attempt {event.attempt} saved checkpoint {name} after {seconds} s{before}"


def _approval_requested(event: StoredEvent) -> str:
    message = event.data.get("message")
    return f"{event.node_id} waits for approval" + (f": {message}" if message else "")


def _resumed(event: StoredEvent) -> str:
    count, children = event.data.get("count", 0), event.data.get("children", 0)
    below = f" and {format_count(children, 'child', 'children')} of fan-outs" if children else ""
    skipped = event.data.get("skipped", 0)
    rest = f"; {format_count(skipped, 'other')} could not be retried" if skipped else ""
    return f"run {event.data.get('run')} starts: {format_count(count, 'node')}{below} to run again{rest}"


def _node_cancel_requested(event: StoredEvent) -> str:
    count, skipped = event.data.get("count", 1), event.data.get("skipped", 0)
    nodes = event.node_id or format_count(count, "node")
    rest = f"; {format_count(skipped, 'other')} could not be cancelled" if skipped else ""
    return f"{event.by} requested cancellation of {nodes}{rest}"


def how_it_stopped(error: Mapping[str, Any]) -> str:
    """Return how an attempt ended that was asked to stop; its `error` has the kind `cancelled`."""
    if error.get("signal"):
        return "did not stop on request: killed"
    return "did not stop on request: abandoned" if error.get("abandoned") else "stopped on request"


def _attempt_failed(event: StoredEvent) -> str:
    error = event.data.get("error")
    if isinstance(error, dict) and error.get("kind") == "cancelled":
        return f"{event.node_id}: attempt {event.attempt} {how_it_stopped(error)}"
    return f"{event.node_id}: attempt {event.attempt} failed: {_error(event)}{_next_attempt(event)}"


def _attempt_lost(event: StoredEvent) -> str:
    worker = event.data.get("worker")
    lost = f"the worker of attempt {event.attempt} died"
    if worker:
        what = "reached its memory limit" if event.data.get("reason") == "memory" else "died"
        lost = f"worker {worker} {what} with attempt {event.attempt}"
    if event.data.get("alone") is False:
        # Events of earlier versions do not say whether the loss was charged: up to ten losses of a node were
        # not.
        verb = "is" if event.data.get("charged") else "is not"
        lost += f", one of several tasks; the loss {verb} charged"
    return f"{event.node_id}: {lost}"


def _attempt_released(event: StoredEvent) -> str:
    how = "was cancelled" if event.data.get("cancelled") else "was released unfinished"
    return f"{event.node_id}: attempt {event.attempt} {how}"


def _command_rejected(event: StoredEvent) -> str:
    return f"{event.data.get('command')} by {event.by} was rejected: {event.data.get('reason')}"


def _stale_report(event: StoredEvent) -> str:
    subject = f"{event.node_id}: " if event.node_id else ""
    return f"{subject}nothing changed: {event.data.get('reason')}"


_SENTENCES: Final[dict[str, Callable[[StoredEvent], str]]] = {
    EventType.JOB_SUBMITTED: _submitted,
    EventType.JOB_CLAIMED: _claimed,
    EventType.JOB_STARTED: lambda _: "the job starts",
    EventType.NODE_DISPATCHED: _dispatched,
    EventType.ATTEMPT_STARTED: lambda e: (
        f"{e.node_id}: attempt {e.attempt} started at {str(e.data.get('started_at'))[11:19]}"
    ),
    EventType.CHECKPOINT_SAVED: _checkpoint_saved,
    EventType.NODE_COMPLETED: _completed,
    EventType.ATTEMPT_FAILED: _attempt_failed,
    EventType.ATTEMPT_LOST: _attempt_lost,
    EventType.ATTEMPT_RELEASED: _attempt_released,
    EventType.NODE_FAILED: lambda e: f"{e.node_id} failed: {_error(e)}",
    EventType.NODE_SKIPPED: lambda e: (
        f"{e.node_id} is skipped: {str(e.data.get('reason', '')).replace('_', ' ')}"
    ),
    EventType.NODE_CANCELLED: lambda e: f"{e.node_id} was cancelled",
    EventType.NODE_WAITING: _waiting,
    EventType.NODE_EXPANDED: _expanded,
    EventType.NODES_ADDED: lambda e: f"added nodes: {', '.join(e.data.get('nodes', []))}",
    EventType.APPROVAL_REQUESTED: _approval_requested,
    EventType.APPROVED: lambda e: f"{e.by} approved {e.node_id}{_comment(e)}",
    EventType.REJECTED: lambda e: f"{e.by} rejected {e.node_id}{_comment(e)}",
    EventType.SIGNAL_RECEIVED: lambda e: f"signal {e.data.get('signal')} from {e.by}",
    EventType.CHILD_JOB_STARTED: lambda e: f"{e.node_id} started job {e.data.get('job_id')}",
    EventType.CHILD_JOB_FINISHED: lambda e: f"the child job of {e.node_id} finished: {e.data.get('status')}",
    EventType.CANCEL_REQUESTED: lambda e: f"{e.by} requested cancellation{_comment(e)}",
    EventType.NODE_CANCEL_REQUESTED: _node_cancel_requested,
    EventType.JOB_RESUMED: _resumed,
    EventType.COMMAND_REJECTED: _command_rejected,
    EventType.STALE_REPORT_IGNORED: _stale_report,
    EventType.JOB_FINISHED: _job_finished,
}

_ENDS_OF_JOBS: Final = frozenset({EventType.JOB_FINISHED, EventType.CHILD_JOB_FINISHED})
_STATUSES_OF_JOBS: Final[dict[str, str]] = {
    "COMPLETED": "success",
    "FAILED": "failure",
    "CANCELLED": "warning",
}
_STATUSES: Final[dict[str, str]] = {
    EventType.NODE_COMPLETED: "success",
    EventType.CHECKPOINT_SAVED: "success",
    EventType.APPROVED: "success",
    EventType.ATTEMPT_FAILED: "failure",
    EventType.NODE_FAILED: "failure",
    EventType.ATTEMPT_LOST: "warning",
    EventType.NODE_CANCELLED: "warning",
    EventType.REJECTED: "warning",
    EventType.CANCEL_REQUESTED: "warning",
    EventType.NODE_CANCEL_REQUESTED: "warning",
    EventType.COMMAND_REJECTED: "warning",
    EventType.STALE_REPORT_IGNORED: "warning",
}
