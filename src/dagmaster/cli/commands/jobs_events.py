"""`dagmaster jobs events`: the audit trail, a sentence for each event. The sentences are made here only."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option, json_lines_option
from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.ports.audit_events import EventType
from dagmaster.text_format import counted, format_error

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from dagmaster.cli.database import ReadSession
    from dagmaster.ports.audit_events import StoredEvent

_BATCH: Final = 2_000
POLL_SECONDS: Final = 0.25
OVER: Final = ("COMPLETED", "FAILED", "CANCELLED")
_COLOURS: Final[dict[str, str]] = {
    EventType.NODE_COMPLETED: "green",
    EventType.NODE_FAILED: "red",
    EventType.ATTEMPT_FAILED: "yellow",
    EventType.ATTEMPT_LOST: "yellow",
    EventType.NODE_CANCELLED: "yellow",
    EventType.CANCEL_REQUESTED: "yellow",
    EventType.COMMAND_REJECTED: "yellow",
    EventType.APPROVAL_REQUESTED: "magenta",
    EventType.NODE_WAITING: "magenta",
}


@click.command(epilog="Exit codes: 0 told, 2 no such job, 3 no database, 130 interrupted.")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this number.")
@click.option("--node", "node_id", metavar="NODE", help="Only events of this node.")
@json_lines_option
@data_dir_option
def events(
    job_id: str, *, follow: bool, after: int, node_id: str | None, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Tell all that happened to a job, in order and without gaps.

    Each event has a number. A program that remembers the last one goes on from there with --after, and misses nothing.

    \b
    Examples:
      dagmaster jobs events last
      dagmaster jobs events 115601869557067776 --after 40 --json
      dagmaster jobs events last -f --node fetch
    """

    async def work(onlooker: ReadSession) -> int:
        head = await onlooker.job(job_id)
        last = after
        while True:
            _, status, _ = await onlooker.store.pulse(head.id)
            told = await onlooker.store.events(head.id, after=last, limit=_BATCH)
            for event in told:
                if node_id is None or event.node == node_id:
                    click.echo(json.dumps(event_document(event), ensure_ascii=False) if as_json else event_line(event))
            last = told[-1].seq if told else last
            if len(told) == _BATCH:
                continue
            if not follow or status in (*OVER, ""):
                return COMPLETED
            await asyncio.sleep(POLL_SECONDS)

    return on_database(data_dir, work)


def event_document(event: StoredEvent) -> dict[str, Any]:
    """An event, for programs."""
    return {
        "seq": event.seq,
        "type": event.type,
        "at": rfc3339(event.at),
        "by": event.by,
        "node": event.node,
        "attempt": event.attempt,
        "data": event.data,
        "sentence": sentence_of(event),
    }


def event_line(event: StoredEvent) -> str:
    """An event, for people: number, local time, and a sentence."""
    at = time.strftime("%H:%M:%S", time.localtime(event.at)) + f".{int(event.at % 1 * 1000):03d}"
    number = click.style(f"{event.seq:>5}", fg="bright_black")
    colour = colour_of(event)
    return f"{number}  {at}  {click.style(event.type.ljust(_WIDTH), fg=colour)}  {sentence_of(event)}"


def colour_of(event: StoredEvent) -> str | None:
    """The colour of an event: of what it means for the job."""
    if event.type == EventType.JOB_FINISHED:
        return {"COMPLETED": "green", "FAILED": "red"}.get(str(event.data.get("status")), "yellow")
    return _COLOURS.get(event.type)


def sentence_of(event: StoredEvent) -> str:
    """Say an event in one sentence."""
    say = _SENTENCES.get(event.type)
    if say is None:
        # A newer version wrote it.
        return f"{event.node or 'the job'}: {event.type}"
    return say(event)


def _error(event: StoredEvent) -> str:
    error = event.data.get("error")
    return format_error(error) if isinstance(error, dict) else "no reason was given"


def _again(event: StoredEvent) -> str:
    at = event.data.get("retry_at")
    return f"; tried again at {str(at)[11:19]}" if at else ""


def _comment(event: StoredEvent) -> str:
    comment = event.data.get("comment")
    return f": {comment}" if comment else ""


def _for_what(event: StoredEvent) -> str:
    signal = event.data.get("signal")
    return f"until {event.data.get('until')}" if signal is None else f"for signal {signal}"


def _expanded(event: StoredEvent) -> str:
    first, count, total = (int(event.data.get(name, 0)) for name in ("first", "count", "total"))
    if count == total:
        return f"{event.node} has {counted(total, 'child', 'children')}"
    return f"{event.node} has children {first:,} to {first + count - 1:,} of {total:,}"


def _finished(event: StoredEvent) -> str:
    error = event.data.get("error")
    why = f": {format_error(error)}" if isinstance(error, dict) else ""
    return f"the job is over: {event.data.get('status')}{why}"


def _added(event: StoredEvent) -> str:
    return f"added: {', '.join(event.data.get('nodes', []))}"


