"""`dagmaster jobs events`: the audit log of a job, one sentence per event."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.render.events import event_line
from dagmaster.cli.system import job_argument, on_system
from dagmaster.sdk.command_line import data_dir_option, json_lines_option
from dagmaster.sdk.terminal import echo, echo_json

if TYPE_CHECKING:
    import pathlib

    from dagmaster.client.system import System


@click.command(epilog="Exit codes: 0 printed, 2 no such job or node, 3 no database, 130 interrupted.")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Continue until the job has finished.")
@click.option(
    "--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only events after this number."
)
@click.option("--node", "node_id", metavar="NODE", help="Only events of this node.")
@json_lines_option
@data_dir_option
def events(
    job_id: str,
    *,
    follow: bool,
    after: int,
    node_id: str | None,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Print everything that happened to a job, in order and without gaps.

    Events are numbered. A program that remembers the last number continues from there with --after, and
    misses none.

    \b
    Examples:
      dagmaster jobs events last
      dagmaster jobs events 115601869557067776 --after 40 --json
      dagmaster jobs events last -f --node fetch
    """

    async def query(system: System) -> int:
        from dagmaster.application.queries.events_and_logs import follow_events

        followed = system.call(follow_events, job_id, after=after, node_id=node_id, follow=follow)
        # Closed here: at the end of the loop, an interrupted one and its subscription would be closed at the
        # same time.
        async with contextlib.aclosing(followed):
            async for event in followed:
                echo_json(event.to_dict()) if as_json else echo(event_line(event))
        return COMPLETED

    return on_system(data_dir, query)
