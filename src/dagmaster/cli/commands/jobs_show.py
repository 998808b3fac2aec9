"""`dagmaster jobs show`: one job, or one node of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.system import job_argument, on_system
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo_json

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from dagmaster.application.views import JobDetailView, NodeDetailView, NodeRecord
    from dagmaster.client.system import System

_FAILED_CHILDREN = 3


@click.command(epilog="Exit codes: 0 shown, whatever the job's status; 2 no such job or node; 3 no database.")
@job_argument
@click.argument("node_id", metavar="[NODE]", required=False)
@click.option("--all", "with_children", is_flag=True, help="With --json: include the children of fan-outs.")
@json_option
@data_dir_option
def show(
    job_id: str, node_id: str | None, *, with_children: bool, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Show a job: the status of its nodes, what it waits for, and its result.

    With a NODE (also a child of a fan-out): its attempts with times and workers, its complete error, the item
    of a child, its output, and its params while its task is in flight.

    \b
    Examples:
      dagmaster jobs show last
      dagmaster jobs show last scenes__3
      dagmaster jobs show 115601869557067776
      dagmaster jobs show last --json --all
    """
    if with_children and (node_id is not None or not as_json):
        raise click.UsageError(
            "--all goes with --json, and with a whole job: it adds the children of fan-outs"
        )
    if node_id is not None:
        node = on_system(data_dir, lambda system: _read_node(system, job_id, node_id))
        _print_node(node, as_json=as_json)
        return COMPLETED

    async def query(system: System) -> tuple[JobDetailView, dict[str, Sequence[NodeRecord]]]:
        from dagmaster.application.queries.job_detail import job_detail

        job = await system.call(job_detail, job_id, with_children=with_children)
        return job, {} if as_json else await _failed_children(system, job)

    job, failed_children = on_system(data_dir, query)
    if as_json:
        echo_json(job.to_dict())
        return COMPLETED
    from dagmaster.cli.render.job_page import job_page
    from dagmaster.sdk.terminal import print_page

    print_page(job_page(job, failed_children))
    return COMPLETED


async def _read_node(system: System, job_id: str, node_id: str) -> NodeDetailView:
    from dagmaster.application.queries.nodes import node_detail

    return await system.call(node_detail, job_id, node_id)


def _print_node(node: NodeDetailView, *, as_json: bool) -> None:
    if as_json:
        echo_json(node.to_dict())
        return
    from dagmaster.cli.render.node_page import node_page
    from dagmaster.sdk.terminal import print_page

    print_page(node_page(node))


async def _failed_children(system: System, job: JobDetailView) -> dict[str, Sequence[NodeRecord]]:
    from dagmaster.application.queries.nodes import list_children
    from dagmaster.application.views import NodeStatus

    failed = frozenset({NodeStatus.FAILED})
    fan_outs = [node.node_id for node in job.nodes.values() if node.children and node.children.count(*failed)]
    return {
        fan_out: (
            await system.call(list_children, job.job_id, fan_out, statuses=failed, limit=_FAILED_CHILDREN)
        ).items
        for fan_out in fan_outs
    }