def _completed(event: StoredEvent) -> str:
    branch, reused = event.data.get("branch"), event.data.get("reused_from")
    if isinstance(reused, dict):
        return f"{event.node} has the result that {reused.get('node')} of job {reused.get('job_id')} gave"
    return f"{event.node} completed" + (f" and took branch {branch}" if branch else "")


def _claimed(event: StoredEvent) -> str:
    after, before, where = (event.data.get(key) for key in ("after", "before", "where"))
    owned = f"owned by {f'orchestrator {where}' if where else event.by}"
    if after == "died":
        return f"{owned}: the one before, {before}, died"
    return owned + (f": the one before, {before}, released it" if after else "")


def _submitted(event: StoredEvent) -> str:
    resumed = event.data.get("resumed_from")
    return f"submitted by {event.by}" + (f", resumed from job {resumed}" if resumed else "")


def _dispatched(event: StoredEvent) -> str:
    again = f", attempt {event.attempt}" if (event.attempt or 0) > 1 else ""
    return f"{event.node} waits for a worker{again}"


def _requested(event: StoredEvent) -> str:
    message = event.data.get("message")
    return f"{event.node} waits for a person" + (f": {message}" if message else "")


def _resumed(event: StoredEvent) -> str:
    count, children = event.data.get("count", 0), event.data.get("children", 0)
    below = f" and {counted(children, 'child', 'children')} of fan-outs" if children else ""
    return f"run {event.data.get('run')} begins: {counted(count, 'node')}{below} run again"


def _failed(event: StoredEvent) -> str:
    error = event.data.get("error")
    if isinstance(error, dict) and error.get("kind") == "cancelled":
        return f"{event.node}: attempt {event.attempt} stopped, as it was asked to"
    return f"{event.node}: attempt {event.attempt} failed: {_error(event)}{_again(event)}"


def _lost(event: StoredEvent) -> str:
    worker = event.data.get("worker")
    whose = (
        f"worker {worker} died with attempt {event.attempt}"
        if worker
        else f"the worker of attempt {event.attempt} died"
    )
    return f"{event.node}: {whose}{_again(event)}"


def _released(event: StoredEvent) -> str:
    how = "was called off" if event.data.get("cancelled") else "came back unfinished"
    return f"{event.node}: attempt {event.attempt} {how}"


def _refused(event: StoredEvent) -> str:
    command, reason = event.data.get("command"), str(event.data.get("reason"))
    if command == "cancel" and reason.endswith(("CANCELLED", "cancelled already")):
        return f"{event.by} asked for the job to stop, once more: {reason}"
    return f"{command} of {event.by} was refused: {reason}"


def _stale(event: StoredEvent) -> str:
    about = f"{event.node}: " if event.node else ""
    return f"{about}nothing was changed: {event.data.get('reason')}"


_SENTENCES: Final[dict[str, Callable[[StoredEvent], str]]] = {
    EventType.JOB_SUBMITTED: _submitted,
    EventType.JOB_CLAIMED: _claimed,
    EventType.JOB_STARTED: lambda _: "the job starts",
    EventType.NODE_DISPATCHED: _dispatched,
    EventType.NODE_COMPLETED: _completed,
    EventType.ATTEMPT_FAILED: _failed,
    EventType.ATTEMPT_LOST: _lost,
    EventType.ATTEMPT_RELEASED: _released,
    EventType.NODE_FAILED: lambda e: f"{e.node} failed: {_error(e)}",
    EventType.NODE_SKIPPED: lambda e: f"{e.node} is skipped: {str(e.data.get('reason', '')).replace('_', ' ')}",
    EventType.NODE_CANCELLED: lambda e: f"{e.node} was stopped with the job",
    EventType.NODE_WAITING: lambda e: f"{e.node} waits {_for_what(e)}",
    EventType.NODE_EXPANDED: _expanded,
    EventType.NODES_ADDED: _added,
    EventType.APPROVAL_REQUESTED: _requested,
    EventType.APPROVED: lambda e: f"{e.by} approved {e.node}{_comment(e)}",
    EventType.REJECTED: lambda e: f"{e.by} rejected {e.node}{_comment(e)}",
    EventType.SIGNAL_RECEIVED: lambda e: f"signal {e.data.get('signal')} from {e.by}",
    EventType.CHILD_JOB_STARTED: lambda e: f"{e.node} started job {e.data.get('job_id')}",
    EventType.CHILD_JOB_FINISHED: lambda e: f"the job of {e.node} is over: {e.data.get('status')}",
    EventType.CANCEL_REQUESTED: lambda e: f"{e.by} asked for the job to stop",
    EventType.JOB_RESUMED: _resumed,
    EventType.COMMAND_REJECTED: _refused,
    EventType.STALE_REPORT_IGNORED: _stale,
    EventType.JOB_FINISHED: _finished,
}
_WIDTH: Final = max(len(kind.value) for kind in EventType)
