"""`dagmaster jobs`: the command group. Each command is in its own module, imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import LazyGroup

if TYPE_CHECKING:
    from dagmaster.cli.system import Session


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("dagmaster.cli.commands.jobs_list:list_jobs", "List jobs, newest first."),
        "show": ("dagmaster.cli.commands.jobs_show:show", "Show a job, or a node of it."),
        "why": ("dagmaster.cli.commands.jobs_why:why", "Explain why a job, or a node of it, has its status."),
        "watch": ("dagmaster.cli.commands.jobs_watch:watch", "Watch a job until it has finished."),
        "logs": ("dagmaster.cli.commands.jobs_logs:logs", "Print the output of a job's tasks."),
        "footprints": (
            "dagmaster.cli.commands.jobs_footprints:footprints",
            "Print the footprints of a job as GeoJSON.",
        ),
        "map": (
            "dagmaster.cli.commands.jobs_footprints:draw",
            "Draw the footprints of a job on a map.",
        ),
        "events": ("dagmaster.cli.commands.jobs_events:events", "Print the events of a job."),
        "audit": ("dagmaster.cli.commands.jobs_audit:audit", "Check the invariants of a database."),
        "cancel": ("dagmaster.cli.commands.jobs_control:cancel", "Ask a job to stop, or some of its nodes."),
        "approve": ("dagmaster.cli.commands.jobs_control:approve", "Approve a waiting approval."),
        "reject": ("dagmaster.cli.commands.jobs_control:reject", "Reject a waiting approval."),
        "signal": ("dagmaster.cli.commands.jobs_control:signal", "Send a signal to a job."),
        "retry": ("dagmaster.cli.commands.jobs_control:retry", "Run nodes again."),
        "resume": (
            "dagmaster.cli.commands.jobs_resume:resume",
            "Run failed, cancelled and skipped nodes again.",
        ),
    },
    epilog="JOB is a job id, or `last` for the newest job.",
)
def jobs() -> None:
    """List, watch, explain and control jobs.

    They belong to the server of --url or DAGMASTER_URL, else of the database: DAGMASTER_DATABASE_URL, or
    the embedded one.

    \b
    Examples:
      dagmaster jobs list --status failed --since 1d
      dagmaster jobs watch
      dagmaster jobs show last
    """


def watch_to_end(session: Session, job_id: str, *, as_json: bool = False) -> int:
    """Watch a job until it has finished, and return the exit code."""
    from dagmaster.cli.commands import jobs_watch

    return jobs_watch.interruptible(
        job_id, lambda: session.run(lambda system: jobs_watch.watch_to_end(system, job_id, as_json=as_json))
    )
