"""Draw a list of jobs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from dagmaster.cli.render.job import job_status
from dagmaster.cli.render.text import DIM, duration
from dagmaster.text_format import age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import JobView


def jobs_table(jobs: Sequence[JobView]) -> Table:
    """Draw a list of jobs. It has a column of names if a job has another name than its workflow."""
    has_names = any(job.name != job.workflow_id for job in jobs)
    table = Table(box=None, pad_edge=False, header_style=DIM)
    # An id that is cut off is of no use.
    table.add_column("job", no_wrap=True, min_width=max((len(job.job_id) for job in jobs), default=0))
    table.add_column("status", no_wrap=True)
    table.add_column("workflow", overflow="ellipsis", no_wrap=True)
    if has_names:
        table.add_column("name", overflow="ellipsis", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("by", overflow="ellipsis", no_wrap=True, style=DIM)
    for job in jobs:
        total, finished = f"{job.nodes_total:,}", f"{job.nodes_finished:,}"
        table.add_row(
            Text(job.job_id, style="bold"),
            job_status("CANCELLING" if job.is_cancelling else job.status),
            f"{job.workflow_id} v{job.version}",
            *([Text(job.name)] if has_names else []),
            total if job.nodes_finished == job.nodes_total else f"{finished}/{total}",
            "" if job.duration_seconds is None else duration(job.duration_seconds),
            age(job.read_at - job.created_at),
            job.submitted_by,
        )
    return table
