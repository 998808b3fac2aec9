"""`dagmaster jobs show`: one job, as it stands."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.cli.commands.jobs_node import node_document, node_page, read_told
from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.cli.render.job import detail_lines, duration, job_status, name_width, node_line
from dagmaster.cli.render.tree import Tree
from dagmaster.cli.snapshots import blocking_reasons, job_view, load_job_view, to_dict, view_of, visible_inputs
from dagmaster.engine.status import NodeStatus
from dagmaster.text_format import age, format_error

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from dagmaster.cli.database import ReadSession
    from dagmaster.cli.snapshots import Snapshot
    from dagmaster.engine.graph import Graph
    from dagmaster.store.postgres.legacy_read_store import JobDetail, NodeRecord

_LONGEST_VALUE: Final = 1_000
# A tree that is longer than this is shown in part: the rest is in --json.
_MOST_ROWS: Final = 200


@click.command(epilog="Exit codes: 0 shown, however the job stands; 2 no such job or node; 3 no database.")
@job_argument
@click.argument("node_id", metavar="[NODE]", required=False)
@click.option("--all", "everything", is_flag=True, help="With --json: the children of fan-outs, too.")
@json_option
@data_dir_option
def show(job_id: str, node_id: str | None, *, everything: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show a job: where its nodes stand, what it waits for, and what it gave.

    With a NODE (a child of a fan-out, too): its attempts with times and workers, its error whole, the item that it was
    made for, what it gave, and its params while its task is out.

    \b
    Examples:
      dagmaster jobs show last
      dagmaster jobs show last scenes__3
      dagmaster jobs show 115601869557067776
      dagmaster jobs show last --json --all
    """

    async def work(onlooker: ReadSession) -> None:
        store = onlooker.store
        head = await onlooker.job(job_id)
        graph = await graph_of(onlooker, head)
        if node_id is not None:
            told = await read_told(onlooker, head, graph, node_id)
            if as_json:
                click.echo(json.dumps(node_document(told), ensure_ascii=False))
            else:
                Console().print(Group(*node_page(told)))
            return
        snapshot = await load_job_view(store, head, graph)
        result = await onlooker.value(head.result, head.result_ref)
        if as_json:
            lines = await store.nodes(head.id, None) if everything else None
            said = to_dict(snapshot, result, await store.attempts(head.id), lines)
            click.echo(json.dumps(said, ensure_ascii=False))
            return
        failed: dict[str, list[NodeRecord]] = {
            fan: await store.failed_children(head.id, fan)
            for fan, children in snapshot.children.items()
            if children.counts.get("FAILED")
        }
        Console().print(Group(*page(snapshot, result, failed)))

    on_database(data_dir, work)
    return COMPLETED


async def graph_of(onlooker: ReadSession, head: JobDetail) -> Graph:
    """The graph of a job."""
    from dagmaster.authoring.compiler.compile import compile_definition

    definition = await onlooker.store.definition(head.content_hash)
    return compile_definition(definition or {})


def page(snapshot: Snapshot, result: Any, failed: dict[str, list[NodeRecord]]) -> Iterator[Any]:
    """Draw a job: its head, its nodes, what it waits for, what it gave."""
    yield _head(snapshot)
    yield ""
    yield from _nodes(snapshot, failed)
    sentences = blocking_reasons(snapshot)
    if sentences:
        yield Text("\nwaits for", style="bright_black")
        for sentence in sentences:
            yield Padding(Text(sentence, style="magenta"), (0, 0, 0, 2), expand=False)
    if result is not None:
        text = json.dumps(result, ensure_ascii=False, indent=2)
        if len(text) > _LONGEST_VALUE:
            text = f"{text[:_LONGEST_VALUE]}… ({len(text):,} characters: --json shows all)"
        yield Text("\nresult", style="bright_black")
        yield Padding(Text(text), (0, 0, 0, 2), expand=False)


def _head(snapshot: Snapshot) -> Table:
    head, view = snapshot.head, job_view(snapshot)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    status = job_status(view.status)
    status.append(f"  {view.over:,}/{view.nodes:,} nodes", style="bright_black")
    if head.started_at is not None:
        of_run = "" if head.resumed_at is None else f" in run {head.run}"
        status.append(f"  {duration(snapshot.seconds)}{of_run}", style="bright_black")
    table.add_row("job", Text(head.id, style="bold"))
    table.add_row("workflow", f"{head.workflow_id} v{head.version}")
    table.add_row("status", status)
    if head.error is not None:
        table.add_row("error", Text(format_error(head.error), style="red"))
    inputs = json.dumps(visible_inputs(snapshot), ensure_ascii=False)
    if inputs != "{}":
        table.add_row("inputs", Text(inputs if len(inputs) <= _LONGEST_VALUE else f"{inputs[:_LONGEST_VALUE]}…"))
    by = f" by {head.submitted_by}" if head.submitted_by else ""
    table.add_row("submitted", f"{_local(head.created_at)} ({age(head.now - head.created_at)} ago){by}")
    if head.finished_at is not None:
        table.add_row("finished", _local(head.finished_at))
    if head.deadline_at is not None:
        table.add_row("deadline", _local(head.deadline_at))
    if head.owner_id is not None:
        silent = head.silent_seconds or 0.0
        table.add_row("owner", f"orchestrator on {head.host}, pid {head.pid}, heard {age(silent)} ago")
    parts = [f"priority {head.priority}", *([f"run {head.run}"] if head.run > 1 else [])]
    parts += [f"correlation {head.correlation_id}"] if head.correlation_id else []
    parts += [f"started by {head.parent_node_id} of job {head.parent_job_id}"] if head.parent_job_id else []
    parts += [f"resumed from job {head.resumed_from}"] if head.resumed_from else []
    table.add_row("", Text(", ".join(parts), style="bright_black"))
    return table


def _nodes(snapshot: Snapshot, failed: dict[str, list[NodeRecord]]) -> Iterator[Any]:
    tree = Tree(snapshot.graph)
    for node_id, line in snapshot.nodes.items():
        tree.mark(node_id, NodeStatus(line.status))
    rows, hidden = tree.pick(_MOST_ROWS)
    width = name_width(rows)
    for row in rows:
        view = view_of(snapshot, row.node_id)
        yield node_line(view, row.prefix, snapshot.head.now, width=width, details=False)
        below = [*detail_lines(view)]
        children = failed.get(row.node_id, ())
        below += [(f"✘ {child.node_id}: {format_error(child.error or {})}", "red") for child in children]
        for text, colour in below:
            yield _below(row.prefix, Text(text, style=colour))
    if hidden:
        yield Text(f"… {hidden:,} more nodes: --json shows all", style="bright_black")


def _below(prefix: str, text: Text) -> Table:
    """Set a text under a node, right of the lines of the tree."""
    lines = prefix.replace("├─ ", "│  ").replace("└─ ", "   ")
    table = Table.grid()
    table.add_column(no_wrap=True, style="bright_black")
    table.add_column(overflow="fold")
    table.add_row(f"{lines}    ", text)
    return table


def _local(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
