"""`dagmaster jobs list`: find jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import page_options
from dagmaster.cli.system import on_system
from dagmaster.errors import QueryInvalid
from dagmaster.ports.job_filter import JOB_FILTER, Match
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from dagmaster.application.views import JobRecord, Page
    from dagmaster.client.system import System

STATUSES: Final = ("pending", "running", "waiting", "completed", "failed", "cancelled")
_STATUS: Final[dict[str, Any]] = {
    "multiple": True,
    "type": click.Choice(STATUSES, case_sensitive=False),
}
_NUMBER: Final[dict[str, Any]] = {"type": click.IntRange(1)}


def job_filter_options(
    command: Callable[..., Any], *, without: frozenset[str] = frozenset()
) -> Callable[..., Any]:
    """Add the options of the filter to a command, except those whose name it has itself."""
    for one in reversed(JOB_FILTER.values()):
        if one.option and one.option not in without:
            details = {Match.STATUS: _STATUS, Match.NUMBER: _NUMBER}.get(one.match, {"metavar": one.metavar})
            command = click.option(one.option, one.parameter, help=one.help, **details)(command)
    return command


@click.command(
    name="list", epilog="Exit codes: 0 listed, 2 a filter or the cursor is not valid, 3 no database."
)
@job_filter_options
@page_options(default_limit=20)
@json_option
@data_dir_option
def list_jobs(
    *, limit: int, cursor: str | None, as_json: bool, data_dir: pathlib.Path | None, **filters: Any
) -> int:
    """List jobs, newest first. All filters must match.

    A running job that waits for nothing but approvals, signals, timers or child jobs is `waiting`. With
    --json: an object with `items`, each a job as `jobs show` prints it, and `next_cursor`, null on the last
    page.

    \b
    Examples:
      dagmaster jobs list
      dagmaster jobs list --status failed --status cancelled --since 1d
      dagmaster jobs list --workflow fan_out --version 2 --limit 5 --json
      dagmaster jobs list --submitter ada --since 2026-11-01 --until 2026-11-08
      dagmaster jobs list --status failed --finished-since 1h
      dagmaster jobs list --text night-          id, name, submitter or correlation id
    """
    from dagmaster.application.job_filters import parse_job_filter

    try:
        job_filter = parse_job_filter(now=time.time(), **filters)
    except QueryInvalid as error:
        raise click.UsageError(str(error)) from error

    async def query(system: System) -> Page[JobRecord]:
        from dagmaster.application.queries.jobs import list_jobs

        return await system.call(list_jobs, job_filter, cursor=cursor, limit=limit)

    page = on_system(data_dir, query)
    if as_json:
        echo_json(page.to_dict())
        return COMPLETED
    if page.items:
        from dagmaster.cli.render.jobs_table import jobs_table
        from dagmaster.sdk.terminal import print_page

        print_page([jobs_table(page.items)])
    elif cursor is not None:
        echo("no more jobs", err=True)
    elif any(filters.values()):
        echo("no job matches. `dagmaster jobs list` without filters lists the newest jobs.", err=True)
    else:
        echo("no jobs yet. Submit one: dagmaster submit workflows/hello_world.yaml -i name=Ada", err=True)
    if page.next_cursor is not None:
        echo(f"there are more: add --cursor {page.next_cursor}", err=True)
    return COMPLETED
