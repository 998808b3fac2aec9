"""`dagmaster jobs events`: the audit trail, a sentence for each event."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.application.event_sentences import event_sentence
from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option, json_lines_option
from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.ports.audit_events import EventType

if TYPE_CHECKING:
    import pathlib

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
        "sentence": event_sentence(event),
    }


def event_line(event: StoredEvent) -> str:
    """An event, for people: number, local time, and a sentence."""
    at = time.strftime("%H:%M:%S", time.localtime(event.at)) + f".{int(event.at % 1 * 1000):03d}"
    number = click.style(f"{event.seq:>5}", fg="bright_black")
    colour = colour_of(event)
    return f"{number}  {at}  {click.style(event.type.ljust(_WIDTH), fg=colour)}  {event_sentence(event)}"


def colour_of(event: StoredEvent) -> str | None:
    """The colour of an event: of what it means for the job."""
    if event.type == EventType.JOB_FINISHED:
        return {"COMPLETED": "green", "FAILED": "red"}.get(str(event.data.get("status")), "yellow")
    return _COLOURS.get(event.type)


_WIDTH: Final = max(len(kind.value) for kind in EventType)
