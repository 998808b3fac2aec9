"""`dagmaster jobs`: the group. Each command lives in a module of its own, imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import LazyGroup

if TYPE_CHECKING:
    import pathlib

    from dagmaster.ports.database_config import DatabaseConfig


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("dagmaster.cli.commands.jobs_list:list_jobs", "List the newest jobs."),
        "show": ("dagmaster.cli.commands.jobs_show:show", "Show a job, or a node of it, as it stands."),
        "why": ("dagmaster.cli.commands.jobs_why:why", "Say why a job, or a node of it, stands where it stands."),
        "watch": ("dagmaster.cli.commands.jobs_watch:watch", "Watch a job until it is over."),
        "logs": ("dagmaster.cli.commands.jobs_logs:logs", "Print what the tasks of a job wrote."),
        "footprints": (
            "dagmaster.cli.commands.jobs_footprints:footprints",
            "Print where the parts of a job lie, as GeoJSON.",
        ),
        "map": (
            "dagmaster.cli.commands.jobs_footprints:draw",
            "Draw where the parts of a job lie, and how they stand.",
        ),
        "events": ("dagmaster.cli.commands.jobs_events:events", "Tell all that happened to a job."),
        "audit": ("dagmaster.cli.commands.jobs_audit:audit", "Prove that a database is sound."),
        "cancel": ("dagmaster.cli.commands.jobs_control:cancel", "Ask a job to stop."),
        "approve": ("dagmaster.cli.commands.jobs_control:approve", "Say yes to an approval."),
        "reject": ("dagmaster.cli.commands.jobs_control:reject", "Say no to an approval."),
        "signal": ("dagmaster.cli.commands.jobs_control:signal", "Send a signal to a job."),
        "retry": ("dagmaster.cli.commands.jobs_control:retry", "Run one node again."),
        "resume": ("dagmaster.cli.commands.jobs_resume:resume", "Run again what did not work out."),
    },
    epilog="JOB is an id, or `last` for the newest one.",
)
def jobs() -> None:
    """List, watch, explain and steer jobs.

    The database is DAGMASTER_DATABASE_URL, else the embedded one.

    \b
    Examples:
      dagmaster jobs list --status failed --since 1d
      dagmaster jobs watch
      dagmaster jobs show last
    """


def watch_to_end(
    address: DatabaseConfig, job_id: str, *, as_json: bool = False, data_dir: pathlib.Path | None = None
) -> int:
    """Watch a job of a database that was reached, and give the exit code that tells how it ended."""
    from dagmaster.cli.commands import jobs_watch

    return jobs_watch.watch_to_end(address, job_id, as_json=as_json, data_dir=data_dir)
