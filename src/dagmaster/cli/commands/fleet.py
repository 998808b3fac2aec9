"""`dagmaster fleet`: live, stopped and dead services, and the queues; and their drain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.main import COMPLETED, LazyGroup
from dagmaster.cli.system import on_system
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo_json

if TYPE_CHECKING:
    import pathlib

    from dagmaster.application.views import FleetRecord
    from dagmaster.client.system import System

ANSWER_SECONDS: Final = 2.1
"""How long an operator waits for a reply. A server needs 2 s at most, the command about 0.7 s."""


@click.group(
    cls=LazyGroup,
    lazy={
        "drain": (
            "dagmaster.cli.commands.fleet_drain:drain",
            "Let an orchestrator or a worker claim nothing more.",
        ),
        "undrain": ("dagmaster.cli.commands.fleet_drain:undrain", "Let it claim again."),
    },
    invoke_without_command=True,
    epilog="Exit codes: 0 shown, 3 no database.",
)
@json_option
@data_dir_option
@click.pass_context
def fleet(context: click.Context, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show the orchestrators and workers that are alive, and the tasks that wait in the queues.

    A worker may have claimed more tasks than it runs: these are prefetched. A queue with tasks that no live
    worker serves is marked. Services that died within the last hour, or stopped and left what no other one
    has taken over, are listed below. One that died did not release its jobs or tasks: their number, and what
    became of them, is shown next to it. If the database does not answer, a server (--url) shows what it read
    last, and since when.

    \b
    Examples:
      dagmaster fleet
      dagmaster fleet --json
      dagmaster fleet drain worker-7:1 --wait
    """
    if context.invoked_subcommand is not None:
        return COMPLETED

    async def query(system: System) -> FleetRecord:
        from dagmaster.application.queries import fleet as queries

        return await system.call(queries.fleet)

    view = on_system(data_dir, query, answer_seconds=ANSWER_SECONDS)
    if as_json:
        echo_json(view.to_dict())
        return COMPLETED
    from dagmaster.cli.render.fleet_page import fleet_page
    from dagmaster.sdk.terminal import print_page

    print_page(fleet_page(view))
    return COMPLETED
