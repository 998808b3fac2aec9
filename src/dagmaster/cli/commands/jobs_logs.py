"""`dagmaster jobs logs`: what the tasks of a job wrote."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.cli.commands.jobs_events import OVER, POLL_SECONDS
from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option, json_lines_option
from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.errors import CommandRejected

if TYPE_CHECKING:
    import pathlib

    from dagmaster.cli.database import ReadSession
    from dagmaster.store.postgres.legacy_read_store import JobDetail, LogPiece

_BATCH: Final = 500
_OVERLAP: Final = timedelta(seconds=2)


@click.command(epilog="Exit codes: 0 printed, 2 no such job or node, 3 no database, 130 interrupted.")
@job_argument
@click.argument("node_id", metavar="[NODE]", required=False)
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@json_lines_option
@data_dir_option
def logs(
    job_id: str,
    node_id: str | None,
    *,
    attempt: int | None,
    follow: bool,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Print what the tasks of a job wrote: their prints and their log lines, in order.

    Of several nodes, each line begins with its node. A child of a fan-out is named as `tiles__17`. Of one node that
    failed, the traceback stands at the end.

    \b
    Examples:
      dagmaster jobs logs last
      dagmaster jobs logs last fetch --attempt 1
      dagmaster jobs logs last -f
    """

    async def work(onlooker: ReadSession) -> int:
        head = await onlooker.job(job_id)
        if node_id is not None:
            await _check(onlooker, head, node_id)
        place: tuple[Any, int, int] | None = None
        printed: dict[tuple[int, int], Any] = {}
        printer = _Printer(is_prefixed=node_id is None, as_json=as_json)
        while True:
            _, status, _ = await onlooker.store.pulse(head.id)
            pieces = await onlooker.store.logs(head.id, node_id=node_id, attempt=attempt, after=place, limit=_BATCH)
            for piece in pieces:
                moment, task_id, chunk = place = piece.place
                if (task_id, chunk) not in printed:
                    printed[task_id, chunk] = moment
                    printer.print(piece)
            if len(pieces) == _BATCH:
                continue
            if place is not None:
                # What was written a little earlier may be seen a little later: workers do not wait for each other.
                earlier = place[0] - _OVERLAP
                printed = {key: moment for key, moment in printed.items() if moment >= earlier}
                place = (earlier, 0, 0)
            if not follow or status in (*OVER, ""):
                break
            await asyncio.sleep(POLL_SECONDS)
        printer.end()
        if node_id is not None and not as_json and await _say_traceback(onlooker, head, node_id, attempt):
            return COMPLETED
        if place is None and not as_json:
            whose = f"node {node_id}" if node_id else "the tasks"
            which = f" in attempt {attempt}" if attempt else ""
            later = "" if status in OVER else " so far (-f waits for more)"
            click.echo(f"{whose} of job {head.id} wrote nothing{which}{later}", err=True)
        return COMPLETED

    return on_database(data_dir, work)


async def _check(onlooker: ReadSession, head: JobDetail, node_id: str) -> None:
    if await onlooker.store.nodes(head.id, [node_id]):
        return
    from dagmaster.authoring.suggestions import did_you_mean

    definition = await onlooker.store.definition(head.content_hash) or {}
    if node_id not in definition.get("nodes", {}):
        hint = did_you_mean(node_id, definition.get("nodes", {}))
        raise CommandRejected(f"{head.workflow_id} has no node {node_id!r}. {hint[:1].upper()}{hint[1:]}".strip())


async def _say_traceback(onlooker: ReadSession, head: JobDetail, node_id: str, attempt: int | None) -> bool:
    """Print where the last attempt of a node failed, if it did and that is known."""
    for line in await onlooker.store.nodes(head.id, [node_id]):
        error = line.error or {}
        told = str(error.get("traceback") or "").rstrip()
        if told and attempt in (None, line.attempt):
            click.echo(click.style(f"attempt {line.attempt} failed:", fg="red", bold=True))
            click.echo(told)
            return True
    return False


class _Printer:
    """Prints pieces of logs. A line that is not over yet is kept until it is, or another task speaks."""

    def __init__(self, *, is_prefixed: bool, as_json: bool) -> None:
        self.is_prefixed = is_prefixed
        self.as_json = as_json
        self.source = ""
        self.is_in_line = False

    def print(self, piece: LogPiece) -> None:
        """Print one."""
        if self.as_json:
            said = {"node": piece.node_id, "attempt": piece.attempt, "at": rfc3339(piece.at), "text": piece.text}
            click.echo(json.dumps(said, ensure_ascii=False))
            return
        source = piece.node_id if piece.attempt == 1 else f"{piece.node_id}#{piece.attempt}"
        if source != self.source:
            self.end()
            self.source = source
        prefix = click.style(f"{source} │ ", fg="bright_black") if self.is_prefixed else ""
        for line in piece.text.splitlines(keepends=True):
            click.echo(line if self.is_in_line else f"{prefix}{line}", nl=False)
            self.is_in_line = not line.endswith("\n")

    def end(self) -> None:
        """End a line that is not over."""
        if self.is_in_line:
            click.echo("")
            self.is_in_line = False
