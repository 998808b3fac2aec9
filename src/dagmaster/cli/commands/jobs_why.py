"""`dagmaster jobs why`: why a job or a node has its status, down to the root cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.system import job_argument, on_system
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo_json

if TYPE_CHECKING:
    import pathlib

    from dagmaster.application.views import JobWhyView, NodeWhyView
    from dagmaster.client.system import System


@click.command(
    epilog="Exit codes: 0 explained, whatever the job's status; 2 no such job or node; 3 no database."
)
@job_argument
@click.argument("node_id", metavar="[NODE]", required=False)
@json_option
@data_dir_option
def why(job_id: str, node_id: str | None, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Explain why a job has its status: first the reason that keeps it from advancing.

    With a NODE (also a child of a fan-out): why that node does not run, or how it ended, step by step to the
    root cause. All reasons have codes, listed in docs/reference/reasons.md.

    \b
    Examples:
      dagmaster jobs why last
      dagmaster jobs why last publish
      dagmaster jobs why 115601869557067776 --json
    """

    async def query(system: System) -> JobWhyView | NodeWhyView:
        from dagmaster.application.diagnosis import why_job, why_node

        if node_id is None:
            return await system.call(why_job, job_id)
        return await system.call(why_node, job_id, node_id)

    view = on_system(data_dir, query)
    if as_json:
        echo_json(view.to_dict())
        return COMPLETED
    from dagmaster.application.views import JobWhyView
    from dagmaster.cli.render.why_page import job_why_page, node_why_page
    from dagmaster.sdk.terminal import print_page

    page = job_why_page(view) if isinstance(view, JobWhyView) else node_why_page(view)
    print_page(page)
    return COMPLETED
