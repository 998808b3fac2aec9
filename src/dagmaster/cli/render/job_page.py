"""Draw a job for `jobs show`: its head, its nodes, what it waits for, its result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.cli.render.job import detail_lines, job_line, job_status, name_width, node_line, render_node
from dagmaster.cli.render.text import DIM, duration, local_time, value_lines
from dagmaster.cli.render.tree import Tree
from dagmaster.cli.suggested_commands import format_blocking_reasons
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.text_format import age, format_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from dagmaster.application.views import JobDetailView, NodeRecord

_MAX_VALUE_LENGTH: Final = 1_000
# Of a larger tree, only a part is shown: --json prints all nodes.
_MAX_ROWS: Final = 200


def job_page(
    job: JobDetailView, failed_children: Mapping[str, Sequence[NodeRecord]]
) -> Iterator[RenderableType]:
    yield _head(job)
    yield ""
    yield from _nodes(job, failed_children)
    if job.blocking_reasons:
        yield Text("\nwaits for", style=DIM)
        for sentence in format_blocking_reasons(job):
            yield Padding(Text(sentence, style="magenta"), (0, 0, 0, 2), expand=False)
    if job.result is not None:
        yield from value_lines("result", job.result, _MAX_VALUE_LENGTH)


def _head(job: JobDetailView) -> Table:
    line = job_line(job)
    table = Table.grid(padding=(0, 2))
    table.add_column(style=DIM, no_wrap=True)
    table.add_column(overflow="fold")
    status = job_status(line.status)
    status.append(f"  {line.finished:,}/{line.nodes:,} nodes", style=DIM)
    if job.duration_seconds is not None:
        run = "" if job.resumed_at is None else f" in run {job.run}"
        status.append(f"  {duration(job.duration_seconds)}{run}", style=DIM)
    table.add_row("job", Text(job.job_id, style="bold"))
    if job.name != job.workflow_id:
        table.add_row("name", Text(job.name))
    table.add_row("workflow", f"{job.workflow_id} v{job.version}")
    table.add_row("status", status)
    if job.error is not None:
        table.add_row("error", Text(format_error(job.error), style="red"))
    inputs = json.dumps(job.inputs, ensure_ascii=False)
    if inputs != "{}":
        table.add_row(
            "inputs", Text(inputs if len(inputs) <= _MAX_VALUE_LENGTH else f"{inputs[:_MAX_VALUE_LENGTH]}…")
        )
    by = f" by {job.submitted_by}" if job.submitted_by else ""
    table.add_row("submitted", f"{local_time(job.created_at)} ({age(job.read_at - job.created_at)} ago){by}")
    if job.finished_at is not None:
        table.add_row("finished", local_time(job.finished_at))
    if job.deadline_at is not None:
        table.add_row("deadline", local_time(job.deadline_at))
    if job.owner is not None:
        heartbeat = f"last heartbeat {age(job.owner.silent_seconds)} ago"
        table.add_row("owner", f"orchestrator on {job.owner.host}, pid {job.owner.pid}, {heartbeat}")
    table.add_row("", Text(", ".join(_remarks(job)), style=DIM))
    return table


def _remarks(job: JobDetailView) -> Iterator[str]:
    yield f"priority {job.priority}"
    if job.run > 1:
        yield f"run {job.run}"
    if job.tenant != DEFAULT_TENANT:
        yield f"tenant {job.tenant}"
    if job.submitter_label:
        yield f"for {job.submitter_label}"
    if job.correlation_id:
        yield f"correlation {job.correlation_id}"
    if job.parent_job_id:
        yield f"started by {job.parent_node_id} of job {job.parent_job_id}"
    if job.resumed_from:
        yield f"resumed from job {job.resumed_from}"


def _nodes(
    job: JobDetailView, failed_children: Mapping[str, Sequence[NodeRecord]]
) -> Iterator[RenderableType]:
    tree = Tree(job.dependencies)
    for node_id in job.dependencies if len(tree.rows) > _MAX_ROWS else ():
        tree.mark(node_id, job.nodes[node_id].status)
    rows, hidden = tree.pick(_MAX_ROWS)
    width = name_width(rows)
    for row in rows:
        line = node_line(job.nodes[row.node_id], job.read_at)
        yield render_node(line, row.prefix, job.read_at, width=width, details=False)
        below = [*detail_lines(line)]
        children = failed_children.get(row.node_id, ())
        below += [(f"✘ {child.node_id}: {format_error(child.error or {})}", "red") for child in children]
        for text, colour in below:
            yield _below(row.prefix, Text(text, style=colour))
    if hidden:
        yield Text(f"… {hidden:,} more nodes: --json shows all", style=DIM)


def _below(prefix: str, text: Text) -> Table:
    """Set a text under a node, right of the lines of the tree."""
    lines = prefix.replace("├─ ", "│  ").replace("└─ ", "   ")
    table = Table.grid()
    table.add_column(no_wrap=True, style=DIM)
    table.add_column(overflow="fold")
    table.add_row(f"{lines}    ", text)
    return table
