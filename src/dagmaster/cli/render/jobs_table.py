"""Draw a list of jobs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from dagmaster.cli.render.job import job_status, status_word
from dagmaster.cli.render.text import DIM, duration
from dagmaster.text_format import age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import JobRecord


def jobs_table(jobs: Sequence[JobRecord]) -> Table:
    """Draw a list of jobs. It has a column of names if a job has another name than its workflow."""
    has_names = any(job.name != job.workflow_id for job in jobs)
    rows = [_cells(job, has_names=has_names) for job in jobs]
    table = Table(box=None, pad_edge=False, header_style=DIM)
    names = ("workflow", "name", "by") if has_names else ("workflow", "by")
    for column in ("job", "status", *names[:-1], "nodes", "took", "age", names[-1]):
        # On a narrow terminal names are cut off. An id, a status or a number without its unit would be of no
        # use.
        table.add_column(
            column,
            no_wrap=column not in names,
            min_width=8 if column in names else None,
            justify="right" if column in _NUMBERS else "left",
            style=_STYLES.get(column),
        )
    for cells in rows:
        table.add_row(*cells)
    return table


_NUMBERS: Final = ("nodes", "took", "age")
_STYLES: Final = {"job": "bold", "by": DIM}


def _cells(job: JobRecord, *, has_names: bool) -> list[Text]:
    total, finished = f"{job.nodes_total:,}", f"{job.nodes_finished:,}"
    return [
        Text(job.job_id),
        job_status(status_word(job)),
        _name(f"{job.workflow_id} v{job.version}"),
        *([_name(job.name)] if has_names else []),
        Text(total if job.nodes_finished == job.nodes_total else f"{finished}/{total}"),
        Text("" if job.duration_seconds is None else duration(job.duration_seconds)),
        Text(age(job.read_at - job.created_at)),
        _name(job.submitted_by),
    ]


def _name(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")
