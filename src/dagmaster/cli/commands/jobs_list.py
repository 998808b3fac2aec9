"""`dagmaster jobs list`: the newest jobs."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dagmaster.cli.database import on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.cli.render.job import duration, job_status
from dagmaster.cli.snapshots import spell_time
from dagmaster.text_format import age

if TYPE_CHECKING:
    import pathlib

    from dagmaster.cli.database import ReadSession
    from dagmaster.store.postgres.legacy_read_store import JobSummary

STATUSES: Final = ("pending", "running", "waiting", "completed", "failed", "cancelled")
_SPANS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _span(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Read a time span, as 90s, 15m, 2h, 1d or 1w."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smhdw])", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time span: write 90s, 15m, 2h, 1d or 1w")
    return float(found[1]) * _SPANS[found[2]]


@click.command(name="list")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES, case_sensitive=False),
    help="Only these. Repeatable.",
)
@click.option("--workflow", metavar="ID", help="Only jobs of this workflow.")
@click.option("--since", callback=_span, metavar="SPAN", help="Only jobs submitted in the last 90s, 15m, 2h, 1d, 1w.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@json_option
@data_dir_option
def list_jobs(
    *,
    statuses: tuple[str, ...],
    workflow: str | None,
    since: float | None,
    limit: int,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """List jobs, the newest first.

    A job that runs and can only be moved by a person, a signal or a timer is shown as waiting.

    \b
    Examples:
      dagmaster jobs list
      dagmaster jobs list --status failed --status cancelled --since 1d
      dagmaster jobs list --workflow fan_out --limit 5 --json
    """

    async def work(onlooker: ReadSession) -> list[JobSummary]:
        return await onlooker.store.jobs(
            statuses=[status.upper() for status in statuses],
            workflow_id=workflow,
            since=None if since is None else time.time() - since,
            limit=limit,
        )

    found = on_database(data_dir, work)
    if as_json:
        click.echo(json.dumps([_line_document(job) for job in found], ensure_ascii=False))
    elif found:
        Console().print(jobs_table(found))
    elif statuses or workflow or since:
        click.echo("no job fits. `dagmaster jobs list` shows the newest ones, whatever they are.", err=True)
    else:
        click.echo("no jobs yet. Submit one: dagmaster submit workflows/hello_world.yaml -i name=Ada", err=True)
    return COMPLETED


def jobs_table(found: list[JobSummary]) -> Table:
    """Draw a list of jobs."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("job", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("workflow", overflow="ellipsis", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("by", overflow="ellipsis", no_wrap=True, style="bright_black")
    for job in found:
        status = "CANCELLING" if job.cancelling and job.finished_at is None else job.status
        took = "" if job.seconds is None else duration(job.seconds)
        over = f"{job.nodes:,}" if job.over == job.nodes else f"{job.over:,}/{job.nodes:,}"
        table.add_row(
            Text(job.id, style="bold"),
            job_status(status),
            f"{job.workflow_id} v{job.version}",
            over,
            took,
            age(job.now - job.created_at),
            job.submitted_by,
        )
    return table


def _line_document(job: JobSummary) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "workflow_id": job.workflow_id,
        "version": job.version,
        "status": job.status,
        "run": job.run,
        "priority": job.priority,
        "submitted_by": job.submitted_by,
        "parent_job_id": job.parent_job_id,
        "cancelling": job.cancelling and job.finished_at is None,
        "nodes": job.nodes,
        "nodes_over": job.over,
        "created_at": spell_time(job.created_at),
        "started_at": spell_time(job.started_at),
        "finished_at": spell_time(job.finished_at),
        "error": job.error,
    }
